"""Formats of `consume -f` and `produce -f`: what is written is read back, in pieces of any length."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.commands.record_format.reading import FormatReader, ReadRecord, RoundTrip
from kctl.commands.record_format.syntax import (
    NUMBER_FORMS,
    HeadersPiece,
    NumberForm,
    Piece,
    TextForm,
    TextPiece,
    escape_bytes,
    parse_format,
    unescape_bytes,
)
from kctl.commands.record_format.writing import FormatWriter, check_readable, steps_of
from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.records.header import Record
from tests.property.examples import examples
from tests.rows import for_rows

TP = TopicPartition("orders.eu", 3)
DELIMITERS = st.sampled_from([*"\t\n,:;=-|#a0}.", " ", "\\x00", "\\xff", "::", "\\r\\n", "%%", "%{", "--", "é"])
SIZE_FORMS = st.sampled_from(["", "{ascii}", "{hex}", "{hex32}", "{big64}", "{big32}", "{little32}", "{big16}"])
TEXT_FORMS = st.sampled_from(["", "{hex}", "{base64}", "{escape}"])
AWKWARD = st.lists(
    st.sampled_from([b"\t", b"\n", b",", b":", b"=", b"\\", b"\\N", b"\0", b"\xff", b"a", b"0", b"-", "é".encode()])
)
DATA = st.none() | st.binary(max_size=12) | AWKWARD.map(b"".join)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(["a,b", "a=b", "\\", "\n", ""])
RECORDS = st.lists(
    st.builds(
        Record,
        st.integers(0, 1 << 40),
        st.integers(-1, 1 << 42),
        DATA,
        DATA,
        st.lists(st.tuples(TEXT, DATA), max_size=3).map(tuple),
    ),
    max_size=4,
)


SAFE = st.sampled_from(["\t", "\\n", ";", "|", "#", "%% ", "%{", " ", "\\xff", "é", "\\r\\n"])
"""Delimiters that may follow any field."""
FIXED_FORMS = st.sampled_from(["{hex32}", "{big64}", "{big32}", "{little32}", "{big16}", "{hex16}"])


@st.composite
def formats(draw: st.DrawFn) -> str:
    """Formats of fields in any order, with and without sizes and delimiters; most cannot be read."""
    fields = draw(st.lists(st.sampled_from("kvhHtpod"), min_size=1, max_size=6, unique=True))
    forms = TEXT_FORMS | SIZE_FORMS | st.sampled_from(["{rfc3339}", "{strftime[%F]}", "{%K%k,}", "{%k=%v;}"])
    return "".join(f"%{field}{draw(forms)}{draw(DELIMITERS | st.just(''))}" for field in fields)


@st.composite
def readable_formats(draw: st.DrawFn) -> str:
    """Formats that can be read."""
    headers = draw(st.sampled_from("hH"))
    fields = draw(st.lists(st.sampled_from(f"kv{headers}tpod"), max_size=5, unique=True))
    if not {"k", "v"} & set(fields):
        fields.append(draw(st.sampled_from("kv")))
    return draw(DELIMITERS | st.just("")) + "".join(draw(readable_field(field)) for field in fields)


@st.composite
def readable_field(draw: st.DrawFn, field: str) -> str:
    """A field whose end is known."""
    if field in "kv":
        return draw(sized_text(field) | delimited_text(field))
    if field == "H":
        names = draw(st.sampled_from(["kv", "vk", "k"]))
        each = "".join(draw(sized_text(name) | st.builds("%{}{{escape}};".format, st.just(name))) for name in names)
        return f"%H{draw(number_end())}%h{{{each}}}"
    if field == "d":
        return f"%d{draw(number_end() | SAFE.map('{{rfc3339}}{}'.format))}"
    if field == "h":
        return f"%h{draw(SAFE)}"
    return f"%t{draw(TEXT_FORMS)}{draw(SAFE)}" if field == "t" else f"%{field}{draw(number_end())}"


def number_end() -> st.SearchStrategy[str]:
    """A form of fixed width, or a delimiter after another form."""
    forms = st.sampled_from(["", "{ascii}", "{hex}"])
    return FIXED_FORMS | st.builds("{}{}".format, forms, SAFE)


def sized_text(field: str) -> st.SearchStrategy[str]:
    """A text after its size, and perhaps a delimiter."""
    size = st.just(f"%{field.upper()}")
    text = st.sampled_from([f"%{field}", f"%{field}{{hex}}", f"%{field}{{base64}}"])
    return st.builds(
        "{}{}{}{}".format, size, number_end(), text, DELIMITERS.filter(lambda character: character != "}") | st.just("")
    )


def delimited_text(field: str) -> st.SearchStrategy[str]:
    """A text before a delimiter."""
    raw = st.builds("%{}{}{}".format, st.just(field), st.sampled_from(["", "{hex}", "{base64}"]), DELIMITERS)
    return raw | st.builds("%{}{{escape}}{}".format, st.just(field), SAFE)


def parsed(text: str) -> tuple[Piece, ...]:
    """The pieces of a format that can be read."""
    pieces = parse_format(text)
    check_readable(pieces)
    return pieces


def read(pieces: tuple[Piece, ...], text: bytes, cuts: list[int], null_marker: bytes | None) -> list[ReadRecord]:
    """The records of `text` that arrives in pieces."""
    reader = FormatReader(pieces, null_marker)
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    parts = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    return [*(record for part in parts for record in reader.feed(part)), *reader.finish()]


def loses_nothing(pieces: tuple[Piece, ...]) -> bool:
    """Whether all texts have sizes or escapes."""
    inner = [
        step for piece in pieces if isinstance(piece, HeadersPiece) and piece.each for step in steps_of(piece.each)
    ]
    texts = [step for step in [*steps_of(pieces), *inner] if isinstance(step.piece, TextPiece)]
    return all(
        step.is_sized or (isinstance(step.piece, TextPiece) and step.piece.form is TextForm.ESCAPE) for step in texts
    )


@examples(200)
@given(readable_formats(), RECORDS, st.lists(st.integers(0, 1000), max_size=5), st.sampled_from([None, b"NULL", b""]))
@pytest.mark.long
def test_records_that_pass_the_check_are_read_back_equal(
    text: str, records: list[Record], cuts: list[int], null_marker: bytes | None
) -> None:
    """The check of --reversible looks at one record at a time; then also their concatenation is read back."""
    pieces = parsed(text)
    writer, check = FormatWriter(pieces, null_marker), RoundTrip(pieces, null_marker)
    written, expected = b"", []
    for record in records:
        try:
            one = writer.write(TP, record)
        except UsageError:  # a number does not fit
            continue
        try:
            check.check(TP, record, one)
        except UsageError:
            assert not loses_nothing(pieces)
            continue
        written += one
        expected.append(check.expected(TP, record))
    assert read(pieces, written, cuts, null_marker) == expected


LOSSLESS = [
    "%K{big32}%k%V{big32}%v%H{byte}%h{%K{big16}%k%V{big32}%v}%p{big32}%d{big64}",
    "%K %V %H %p %d %k%v%h{%K %V %k%v}\\n",
    "%k{escape}\\t%v{escape}\\t%H %h{%k{escape}=%v{escape},}%p %d{rfc3339}\\n",
    "%p,%d,%k{escape},%v{escape},%H,%h{%k{escape},%v{escape},}\\n",
    "%K{hex32}%k{hex}%V{little32}%v{base64} %H %h{%K{hex8}%k{base64}%V{big64}%v{hex}}%d:%p{hex}.",
    "%V\\n%K\\n%H\\n%d\\n%p\\n%k%v%h{%K\\n%V\\n%k%v}",
]


@for_rows("text", LOSSLESS)
@examples(25)
@given(records=RECORDS, cuts=st.lists(st.integers(0, 1000), max_size=5))
def test_formats_with_sizes_or_escapes_lose_nothing(text: str, records: list[Record], cuts: list[int]) -> None:
    pieces = parse_format(text)
    writer = FormatWriter(pieces)
    written = b"".join(writer.write(TP, record) for record in records)
    assert read(pieces, written, cuts, None) == [
        ReadRecord(
            record.key, record.value, record.headers, TP.partition, None if record.timestamp < 0 else record.timestamp
        )
        for record in records
    ]


@given(readable_formats(), st.binary(max_size=60), st.lists(st.integers(0, 1000), max_size=5))
def test_any_bytes_are_records_or_are_refused(text: str, data: bytes, cuts: list[int]) -> None:
    pieces = parsed(text)
    try:
        read(pieces, data, cuts, None)
    except UsageError:
        return


@given(st.text(st.sampled_from("%kvhHKVptodT{}\\nx0[]strfime é"), max_size=20) | formats())
def test_any_text_is_a_format_or_is_refused(text: str) -> None:
    try:
        pieces = parse_format(text)
    except UsageError:
        return
    FormatWriter(pieces)
    try:
        check_readable(pieces)
    except UsageError:
        return
    FormatReader(pieces)


@given(st.binary(max_size=40), st.binary(max_size=2))
def test_escapes_have_no_control_characters_and_are_read_back(data: bytes, special: bytes) -> None:
    written = escape_bytes(data, special)
    assert unescape_bytes(written) == data
    assert written.decode(errors="strict").encode() == written
    assert not any(byte < 32 or byte == 127 for byte in written)
    assert TextForm.ESCAPE.read(written) == data


@given(st.sampled_from(sorted(NUMBER_FORMS)), st.integers(-1, (1 << 63) - 1))
def test_numbers_are_read_back_or_do_not_fit(name: str, number: int) -> None:
    form: NumberForm = NUMBER_FORMS[name]
    try:
        written = form.write(number)
    except OverflowError:
        assert form.is_fixed
        return
    assert form.read(written) == number
    assert not form.is_fixed or len(written) == form.width


PLAIN = st.lists(st.sampled_from("kvt"), min_size=1, max_size=3, unique=True).filter({"k", "v"}.intersection)
OVERLAPPING = st.sampled_from(["\t", "a", "aa", "aba", "\n", "\\xff"])
"""Delimiters of which parts may precede them in the text."""


@given(PLAIN, st.data(), st.lists(st.sampled_from([b"a", b"b", b"aa", b"\t", b"\n", b"\xff"])).map(b"".join))
@examples(300)
def test_texts_with_delimiters_are_read_alike_by_pattern_and_by_steps(
    fields: list[str], data: st.DataObject, text: bytes
) -> None:
    pieces = parse_format("".join(f"%{field}{data.draw(OVERLAPPING)}" for field in fields))
    by_pattern, by_steps = FormatReader(pieces, b"b"), FormatReader(pieces, b"b")
    assert by_pattern._plain is not None
    by_steps._plain = None
    cut = data.draw(st.integers(0, len(text)))
    for piece in (text[:cut], text[cut:]):
        assert list(by_pattern.feed(piece)) == list(by_steps.feed(piece))
    assert outcome(by_pattern) == outcome(by_steps)


def outcome(reader: FormatReader) -> list[ReadRecord] | str:
    try:
        return list(reader.finish())
    except UsageError as error:
        return str(error)


PLAIN_FORMATS = st.lists(st.sampled_from(["%k", "%v", "%o", "%p", "%t", "%d", "%%", "\\t", "é", "{%s}"])).map("".join)
"""Formats that are written by one operation, among others."""


@given(PLAIN_FORMATS | formats(), RECORDS, st.sampled_from([None, b"NULL", b""]))
def test_several_records_are_written_like_one_after_the_other(
    text: str, records: list[Record], null_marker: bytes | None
) -> None:
    try:
        pieces = parse_format(text)
    except UsageError:
        return
    one_by_one = FormatWriter(pieces, null_marker)

    def write(texts: Iterator[bytes]) -> tuple[bytes, str | None]:
        written = b""
        try:
            for part in texts:
                written += part
        except UsageError as error:
            return written, str(error)
        return written, None

    expected = write(one_by_one.write(TP, record) for record in records)
    assert write(FormatWriter(pieces, null_marker).write_all(TP, records)) == expected

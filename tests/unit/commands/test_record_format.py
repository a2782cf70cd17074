"""`consume -f`, `produce -f` and `consume --value-only`, as command lines."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from kctl.cli import main
from kctl.commands.consume.presenting import INDENTED_CHARACTERS_MAX, indented
from kctl.commands.record_format.reading import FORMATTED_HEADERS_MAX, FORMATTED_RECORD_BYTES_MAX, FormatReader
from kctl.commands.record_format.syntax import parse_format
from kctl.errors import UsageError
from kctl.output.console import Console
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.test_records import stdin

Bytes = Callable[..., bytes]
HEADERS = (("from", b"web"), ("a,b", b"x=y"), ("null", None))


@pytest.fixture
def output(capfdbinary: pytest.CaptureFixture[bytes]) -> Bytes:
    """The output of a command line that succeeds."""

    def run(*words: str) -> bytes:
        capfdbinary.readouterr()
        status = main(words)
        captured = capfdbinary.readouterr()
        assert status == 0, captured.err
        return captured.out

    return run


@pytest.fixture
def orders(cluster: FakeCluster) -> FakeCluster:
    """A topic with a record of everything, one of nulls, and one of arbitrary bytes."""
    (log,) = cluster.create("orders")
    log.append(build_batch([Record(0, 1_795_253_400_123, b"k1", b"line\nwith\ttab", HEADERS)]))
    log.append(build_batch([Record(0, 1_795_253_400_124, None, None)]))
    log.append(build_batch([Record(0, 1_795_253_400_125, b"\xff\x00", b"\x1b[2J")]))
    return cluster


@for_rows(
    "record_format, first",
    [
        ("%t/%p/%o %k\\n", b"orders/0/0 k1\n"),
        ("%K %V %S %R{ascii}\\n", b"2 13 13 13\n"),
        ("%R%s", b"\x00\x00\x00\x0dline\nwith\ttab"),
        ("%K{big16}%V{little32}%K{hex8}%K{hex}%K{byte}", b"\x00\x02\x0d\x00\x00\x00022\x02"),
        ("%k{hex} %k{base64} %v{escape}\\n", b"6b31 azE= line\\nwith\\ttab\n"),
        ("%d %d{rfc3339} %d{strftime[%Y-%m-%d]}\\n", b"1795253400123 2026-11-21T09:30:00.123Z 2026-11-21\n"),
        ("%h\\n", b"from=web,a\\x2cb=x\\x3dy,null\n"),
        ("%H: %h{%k=%v;}\\n", b"3: from=web;a,b=x=y;null=;\n"),
        ("%i %% %{%} \\x41\\t\\\\\\r\\n", b"0 % {} A\t\\\r\n"),
        ('{"k":"%k"}\\n', b'{"k":"k1"}\n'),
        ("é%k\\0", "é".encode() + b"k1\0"),
    ],
)
def test_formats_write(orders: FakeCluster, output: Bytes, record_format: str, first: bytes) -> None:
    assert output("consume", "orders", "-n", "1", "-f", record_format) == first


def test_null_is_minus_one_as_a_size_and_the_marker_elsewhere(orders: FakeCluster, output: Bytes) -> None:
    consume = ("consume", "orders", "--from", "1", "-n", "1")
    assert output(*consume, "-f", "%K %k|%v\\n") == b"-1 |\n"
    assert output(*consume, "--null-marker", "NULL", "-f", "%K %k|%v|%v{escape}\\n") == b"-1 |NULL|\\N\n"


@for_rows(
    "record_format, reason",
    [
        ("%", "-f ends after a percent sign"),
        ("a\\", "-f ends after a backslash"),
        ("\\q", "no such escape: \\q"),
        ("\\xZZ", "two hexadecimal digits, not 'ZZ'"),
        ("%z", "no such field: %z; the fields are %k, %v"),
        ("%T", "%T is not supported: it is the timestamp in kcat and the length of the topic in rpk; use %d"),
        ("%k{gzip}", "%k{gzip} is not a form; it takes raw, hex, base64, escape"),
        ("%p{big33}", "%p{big33} is not a form"),
        ("%k{", "for a brace itself write %k%{"),
        ("%d{strftime}", "write %d{strftime[LAYOUT]}"),
        ("%h{%k", "%h{ has no closing brace"),
        ("%h{}", "%h{} is empty"),
        ("%h{%p}", "%p is not a field of a header"),
        ("x" * 10_001, "-f has 10,001 characters"),
    ],
)
def test_invalid_formats_are_refused(kctl: Kctl, cluster: FakeCluster, record_format: str, reason: str) -> None:
    ran = kctl("consume orders -f", record_format)
    assert (ran.status, ran.out) == (2, "")
    assert reason in ran.err


@for_rows(
    "record_format, reason",
    [
        ("%p\\n", "it has neither %k nor %v"),
        ("%k%v\\n", "the end of %k is unknown: put text after it, or its size (%K) before it"),
        ("%k %v", "the end of %v is unknown: put text after it, or its size (%V) before it"),
        ("%p%k\\n", "the end of %p is unknown: put text after it, or give it a fixed width, such as %p{big32}"),
        ("%K%k%v\\n", "the end of %K is unknown"),
        ("%p0%v\\n", "the text after %p begins with '0', which may be part of it"),
        ("%p{hex}a%v\\n", "the text after %p{hex} begins with 'a'"),
        ("%d{rfc3339}:%v\\n", "the text after %d{rfc3339} begins with ':'"),
        ("%d{strftime[%F]} %v\\n", "%d{strftime[%F]} is not read; use %d or %d{rfc3339}"),
        ("%h %v %v{hex}\\n", "%v{hex} is the value again"),
        ("%v\\n%V\\n", "%V must precede the value"),
        ("%K %v\\n", "%K is the size of the key, which the format does not have"),
        ("%V %v{escape}\\n", "the sizes are of the unescaped bytes"),
        ("%k{escape}n%v\\n", "the text after %k{escape} begins with 'n', which may be part of it"),
        ("%h,%v\\n", "the text after %h begins with ',', which may be part of it"),
        ("%h{%k=%v;} %v\\n", "%H must precede %h{%k=%v;}"),
        ("%H %h{%k} %v\\n", "within %h{%k}: the end of %k is unknown"),
        ("%H %h{%v,} %v\\n", "within %h{%v,}: the name of the header, %k, is missing"),
        ("%h%v\\n", "the end of %h is unknown: put text after it"),
    ],
)
def test_ambiguous_formats_are_written_but_not_read(
    kctl: Kctl, orders: FakeCluster, record_format: str, reason: str
) -> None:
    assert kctl("consume orders -f", record_format).status == 0
    for command in ("produce orders -f", "consume orders --reversible -f"):
        ran = kctl(command, record_format)
        assert (ran.status, ran.out) == (2, "")
        assert f"produce cannot read this format: {reason}" in ran.err


@pytest.mark.parametrize(
    "record_format",
    [
        "%K %V %H %d %k%v%h{%K %V %k%v}\\n",
        "%k{escape}\\t%v{escape}\\t%h\\t%d\\n",
        "%K{big32}%k%V{big32}%v%h %d{rfc3339}\\n",
    ],
)
def test_what_consume_writes_produce_reads(
    orders: FakeCluster, output: Bytes, record_format: str, tmp_path: Path
) -> None:
    orders.create("copy")
    (tmp_path / "records").write_bytes(output("consume", "orders", "--reversible", "-f", record_format))
    assert main(["produce", "copy", "--file", str(tmp_path / "records"), "-f", record_format]) == 0
    assert orders.records_of("copy", 0) == orders.records_of("orders", 0)


def test_a_record_that_would_not_be_read_back_stops_a_reversible_read(kctl: Kctl, orders: FakeCluster) -> None:
    ran = kctl("consume orders --reversible -f", "%k %v{hex}\\n")
    assert (ran.status, ran.out) == (2, "k1 6c696e650a7769746809746162\n")
    assert "orders-0: produce -f would not read the record at offset 1 back as it is: the key is null" in ran.err
    ran = kctl("consume orders --reversible -f", "%v\\n")
    assert "offset 0 back as it is: it would be several records; use sizes (%K, %V), {escape}" in ran.err


def test_a_number_that_does_not_fit_is_an_error(kctl: Kctl, cluster: FakeCluster) -> None:
    (log,) = cluster.create("orders")
    log.append(build_batch([Record(0, 0, None, b"x" * 255)]))
    ran = kctl("consume orders -f", "%V{byte}%v")
    assert (ran.status, ran.out) == (2, "")
    assert "%V{byte}: the value size 255 is not between -1 and 254" in ran.err


@pytest.mark.parametrize(
    ("record_format", "data", "error"),
    [
        ("%k:%v\\n", b"a:1\nb", "standard input record 2: the input ends within the record, before ':'"),
        ("%K %k %v\\n", b"1 a x\n9", "standard input record 2: the input ends within the record, before ' '"),
        ("%K %k %v\\n", b"3 abc-x\n", "standard input record 1: ' ' expected, not '-'"),
        ("%p %v\\n", b"x y\n", "standard input record 1: 'x' is not a number"),
        ("%p %v\\n", b"1" * 30, "record 1: ' ' expected after at most 21 bytes"),
        ("%v{hex}\\n", b"6g\n", "record 1: '6g' is not valid hex"),
        ("%v{base64}\\n", b"a\n", "record 1: 'a' is not valid base64"),
        ("%v{escape}\\n", b"a\\q\n", "record 1: '\\q' is not an escape"),
        ("%d{rfc3339} %v\\n", b"yesterday x\n", "record 1: 'yesterday' is not a time in RFC 3339"),
        ("%V{big64}%v", b"\x7f" + b"\xff" * 7, f"longer than {FORMATTED_RECORD_BYTES_MAX:,} bytes"),
        (
            "%H{big32}%h{%k,}%v\\n",
            b"\x7f" * 4,
            f"2,139,062,143 headers; the greatest number is {FORMATTED_HEADERS_MAX:,}",
        ),
        ("%h %v\\n", b"\\xff=1 x\n", "the name of a header is not UTF-8"),
    ],
)
def test_input_that_is_not_in_the_format_is_named(
    kctl: Kctl, cluster: FakeCluster, record_format: str, data: bytes, error: str
) -> None:
    cluster.create("orders")
    with stdin(data):
        ran = kctl("produce orders -f", record_format)
    assert ran.status == 2
    assert error in ran.err


def test_a_field_without_its_delimiter_is_bounded() -> None:
    reader = FormatReader(parse_format("%v\\n"))
    block = b"x" * (16 << 20)
    for _ in range(FORMATTED_RECORD_BYTES_MAX // len(block)):
        assert list(reader.feed(block)) == []
    with pytest.raises(UsageError, match="longer than"):
        list(reader.feed(b"x"))


def test_the_last_delimiter_may_be_missing(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    with stdin(b"a:1\nb:2"):
        assert kctl("produce orders -f", "%k:%v\\n").status == 0
    assert [(record.key, record.value) for record in cluster.records_of("orders", 0)] == [(b"a", b"1"), (b"b", b"2")]


def test_partition_of_the_record_is_used_and_topic_and_offset_are_ignored(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=2)
    with stdin(b"elsewhere 7 1 a\n"):
        assert kctl("produce orders -f", "%t %o %p %v\\n").status == 0
    assert [record.value for record in cluster.records_of("orders", 1)] == [b"a"]
    with stdin(b"2 a\n"):
        ran = kctl("produce orders -f", "%p %v\\n")
    assert "standard input record 1: orders has no partition 2; it has 2" in ran.err


@for_rows(
    "options",
    [
        "consume orders -f %v --format jsonl",
        "consume orders -f %v --value-only",
        "consume orders -f %v --formatter offsets",
        "consume orders --value-only --format json",
        "consume orders --value-only --format csv",
        "consume orders --value-only --reversible",
        "consume orders --reversible",
        "consume orders --null-marker NULL",
        "produce orders -f %v\\n --input jsonl",
        "produce orders -f %v\\n --key-separator :",
    ],
)
def test_options_that_exclude_each_other(kctl: Kctl, cluster: FakeCluster, options: str) -> None:
    assert kctl(options).status == 2


def test_value_only_writes_the_bytes(orders: FakeCluster, output: Bytes) -> None:
    assert output("consume", "orders", "--value-only") == b"line\nwith\ttab\n\n\x1b[2J\n"
    assert output("consume", "orders", "--value-only", "--null-marker", "NULL", "--from", "1", "-n", "1") == b"NULL\n"


class Terminal(io.StringIO):
    """A text stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_data_is_escaped_on_a_terminal() -> None:
    terminal = Terminal()
    Console(terminal, Terminal()).data(b"a\n\x1b[2J\xff\n")
    assert terminal.getvalue() == "a\n\\x1b[2J\\xff\n"


@for_rows(
    "text, expected",
    [
        (
            '{"a":1.10,"b":[1e400,"x, {y}"],"a":{},"c":[]}',
            '{\n  "a": 1.10,\n  "b": [\n    1e400,\n    "x, {y}"\n  ],\n  "a": {},\n  "c": []\n}',
        ),
        ("[ ]", "[]"),
        (' {"a" : "\\"\\\\"} ', '{\n  "a": "\\"\\\\"\n}'),
        ("12", None),
        ('{"a":', None),
        ("[" * 100_000, None),
        ("[" * 500 + "]" * 500, None),
    ],
)
def test_json_is_indented_without_changing_it(text: str, expected: str | None) -> None:
    if text.startswith("[" * 500 + "]"):
        shown = indented(text)
        assert shown is not None
        assert "".join(shown.split()) == text
        return
    assert indented(text) == expected


def test_indentation_is_bounded() -> None:
    deep = "[" * 400 + ",".join("1" * 30_000) + "]" * 400
    assert len(deep) < INDENTED_CHARACTERS_MAX
    assert indented(deep) is None

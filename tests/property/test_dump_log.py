"""Dumping any log file ends and reports all damage, and two record readers agree."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kctl.commands.compat.dump_log import ClassicDump, ClassicOptions, as_text, classic_text
from kctl.commands.compat.texts.java import KAFKA_4, KAFKA_28
from kctl.commands.dump_log.rows import LineRows, Shown
from kctl.commands.dump_log.selection import Selection
from kctl.dump.batches import BatchLine, Problem
from kctl.dump.files import check_records, walk
from kctl.dump.kinds import kind_of
from kctl.output.console import Console, Format
from kctl.records.build import build_batch, encode_records
from kctl.records.compression import Codec
from kctl.records.dump_text import LineFormat, write_interpreted, write_records
from kctl.records.header import ATTRIBUTES_POSITION, HEADER_SIZE, BatchHeader, CorruptBatch, Record, parse_header, seal
from kctl.records.old_formats.legacy import build_messages
from tests.property.examples import share_of
from tests.property.walk_inputs import LONG_NUMBERS

NAME = "00000000000000000000.log"
COMPATS = (KAFKA_28, KAFKA_4)
BYTES = st.none() | st.binary(max_size=200) | st.text(max_size=80).map(str.encode)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 1 << 45), BYTES, BYTES, st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)
    ).map(lambda fields: Record(0, *fields)),
    min_size=1,
    max_size=5,
)
ODD = st.sampled_from(
    (b"-", b"--", b'""', b'"', b",", b"a,b", b"\\", b'{"a":"b\\\\c"}', b"\r\n", b"\x7f", "\u202e".encode())
)
TIMES = st.sampled_from((0, -1, -60_001, 59_999, 60_000, 1_700_000_000_123, 253_402_300_800_000, 1 << 60))
RELAXED = settings(
    max_examples=share_of(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def classic(path: Path, compat: str, *, fast: bool) -> tuple[str, bool]:
    """Text and whether an error was found, through the slow reference parser."""
    out = io.StringIO()
    text = classic_text("string")

    def slow(record: Record) -> tuple[str | None, str | None]:
        return None if record.key is None else text(record.key), None if record.value is None else text(record.value)

    parser = as_text if fast else slow
    options = ClassicOptions(
        deep=True, parser=parser, skip_metadata=False, verify_only=False, sanity_only=False, max_bytes=None
    )
    dump = ClassicDump(Console(out, io.StringIO()), compat, options)
    dump.show(str(path))
    dump.finish()
    return out.getvalue(), dump.has_problem


@RELAXED
@given(st.lists(st.tuples(RECORDS, st.sampled_from(Codec), st.integers(-1, 2**31 - 1)), min_size=1, max_size=4))
@pytest.mark.parametrize("compat", COMPATS)
def test_fast_record_reader_agrees_with_the_reference_reader(
    tmp_path: Path, compat: str, batches: list[tuple[list[Record], Codec, int]]
) -> None:
    path, offset, data = tmp_path / NAME, 0, b""
    for records, codec, sequence in batches:
        producer: dict[str, Any] = (
            {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence} if sequence >= 0 else {}
        )
        data += build_batch(records, base_offset=offset, codec=codec, **producer)
        offset += len(records) + 1
    path.write_bytes(data)
    assert classic(path, compat, fast=True) == classic(path, compat, fast=False)


def written(
    write_lines: Callable[..., int], region: bytes, header: BatchHeader, form: LineFormat
) -> tuple[object, ...]:
    """The text, the gaps between offsets, and the result or the error."""
    pieces: list[str] = []
    gaps: list[tuple[int, int]] = []
    try:
        result: object = write_lines(region, header, 2, gaps, pieces.append, form)
    except CorruptBatch as error:
        result = str(error)
    return "".join(pieces), gaps, result


@RELAXED
@given(RECORDS, st.data(), st.booleans(), st.booleans(), st.sampled_from((0, 8)))
def test_lines_of_damaged_records_are_the_same_without_a_compiler(
    records: list[Record], data: st.DataObject, is_28: bool, with_contents: bool, attributes: int
) -> None:
    numbered = [(at * data.draw(st.integers(1, 2)), record) for at, record in enumerate(records)]
    region = bytearray(encode_records(numbered, 1 << 41))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(region) - 1))
        region[at : at + 1] = data.draw(st.sampled_from((*LONG_NUMBERS, b"", b"\x00", b"\x01", b"\xff", b"\xc3\xa9")))
    count = len(records) + data.draw(st.sampled_from((0, 0, 1, -1)))
    base_offset = data.draw(st.sampled_from((7, 98, 998, 99_999, 999_998, -2)))
    base_timestamp = data.draw(st.sampled_from((1 << 41, 0, -1, (1 << 63) - 1)))
    base_sequence = data.draw(st.sampled_from((-1, 0, (1 << 31) - 2)))
    fields = (base_offset, 0, 0, 2, 0, attributes, count - 1, base_timestamp, 77, -1, -1, base_sequence, count)
    header = BatchHeader(0, fields)
    form = LineFormat(is_28, stamp="T", common=" common", with_contents=with_contents)
    found = written(write_records, bytes(region), header, form)
    assert found == written(write_interpreted, bytes(region), header, form)


@pytest.mark.parametrize("write_lines", [write_records, write_interpreted])
def test_numbers_with_bits_beyond_their_type_are_written_as_java_reads_them(write_lines: Callable[..., int]) -> None:
    numbers = [b"\xff" * 9 + b"\x7f", b"\xff" * 4 + b"\x7f", b"\x03", b"\x02v", b"\0"]
    body = b"\0" + b"".join(numbers)  # timestamp, offset, a key of -2 bytes, a value, no headers
    header = BatchHeader(0, (0, 0, 0, 2, 0, 0, 0, -1, 77, -1, -1, -1, 1))
    form = LineFormat(is_28=False, stamp="T", common="", with_contents=True)
    text, _, _ = written(write_lines, bytes((2 * len(body),)) + body, header, form)
    assert text == (
        f"| offset: {-1 << 31} T: {(1 << 63) - 1} keySize: -1 valueSize: 1 sequence: -1 headerKeys: [] payload: v\n"
    )


@pytest.mark.parametrize("write_lines", [write_records, write_interpreted])
def test_names_of_headers_that_are_not_utf_8_are_written_as_java_reads_them(write_lines: Callable[..., int]) -> None:
    body = bytes.fromhex("00 00 00 02 6b 02 76 02 04 ff61 01")  # one header, named ff 61, without a value
    header = BatchHeader(0, (0, 0, 0, 2, 0, 0, 0, 0, 77, -1, -1, -1, 1))
    form = LineFormat(is_28=False, stamp="T", common="", with_contents=False)
    text, _, _ = written(write_lines, bytes((2 * len(body),)) + body, header, form)
    assert text == "| offset: 0 T: 0 keySize: 1 valueSize: 1 sequence: -1 headerKeys: [\ufffda]\n"


EVERY_OFFSET = range(-(1 << 63), 1 << 63)
"""A damaged delta may make an offset negative."""


def rows_of(path: Path, shape: Format, selection: Selection) -> tuple[str, bool]:
    """The rows of records and errors, and whether there are errors."""
    out = io.StringIO()
    shown = Shown(selection, records=True, only_problems=False, decode=None, key_decoder=None, value_decoder=None)
    rows = LineRows(shown)
    rows.show(Console(out, io.StringIO(), format=shape), str(path), kind_of(str(path)), walk(str(path)))
    lines = out.getvalue().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith('{"type":"batch"')), rows.has_problem


@RELAXED
@given(st.data(), st.lists(st.tuples(ODD, ODD), max_size=4), RECORDS, st.sampled_from((-1, (1 << 31) - 2)))
@pytest.mark.parametrize("shape", [Format.PLAIN, Format.CSV, Format.JSONL])
def test_rows_of_whole_batches_are_those_of_their_records(
    tmp_path: Path,
    shape: Format,
    data: st.DataObject,
    odd: list[tuple[bytes, bytes]],
    more: list[Record],
    sequence: int,
) -> None:
    """With a selection, even of all records, each record is a row by itself."""
    records = [*(Record(0, data.draw(TIMES), *pair, ()) for pair in odd), *more]
    producer: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
    if sequence < 0:
        producer = {}
    batch = bytearray(build_batch(records, base_offset=97, **producer))
    for _ in range(data.draw(st.sampled_from((0, 0, 1, 2)))):
        at = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    batch[ATTRIBUTES_POSITION + 1] |= data.draw(st.sampled_from((0, 8)))
    seal(batch, parse_header(batch))
    folder = tmp_path / 'or,d"\\ers-3'
    folder.mkdir(exist_ok=True)
    path = folder / NAME
    path.write_bytes(batch)
    assert rows_of(path, shape, Selection()) == rows_of(path, shape, Selection(offsets=EVERY_OFFSET))


@RELAXED
@given(st.data())
def test_damage_is_always_reported_and_never_fatal(tmp_path: Path, data: st.DataObject) -> None:
    parts = []
    for number in range(4):
        records = [Record(number * 3 + at, at, b"key", b"value" * 20, (("h", b"x"),)) for at in range(3)]
        is_old = data.draw(st.booleans())
        parts.append(
            build_messages(records, magic=1, codec=Codec.GZIP)
            if is_old
            else build_batch(records, base_offset=number * 3, codec=data.draw(st.sampled_from(Codec)))
        )
    content = bytearray(b"".join(parts))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    path = tmp_path / NAME
    path.write_bytes(content)
    lines = list(walk(str(path)))
    covered = sum(line.header.size for line in lines if isinstance(line, BatchLine))
    damaged = [line for line in lines if isinstance(line, Problem)]
    positions = {(line.position, line.size) for line in damaged if line.size}
    batches = {(line.header.position, line.header.size) for line in lines if isinstance(line, BatchLine)}
    assert covered + sum(size or 0 for _, size in positions - batches) == len(content)
    for line in lines:
        if isinstance(line, BatchLine):
            check_records(line)
    for compat in COMPATS:
        classic(path, compat, fast=True)
        classic(path, compat, fast=False)

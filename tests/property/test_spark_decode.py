"""The vectorised decoder agrees with the record reader for any batches."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.build import build_batch, rebuild_batch
from kctl.records.compression import Codec
from kctl.records.header import BatchHeader, CorruptBatch, Record, TimestampType, parse_header, seal

pytest.importorskip("pyarrow")

import numpy as np

from kctl.tables.exec.decoding.decode import TIMESTAMP_MS_MAX, decode
from kctl.tables.exec.outcome import CorruptRecords
from kctl.tables.exec.reading import locate
from kctl.tables.exec.reading.chunk import Chunk, chunks

TIMESTAMPS = st.one_of(st.integers(1_600_000_000_000, 1_600_000_100_000), st.just(-1), st.integers(-(2**62), 2**62 - 1))
BYTES = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=60, max_size=300))
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)


@st.composite
def batch_lists(draw: st.DrawFn) -> list[bytes]:
    """Batches as a log holds them: ascending offsets, gaps between and (after compaction) inside them."""
    batches = []
    next_offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 6))):
        base_offset = next_offset + draw(st.sampled_from([0, 0, 1, 1000]))
        records = draw(
            st.lists(st.builds(Record, st.just(0), TIMESTAMPS, BYTES, BYTES, HEADERS), min_size=1, max_size=8)
        )
        records *= draw(st.sampled_from([1, 1, 1, 30]))
        timestamp_type = draw(st.sampled_from(TimestampType))
        batch = build_batch(
            records, base_offset=base_offset, codec=draw(st.sampled_from(Codec)), timestamp_type=timestamp_type
        )
        next_offset = base_offset + len(records)
        if draw(st.booleans()):
            kept = draw(st.sets(st.integers(0, len(records) - 1)))
            batch = _compacted(batch, kept)
        batches.append(batch)
    return batches


@given(batch_lists(), st.sampled_from([1, 100, 5_000, 4 << 20]), st.booleans())
def test_spark_decoder_agrees_with_the_record_reader(
    batches: list[bytes], chunk_bytes: int, include_headers: bool
) -> None:
    data = memoryview(b"".join(batches))
    expected = [
        _row(record, header.timestamp_type, include_headers)
        for header in iterate_batches(data)
        for record in iterate_records(data, header)
    ]
    assert _decoded(data, 0, 2**62, chunk_bytes, include_headers) == expected


@given(batch_lists(), st.integers(-5, 260), st.integers(0, 260))
def test_only_offsets_of_the_range_are_decoded(batches: list[bytes], lead: int, width: int) -> None:
    data = memoryview(b"".join(batches))
    start = (parse_header(data).base_offset if batches else 0) + lead
    whole = _decoded(data, -1, 2**62, 4 << 20, include_headers=False)
    part = _decoded(data, start, start + width, 4 << 20, include_headers=False)
    assert part == [row for row in whole if start <= row["offset"] < start + width]


@given(batch_lists().filter(bool), st.data())
def test_damaged_records_are_refused_or_read_as_the_record_reader_reads_them(
    batches: list[bytes], data: st.DataObject
) -> None:
    """The checksum is made right again, as a broken producer would do: the decoder itself must hold."""
    damaged = bytearray(batches[0])
    header = parse_header(damaged)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(57, len(damaged) - 1))
        damaged[position] = data.draw(st.one_of(st.sampled_from([0x00, 0x01, 0x7F, 0x80, 0xFF]), st.integers(0, 255)))
    seal(damaged, header)
    (count,) = struct.unpack_from(">i", damaged, 57)
    if count > 1000:
        damaged[57:61] = struct.pack(">i", 1000)
        seal(damaged, header)
    buffer = memoryview(bytes(damaged))
    try:
        rows = _decoded(buffer, -(2**63), 2**63 - 1, 4 << 20, include_headers=True)
    except CorruptRecords:
        rows = None
    (chunk,) = _chunks_or_nothing(buffer) or (None,)
    if chunk is not None:
        assert _located(locate.locate_with_walk, chunk) == _located(locate.locate_with_numpy, chunk)
    if rows is None:
        return
    reason = None
    try:
        expected = [_row(record, header.timestamp_type, include_headers=True) for record in iterate_records(buffer)]
    except CorruptBatch as error:
        reason = error.reason
    if reason is None:
        assert rows == expected
    else:
        assert "can't decode" in reason  # a header key that is not UTF-8, which is replaced here


def _chunks_or_nothing(data: memoryview) -> list[Chunk]:
    try:
        return list(chunks(data, list(iterate_batches(data))))
    except CorruptRecords:
        return []


def _located(locate_fields: Callable[[Chunk], locate.Fields], chunk: Chunk) -> list[list[int]] | None:
    """The numbers of all records; None if the records are refused."""
    try:
        fields = locate_fields(chunk)
    except CorruptRecords:
        return None
    return [
        np.asarray(numbers).tolist()
        for numbers in (
            fields.timestamp_deltas,
            fields.offset_deltas,
            *fields.keys,
            *fields.values,
            fields.headers,
            fields.ends,
        )
    ]


def _compacted(batch: bytes, kept: set[int]) -> bytes:
    header = parse_header(batch)
    return rebuild_batch(header, [r for i, r in enumerate(iterate_records(batch)) if i in kept])


def _decoded(data: memoryview, start: int, end: int, chunk_bytes: int, include_headers: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for chunk in chunks(data, list(iterate_batches(data)), size=chunk_bytes):
        batch = decode(chunk, topic="orders", partition=3, start=start, end=end, include_headers=include_headers)
        batch.validate(full=True)
        timestamps = batch.column("timestamp").view("int64").to_pylist()
        without_time = batch.drop_columns(["timestamp"]).to_pylist()
        rows += [row | {"timestamp": us} for row, us in zip(without_time, timestamps, strict=True)]
    return rows


def _row(record: Record, timestamp_type: TimestampType, include_headers: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 3,
        "offset": record.offset,
        "timestamp": min(max(_as_int64(record.timestamp), -TIMESTAMP_MS_MAX), TIMESTAMP_MS_MAX) * 1000,
        "timestampType": int(timestamp_type),
    }
    if include_headers:
        row["headers"] = [{"key": key, "value": value} for key, value in record.headers] or None
    return row


def _as_int64(value: int) -> int:
    """Sums of 64 bits wrap in numpy as they do in Java."""
    return (value + 2**63) % 2**64 - 2**63


def test_a_missing_timestamp_stays_a_millisecond_before_1970() -> None:
    data = memoryview(build_batch([Record(0, -1, b"k", b"v")]))
    (chunk,) = chunks(data, list(iterate_batches(data)))
    batch = decode(chunk, topic="t", partition=0, start=0, end=1)
    assert batch.column("timestamp").to_pylist() == [datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)]


def test_a_header_key_that_is_not_utf_8_gets_replacement_characters() -> None:
    batch = build_batch([Record(0, 0, None, None, (("abc", b"x"),))])
    damaged = bytearray(batch.replace(b"abc", b"a\xffc"))
    seal(damaged, parse_header(damaged))
    data = memoryview(damaged)
    (chunk,) = chunks(data, list(iterate_batches(data)))
    decoded = decode(chunk, topic="t", partition=0, start=0, end=1, include_headers=True)
    assert decoded.column("headers").to_pylist() == [[{"key": "a�c", "value": b"x"}]]


@pytest.mark.parametrize("locate_fields", [locate.locate_with_walk, locate.locate_with_numpy])
def test_bits_beyond_64_are_ignored_and_a_number_of_eleven_bytes_is_corrupt(
    locate_fields: Callable[[Chunk], locate.Fields],
) -> None:
    """As Kafka's ByteUtils.readVarlong."""
    (chunk,) = chunks(*_with_timestamp_delta(b"\x80" * 9 + b"\x02"))
    assert locate_fields(chunk).timestamp_deltas.tolist() == [0]
    (chunk,) = chunks(*_with_timestamp_delta(b"\x80" * 10 + b"\x00"))
    with pytest.raises(CorruptRecords, match="too many bytes"):
        locate_fields(chunk)


def _with_timestamp_delta(number: bytes) -> tuple[memoryview, list[BatchHeader]]:
    batch = build_batch([Record(0, 0, None, None)])
    body = b"\0" + number + bytes([0, 1, 1, 0])
    damaged = bytearray(batch[:61] + bytes([2 * len(body)]) + body)
    damaged[8:12] = struct.pack(">i", len(damaged) - 12)
    seal(damaged, parse_header(damaged))
    return memoryview(damaged), list(iterate_batches(damaged))


@pytest.mark.long
@given(batch_lists(), st.sampled_from([1, 5_000, 4 << 20]))
def test_the_walk_and_numpy_find_the_same_fields(batches: list[bytes], chunk_bytes: int) -> None:
    data = memoryview(b"".join(batches))
    for chunk in chunks(data, list(iterate_batches(data)), size=chunk_bytes):
        assert _located(locate.locate_with_walk, chunk) == _located(locate.locate_with_numpy, chunk)


def test_a_checksum_that_does_not_match_is_corrupt() -> None:
    data = bytearray(build_batch([Record(0, 0, b"k", b"v")]))
    data[-2] ^= 1
    with pytest.raises(CorruptRecords, match="checksum"):
        list(chunks(memoryview(data), list(iterate_batches(data))))

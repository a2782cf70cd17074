"""Messages of magic 0 and 1 against kafka-python's builder and reader, and with random damage."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import ApiError
from kctl.records.batch import crc_ok, iterate_batches, iterate_records, parse_any_header
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import CorruptBatch, Record, TimestampType
from kctl.records.old_formats.conversion import downgrade, upgrade, upgrade_stored
from kctl.records.old_formats.legacy import build_messages, look_inside

pytest.importorskip("xxhash", reason="kafka-python needs xxhash for the lz4 frames of magic 0")
legacy_records = pytest.importorskip("kafka.record.legacy_records")

MAGICS = st.sampled_from([0, 1])
CODECS = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
TIMESTAMPS = st.one_of(st.just(-1), st.integers(0, 2**62))
BYTES = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=1000, max_size=1001))
SIZE_MAX = 1 << 20


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Records with ascending offsets and gaps between them."""
    offset = draw(st.integers(1, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 10))):
        records.append(Record(offset, draw(TIMESTAMPS), draw(BYTES), draw(BYTES)))
        offset += draw(st.sampled_from([1, 1, 1, 100]))
    return records


def read(data: bytes) -> list[Record]:
    return [record for header in iterate_batches(data) for record in iterate_records(data, header)]


def plain(records: list[Record], magic: int) -> list[Record]:
    return [record if magic else record._replace(timestamp=-1) for record in records]


def kafka_python_reads(data: bytes) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    found = []
    for header in iterate_batches(data):
        batch = legacy_records.LegacyRecordBatch(data[header.position : header.end], header.magic)
        assert batch.validate_crc()
        for record in batch:
            assert record.validate_crc()
            found.append((record.offset, record.timestamp, record.key, record.value))
    return found


@given(record_lists(), MAGICS, CODECS)
def test_kafka_python_reads_messages_built_here(records: list[Record], magic: int, codec: Codec) -> None:
    data = build_messages(records, magic=magic, codec=codec)
    expected = [(r.offset, r.timestamp if magic else None, r.key, r.value) for r in records]
    assert kafka_python_reads(data) == expected


@given(record_lists(), MAGICS, CODECS)
def test_messages_built_by_kafka_python_are_read_and_converted(records: list[Record], magic: int, codec: Codec) -> None:
    builder = legacy_records.LegacyRecordBatchBuilder(magic, codec, 1 << 30)
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value)
    data = bytes(builder.build())
    expected = [record._replace(offset=index) for index, record in enumerate(plain(records, magic))]
    assert read(data) == expected
    assert all(crc_ok(data, header) for header in iterate_batches(data))
    assert read(upgrade(data, codec=None, max_message_bytes=1 << 20)) == expected


@given(record_lists(), MAGICS)
def test_uncompressed_messages_equal_kafka_pythons_byte_for_byte(records: list[Record], magic: int) -> None:
    theirs = b""
    for record in records:
        builder = legacy_records.LegacyRecordBatchBuilder(magic, 0, 1 << 30)
        builder.append(record.offset, record.timestamp, record.key, record.value)
        theirs += bytes(builder.build())
    assert build_messages(records, magic=magic) == theirs


@given(st.lists(record_lists(), max_size=4), MAGICS, CODECS, st.integers(0, 5000), st.sampled_from(TimestampType))
@pytest.mark.long
def test_down_conversion_preserves_records(
    batches: list[list[Record]], magic: int, codec: Codec, size_max: int, timestamp_type: TimestampType
) -> None:
    stored, base = b"", 0
    for records in batches:
        stored += build_batch(records, base_offset=base, codec=codec, timestamp_type=timestamp_type)
        base += len(records)
    messages, next_offset = downgrade(stored, magic, first_offset=0, size_max=size_max)
    expected = plain(read(stored), magic)
    got = read(messages)
    assert got == expected[: len(got)]
    assert next_offset == len(got)
    assert got or not batches
    assert len(got) == len(expected) or len(messages) > 0
    assert kafka_python_reads(messages) == [(r.offset, r.timestamp if magic else None, r.key, r.value) for r in got]


@given(record_lists(), MAGICS, CODECS)
def test_a_stored_message_is_the_same_as_a_batch(records: list[Record], magic: int, codec: Codec) -> None:
    data = build_messages(records, magic=magic, codec=codec)
    batches = [upgrade_stored(data, header) for header in iterate_batches(data)]
    assert read(b"".join(batches)) == plain(records, magic)
    for header, batch in zip(iterate_batches(data), batches, strict=True):
        look_inside(data, header)
        other = parse_any_header(batch)
        assert (header.base_offset, header.last_offset) == (other.base_offset, other.last_offset)
        assert (header.max_timestamp, header.record_count) == (other.max_timestamp, other.record_count)


@given(record_lists(), MAGICS, CODECS, st.data())
def test_damaged_messages_raise_only_the_documented_errors(
    records: list[Record], magic: int, codec: Codec, data: st.DataObject
) -> None:
    damaged = bytearray(build_messages(records, magic=magic, codec=codec))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(damaged) - 1))
        damaged[position] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    takes: tuple[Callable[[], object], ...] = (
        lambda: [record for header in iterate_batches(damaged) for record in iterate_records(damaged, header)],
        lambda: [look_inside(damaged, header) for header in iterate_batches(damaged)],  # type: ignore[func-returns-value]  # only that it ends matters
        lambda: downgrade(damaged, 0, first_offset=0, size_max=SIZE_MAX),
        lambda: upgrade(damaged, codec=None, max_message_bytes=SIZE_MAX),
    )
    for take in takes:
        try:
            take()
        except (CorruptBatch, ApiError):
            continue


@given(st.binary(max_size=200), MAGICS)
def test_random_bytes_raise_only_the_documented_errors(noise: bytes, magic: int) -> None:
    data = bytearray(noise)
    data[16:17] = bytes([magic])
    for take in (lambda: read(bytes(data)), lambda: upgrade(data, codec=None, max_message_bytes=SIZE_MAX)):
        try:
            take()
        except (CorruptBatch, ApiError):
            continue

"""Memory use of a compaction, and the batches it writes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from kctl.records.batch import crc_ok, iterate_records, parse_any_header
from kctl.records.build import build_batch
from kctl.records.compiled.key_table import LONG_KEY_SIZE
from kctl.records.compression import Codec
from kctl.records.header import CorruptBatch, Record, TimestampType, parse_header, seal
from kctl.records.old_formats.legacy import build_messages
from kctl.storage.cleaning.compaction_batches import LatestRecords
from tests.rows import for_rows

SECRET = bytes(32)


def batches_of(keys: list[bytes], per_batch: int) -> Iterator[memoryview]:
    for base in range(0, len(keys), per_batch):
        records = [Record(0, 1000, key, b"value") for key in keys[base : base + per_batch]]
        yield memoryview(build_batch(records, base_offset=base))


@pytest.mark.parametrize("key_size", [8, 20, LONG_KEY_SIZE - 1, 300])
def test_memory_use_stays_within_the_estimate(key_size: int) -> None:
    count = 51_000  # About half of the hash tables have grown, after which a key takes the most memory.
    batches = list(batches_of([b"%0*d" % (key_size, number) for number in range(count)], 100))
    latest = LatestRecords(0, memory_bytes=1 << 30, secret=SECRET)
    tracemalloc.start()
    try:
        for batch in batches:
            latest.add(parse_header(batch), batch)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(latest) == count
    assert 0.5 * latest.memory_bytes < used < 1.1 * latest.memory_bytes


def test_memory_is_bounded_by_records_and_by_keys() -> None:
    latest = LatestRecords(0, memory_bytes=400, secret=SECRET)
    taken = 0
    for batch in batches_of([b"same"] * 1000, 10):
        latest.add(parse_header(batch), batch)
        taken += 10
        if latest.is_full:
            break
    assert len(latest) == 1
    assert taken < 200
    assert latest.end_offset == taken


def test_long_keys_that_differ_in_their_last_byte_are_different() -> None:
    key = b"k" * 200
    latest = LatestRecords(0, memory_bytes=1 << 20, secret=SECRET)
    (batch,) = batches_of([key + b"1", key + b"2", key + b"1"], 3)
    header = parse_header(batch)
    latest.add(header, batch)
    left = latest.filter(header, batch, drops_tombstones=False)
    assert left is not None
    assert [record.offset for record in iterate_records(left)] == [1, 2]


def test_a_batch_that_loses_nothing_is_the_same_bytes_and_is_not_unpacked() -> None:
    batch = memoryview(build_batch([Record(0, 0, b"a", b"1"), Record(1, 0, b"b", b"1")], codec=Codec.ZSTD))
    header = parse_header(batch)
    latest = LatestRecords(0, memory_bytes=1 << 20, secret=SECRET)
    latest.add(header, batch)
    unreadable = bytearray(batch)
    unreadable[61:] = bytes(len(unreadable) - 61)
    assert latest.filter(header, memoryview(unreadable), drops_tombstones=False) == bytes(unreadable)


@for_rows("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@for_rows("magic", [0, 1])
def test_messages_of_old_formats_lose_the_records_that_are_overwritten(magic: int, codec: Codec) -> None:
    old = build_messages([Record(0, 5, b"a", b"1"), Record(1, 5, b"b", b"1")], magic=magic, codec=codec)
    new = [memoryview(build_batch([Record(0, 5, key, b"2")], base_offset=at)) for at, key in ((2, b"a"), (3, b"b"))]
    for overwritten, is_kept in ((new[:1], True), (new, False)):
        latest = LatestRecords(0, memory_bytes=1 << 20, secret=SECRET)
        position = 0
        old_batches = []
        while position < len(old):
            header = parse_any_header(old, position)
            old_batches.append(memoryview(old)[position : header.end])
            position = header.end
        for batch in (*old_batches, *overwritten):
            latest.add(parse_any_header(batch), batch)
        left = [latest.filter(parse_any_header(batch), batch, drops_tombstones=False) for batch in old_batches]
        if codec is Codec.NONE:
            assert left == [None, old_batches[1] if is_kept else None]
        elif is_kept:
            assert left[0] is not None
            kept = parse_any_header(left[0])
            assert (kept.magic, kept.codec, kept.next_offset) == (magic, codec, 2)
            assert list(iterate_records(left[0])) == [Record(1, 5 if magic else -1, b"b", b"1")]
        else:
            assert left == [None]


@pytest.mark.parametrize("timestamp_type", list(TimestampType))
@pytest.mark.parametrize("magic", [0, 1])
def test_a_deleted_key_of_an_old_wrapper_does_not_return_without_its_tombstone(
    magic: int, timestamp_type: TimestampType
) -> None:
    records = [Record(at, 5, b"k%d" % at, b"v") for at in range(10, 15)]
    old = memoryview(build_messages(records, magic=magic, codec=Codec.GZIP, timestamp_type=timestamp_type))
    tombstones = memoryview(build_batch([Record(0, 5, b"k10"), Record(1, 5, b"k14")], base_offset=20))
    latest = LatestRecords(0, memory_bytes=1 << 20, secret=SECRET)
    for batch in (old, tombstones):
        latest.add(parse_any_header(batch), batch)
    assert latest.filter(parse_any_header(tombstones), tombstones, drops_tombstones=True) is None
    left = latest.filter(parse_any_header(old), old, drops_tombstones=True)
    assert left is not None
    assert crc_ok(left)
    assert [(record.offset, record.key) for record in iterate_records(left)] == [
        (11, b"k11"),
        (12, b"k12"),
        (13, b"k13"),
    ]
    assert parse_any_header(left).next_offset == 14
    if magic:
        assert parse_any_header(left).timestamp_type is timestamp_type


@pytest.mark.parametrize("magic", [0, 1])
def test_a_tombstone_of_an_old_format_is_removed_after_its_retention(magic: int) -> None:
    batch = memoryview(build_messages([Record(0, 5, b"a", None)], magic=magic))
    header = parse_any_header(batch)
    latest = LatestRecords(0, memory_bytes=1 << 20, secret=SECRET)
    latest.add(header, batch)
    assert latest.filter(header, batch, drops_tombstones=False) == batch
    assert latest.filter(header, batch, drops_tombstones=True) is None


def test_tombstones_are_found_among_the_clean_and_the_dirty() -> None:
    records = [Record(0, 0, b"k%d" % at, None if at % 2 else b"v", (("h", b"1"),)) for at in range(6)]
    batch = memoryview(build_batch(records))
    header = parse_header(batch)
    for start_offset in (0, 6):
        latest = LatestRecords(start_offset, memory_bytes=1 << 20, secret=SECRET)
        latest.add(header, batch)
        latest.end_offset = 6
        left = latest.filter(header, batch, drops_tombstones=True)
        assert left is not None
        assert [record.offset for record in iterate_records(left)] == [0, 2, 4]


def test_the_largest_timestamp_is_that_of_what_is_left() -> None:
    times = [1000, 1_000_000, 5, 70_000, 4000]
    records = [Record(0, at, key, b"") for at, key in zip(times, (b"a", b"b", b"c", b"d", b"b"), strict=True)]
    batch = memoryview(build_batch(records))
    header = parse_header(batch)
    latest = LatestRecords(0, memory_bytes=1 << 20, secret=SECRET)
    latest.add(header, batch)
    left = latest.filter(header, batch, drops_tombstones=False)
    assert left is not None
    assert parse_header(left).max_timestamp == 70_000
    assert [record.timestamp for record in iterate_records(left)] == [1000, 5, 70_000, 4000]


def test_malformed_records_are_reported_with_their_position() -> None:
    batch = bytearray(build_batch([Record(0, 0, b"a", b"1")]))
    batch[61] = 0x7F
    seal(batch, parse_header(batch))
    header = parse_header(batch)
    header.position = 4711
    latest = LatestRecords(0, memory_bytes=1 << 20, secret=SECRET)
    with pytest.raises(CorruptBatch) as caught:
        latest.add(header, memoryview(batch))
    assert caught.value.position == 4711


def test_offsets_that_go_back_are_refused() -> None:
    first, second = batches_of([b"a", b"b"], 1)
    latest = LatestRecords(0, memory_bytes=1 << 20, secret=SECRET)
    latest.add(parse_header(second), second)
    with pytest.raises(CorruptBatch, match="offset 0 follows 1"):
        latest.add(parse_header(first), first)

"""Comparison of what replicas hold."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.topics.replicas import compare_batches, compare_records
from kctl.records.build import build_batch
from kctl.records.header import HEADER_SIZE, Record, parse_header, seal


def batches(*sizes: int, start: int = 0) -> bytes:
    """Batches of so many records."""
    data = b""
    for size in sizes:
        records = [Record(0, 1000 + start + number, b"k", b"value %d" % (start + number)) for number in range(size)]
        data += build_batch(records, base_offset=start)
        start += size
    return data


def views(*replicas: bytes) -> dict[int, memoryview]:
    return {number: memoryview(data) for number, data in enumerate(replicas)}


def test_equal_replicas_have_no_difference() -> None:
    data = batches(3, 2, 4)
    found = compare_batches(views(data, data, data), 0, 9)
    assert (found.next_offset, found.compared_bytes, found.difference) == (9, len(data), None)


def test_only_batches_that_all_replicas_have_are_compared() -> None:
    data = batches(3, 2, 4)
    first = len(batches(3))
    assert compare_batches(views(data, data[: first + 20]), 0, 9).next_offset == 3
    assert compare_batches(views(data, b""), 0, 9).next_offset == 0


def test_batches_after_the_end_are_not_compared() -> None:
    same, other = batches(3, 2), batches(3) + batches(1, start=3)
    assert compare_batches(views(same, other), 0, 3).difference is None
    found = compare_batches(views(same, other), 0, 5).difference
    assert found is not None
    assert found.offset == 3
    assert found.reason == "replica 0 has a batch of offsets 3 to 4, replica 1 one of 3 to 3"


def test_records_before_the_start_are_not_compared() -> None:
    """A broker returns the whole batch that contains the offset."""
    assert compare_batches(views(batches(3, 2), batches(2, start=3)), 3, 5).next_offset == 5


@given(st.data())
def test_any_changed_byte_is_found_and_its_replica_named(data: st.DataObject) -> None:
    intact = batches(2, 3, 2)
    batch_start = len(batches(2))
    covered = range(batch_start + 21, batch_start + parse_header(intact, batch_start).size)
    position = data.draw(st.sampled_from(covered))
    damaged = bytearray(intact)
    damaged[position] ^= data.draw(st.integers(1, 255))
    found = compare_batches(views(intact, bytes(damaged), intact), 0, 7)
    assert found.difference is not None
    assert (found.next_offset, found.difference.offset, found.difference.damaged) == (2, 2, (1,))
    assert found.difference.reason == "wrong checksum of the batch on replica 1"


def test_other_records_with_a_right_checksum_differ() -> None:
    changed = bytearray(batches(3))
    changed[-1] ^= 1
    seal(changed, parse_header(changed))
    found = compare_batches(views(batches(3), bytes(changed)), 0, 3).difference
    assert found is not None
    assert (found.reason, found.damaged) == ("replicas 0 and 1 have different bytes", ())
    assert found.held[0].checksum != found.held[1].checksum


def test_a_header_that_is_no_batch_is_a_difference() -> None:
    broken = bytearray(batches(3))
    broken[16] = 9
    found = compare_batches(views(batches(3), bytes(broken)), 0, 3).difference
    assert found is not None
    assert found.reason == "replica 1: unknown magic 9"
    assert list(found.held) == [0]


def test_cleaned_replicas_are_equal_in_the_records_that_both_have() -> None:
    every, cleaned = batches(1, 1, 1, 1), batches(1) + batches(1, 1, start=2)
    assert compare_batches(views(every, cleaned), 0, 4).difference is not None
    found = compare_records(views(every, cleaned), 0, 4)
    assert (found.next_offset, found.difference) == (4, None)
    assert compare_records(views(every, b""), 0, 4).next_offset == 4
    assert compare_records(views(b"", b""), 0, 4).next_offset == 4


def test_a_changed_record_of_a_cleaned_replica_is_found() -> None:
    changed = bytearray(batches(1) + batches(1, start=2))
    changed[-2] ^= 1
    seal(memoryview(changed)[len(batches(1)) :], parse_header(changed[len(batches(1)) :]))
    found = compare_records(views(batches(1, 1, 1), bytes(changed)), 0, 3).difference
    assert found is not None
    assert found.offset == 2
    assert found.reason == "replicas 0 and 1 have different records at offset 2"
    assert {batch.base_offset for batch in found.held.values()} == {2}


def test_a_damaged_batch_of_a_cleaned_replica_is_found() -> None:
    damaged = bytearray(batches(1, 1))
    damaged[-1] ^= 1
    found = compare_records(views(batches(1, 1), bytes(damaged)), 0, 2).difference
    assert found is not None
    assert (found.offset, found.damaged) == (1, (1,))


@given(st.lists(st.binary(max_size=200), min_size=2, max_size=3), st.integers(0, 3))
def test_arbitrary_bytes_raise_nothing(replicas: list[bytes], start: int) -> None:
    for compare in (compare_batches, compare_records):
        found = compare(views(*replicas), start, 10)
        assert found.next_offset <= 10


@given(st.binary(max_size=40))
def test_a_batch_of_arbitrary_records_raises_nothing(tail: bytes) -> None:
    data = bytearray(batches(3)[:HEADER_SIZE] + tail)
    struct.pack_into(">i", data, 8, len(data) - 12)
    seal(data, parse_header(data))
    found = compare_records(views(bytes(data), batches(3)), 0, 3)
    assert found.difference is not None or tail == batches(3)[HEADER_SIZE:]

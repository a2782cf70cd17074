"""One log: offsets, sequences, transactions, epochs, rolling, truncation, retention."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.records.batch import iterate_records
from kctl.records.build import build_batch
from kctl.records.control import ControlType
from kctl.records.header import Record, parse_header
from kctl.storage.config import LogConfig
from kctl.storage.files import RealFiles
from kctl.storage.segments import segment
from kctl.storage.segments.batch_reader import read_past_damage
from kctl.storage.segments.segment import CLOSED_TOGETHER, OpenSegments
from kctl.storage.segments.segments import CLOSED_SEGMENTS_PER_FLUSH
from kctl.storage.segments.transaction_index import AbortedTransaction
from tests.rows import for_rows
from tests.unit.storage.log_builder import NOW_MS, LogOnDisk, read_records, unload_indexes, value_batch


def code_of(call: object, *args: object, **kwargs: object) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        call(*args, **kwargs)  # type: ignore[operator]
    return caught.value.code


def test_records_get_the_next_offsets_and_the_leader_s_epoch() -> None:
    machine = LogOnDisk()
    assert machine.append(b"a", b"b")[:2] == (0, 1)
    buffer = bytearray(build_batch([Record(0, NOW_MS, None, b"c")]))
    result = machine.log.append_as_leader(memoryview(buffer), leader_epoch=4, now_ms=NOW_MS)
    assert (result.base_offset, result.log_append_time_ms, result.log_start_offset) == (2, -1, 0)
    header = parse_header(buffer)
    assert (header.base_offset, header.leader_epoch) == (2, 4), "the caller's buffer is patched, not copied"
    assert machine.values() == [b"a", b"b", b"c"]
    assert machine.log.leader_epochs.entries == ((0, 0), (4, 2))


def test_a_refused_batch_changes_nothing() -> None:
    machine = LogOnDisk()
    machine.append(b"a")
    damaged = bytearray(build_batch([Record(0, NOW_MS, None, b"b")]))
    damaged[-3] ^= 1
    assert code_of(machine.log.append_as_leader, damaged, leader_epoch=0, now_ms=NOW_MS) is ErrorCode.CORRUPT_MESSAGE
    assert (machine.log.log_end_offset, machine.values()) == (1, [b"a"])


def test_log_append_time_is_returned_and_stored() -> None:
    machine = LogOnDisk(LogConfig(message_timestamp_type="LogAppendTime"))
    machine.now_ms = NOW_MS + 77
    assert machine.append(b"a", timestamp=5).log_append_time_ms == NOW_MS + 77
    assert [record.timestamp for record in machine.records()] == [NOW_MS + 77]
    first = machine.append(b"b", producer_id=1)
    machine.now_ms += 1000
    assert machine.append(b"b", producer_id=1)[:3] == first[:3], "a duplicate has the time of the original"


def test_a_retried_batch_gets_its_first_offset() -> None:
    machine = LogOnDisk()
    for number in range(6):
        machine.append(b"v%d" % number, b"w", producer_id=1, sequence=2 * number)
    again = machine.append(b"v1", b"w", producer_id=1, sequence=2)
    assert (again.base_offset, again.last_offset, again.duplicate) == (2, 3, True)
    assert machine.log.log_end_offset == 12
    assert code_of(machine.append, b"v0", b"w", producer_id=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_retried_long_after_a_change_of_the_leader_is_a_duplicate_without_an_offset() -> None:
    machine = LogOnDisk()
    machine.append(b"v0", producer_id=1, sequence=100)
    machine.append(b"v1", b"v2", producer_id=1, sequence=101)
    for number in range(6):
        machine.append(producer_id=1, sequence=103 + number, leader_epoch=1)
    again = machine.append(b"v1", b"v2", producer_id=1, sequence=101, leader_epoch=1)
    assert (again.base_offset, again.last_offset, again.duplicate) == (-1, 3, True)
    assert machine.append(b"v0", producer_id=1, sequence=100, leader_epoch=1).base_offset == -1
    assert machine.log.log_end_offset == 9

    def is_refused(sequence: int, *values: bytes, epoch: int = 0) -> bool:
        code = code_of(machine.append, *values, producer_id=1, producer_epoch=epoch, sequence=sequence, leader_epoch=1)
        return code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    assert is_refused(99), "it may have been lost before the first batch that is known"
    assert is_refused(102, b"v2", b"v3"), "a part was appended by the present leader"
    assert is_refused(103), "the present leader has responded to it"
    assert is_refused(110), "it is ahead"
    machine.append(producer_id=1, producer_epoch=1, sequence=0, leader_epoch=2)
    assert is_refused(101, epoch=1), "another epoch has other records"


def test_old_duplicates_are_recognised_by_a_follower_that_becomes_leader_and_after_a_crash() -> None:
    machine = LogOnDisk()
    for number in range(7):
        record = Record(0, NOW_MS, b"k", b"v")
        batch = build_batch(
            [record],
            base_offset=number,
            leader_epoch=number // 2,
            producer_id=1,
            producer_epoch=0,
            base_sequence=number,
        )
        machine.log.append_as_follower(batch)
    assert machine.append(producer_id=1, leader_epoch=9).base_offset == -1
    machine.crash_and_reopen(recovery_point=0)
    assert machine.append(producer_id=1, leader_epoch=9).base_offset == -1


def test_sequence_numbers_have_to_follow_each_other() -> None:
    machine = LogOnDisk()
    machine.append(producer_id=1, sequence=100)  # Unknown producers may start with any sequence.
    assert code_of(machine.append, producer_id=1, sequence=102) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    machine.append(producer_id=1, sequence=101)
    assert (
        code_of(machine.append, producer_id=1, producer_epoch=1, sequence=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    machine.append(producer_id=1, producer_epoch=1, sequence=0)
    assert code_of(machine.append, producer_id=1, sequence=102) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_has_an_epoch_that_coordinators_assign() -> None:
    machine = LogOnDisk()
    assert code_of(machine.append, producer_id=1, producer_epoch=-2, sequence=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    machine.append(producer_id=1, producer_epoch=-1, sequence=0)  # As Apache Kafka.


def test_sequence_numbers_wrap() -> None:
    machine = LogOnDisk()
    machine.append(b"a", b"b", producer_id=1, sequence=(1 << 31) - 2)
    machine.append(b"c", producer_id=1, sequence=0)
    assert machine.append(b"a", b"b", producer_id=1, sequence=(1 << 31) - 2).duplicate


def test_an_open_transaction_holds_the_last_stable_offset() -> None:
    machine = LogOnDisk()
    machine.append(b"plain")
    machine.append(b"t1", producer_id=1, transactional=True)
    machine.append(b"t2", producer_id=2, transactional=True)
    log = machine.log
    assert log.last_stable_offset(3) == 1
    machine.end_transaction(ControlType.COMMIT, producer_id=1)
    assert log.last_stable_offset(3) == 1, "the marker is not replicated yet"
    assert log.last_stable_offset(4) == 2
    machine.end_transaction(ControlType.ABORT, producer_id=2)
    assert log.last_stable_offset(5) == 5


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    machine = LogOnDisk()
    machine.append(producer_id=1, transactional=True)
    assert code_of(machine.append, producer_id=1, sequence=1) is ErrorCode.INVALID_TXN_STATE


def test_markers_are_fenced_by_epochs_of_producer_and_coordinator() -> None:
    machine = LogOnDisk()
    machine.append(producer_id=1, producer_epoch=3, transactional=True)
    old = code_of(machine.end_transaction, ControlType.ABORT, producer_id=1, producer_epoch=2)
    assert old is ErrorCode.INVALID_PRODUCER_EPOCH
    machine.end_transaction(ControlType.ABORT, producer_id=1, producer_epoch=4, coordinator_epoch=5)
    stale = code_of(machine.end_transaction, ControlType.ABORT, producer_id=1, producer_epoch=4, coordinator_epoch=4)
    assert stale is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert code_of(machine.append, producer_id=1, producer_epoch=3, sequence=1) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("restart", ["none", "clean", "crash"])
def test_aborted_transactions_are_listed_for_readers(restart: str) -> None:
    machine = LogOnDisk(LogConfig(segment_bytes=400))
    machine.append(b"a", producer_id=1, transactional=True)
    machine.append(b"b", producer_id=2, transactional=True)
    machine.end_transaction(ControlType.ABORT, producer_id=1)
    for number in range(5):
        machine.append(b"filler %d" % number)
    machine.end_transaction(ControlType.COMMIT, producer_id=2)
    machine.append(b"c", producer_id=1, sequence=1, transactional=True)
    machine.end_transaction(ControlType.ABORT, producer_id=1)
    if restart == "clean":
        machine.close_and_reopen()
    elif restart == "crash":
        machine.crash_and_reopen()
    log = machine.log
    assert len(log.segments) > 2
    first, second = AbortedTransaction(1, 0, 2, 1), AbortedTransaction(1, 9, 10, 11)
    assert log.aborted_transactions(0, 11) == [first, second]
    assert log.aborted_transactions(0, 9) == [first]
    assert log.aborted_transactions(3, 11) == [second]
    assert log.last_stable_offset(11) == 11


def test_a_restart_keeps_open_transactions() -> None:
    machine = LogOnDisk()
    machine.append(b"a")
    machine.append(b"b", producer_id=1, transactional=True)
    for reopen in (machine.close_and_reopen, machine.crash_and_reopen):
        assert reopen().last_stable_offset(2) == 1
    machine.end_transaction(ControlType.ABORT, producer_id=1)
    assert machine.log.aborted_transactions(0, 3) == [AbortedTransaction(1, 1, 2, 3)]


def test_a_segment_is_rolled_when_the_next_batch_does_not_fit() -> None:
    machine = LogOnDisk(LogConfig(segment_bytes=200))
    for _ in range(5):
        machine.append(b"x" * 20)
    assert [segment.base_offset for segment in machine.log.segments] == [0, 2, 4]
    machine.log.flush()
    assert machine.file_names() == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000002.index",
        "00000000000000000002.log",
        "00000000000000000002.snapshot",
        "00000000000000000002.timeindex",
        "00000000000000000004.index",
        "00000000000000000004.log",
        "00000000000000000004.snapshot",
        "00000000000000000004.timeindex",
        "leader-epoch-checkpoint",
    ]


def test_closed_segments_are_flushed_a_few_at_a_time() -> None:
    machine = LogOnDisk(LogConfig(segment_bytes=100))
    for _ in range(2 * CLOSED_SEGMENTS_PER_FLUSH + 3):
        machine.append(b"x" * 20)
    recovery_points = [machine.log.recovery_point]
    while (plan := machine.log.plan_due_flush(NOW_MS)) is not None:
        plan.run()
        machine.log.flushed(plan, NOW_MS)
        recovery_points.append(machine.log.recovery_point)
    active = machine.log.active_segment.base_offset
    assert recovery_points == [0, CLOSED_SEGMENTS_PER_FLUSH, 2 * CLOSED_SEGMENTS_PER_FLUSH, active]
    assert active == machine.log.segment_count - 1


def test_segments_are_closed_and_opened_again_when_descriptors_are_scarce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    descriptor_max = lowest_free + 2 * CLOSED_TOGETHER
    open_segments = OpenSegments()
    open_segments.descriptor_max = descriptor_max
    monkeypatch.setattr(segment, "OPEN_SEGMENTS", open_segments)
    machine = LogOnDisk(LogConfig(segment_bytes=100), files=RealFiles(), at=str(tmp_path))
    count = 10 * CLOSED_TOGETHER
    parts = []
    for offset in range(count):
        machine.append(b"x" * 20)
        assert machine.log.active_segment.file.fileno() < descriptor_max + CLOSED_TOGETHER
        if offset == 0:
            parts = [machine.log.read(0, 1000, max_offset=1)]
    machine.log.flush()
    for offset in range(count):
        part = machine.log.read(offset, 1000, max_offset=count)
        assert part.fileno() < descriptor_max + CLOSED_TOGETHER
        assert [record.offset for record in iterate_records(part.read())] == [offset]
    assert [record.offset for record in iterate_records(parts[0].read())] == [0], "a reader keeps its file"


def test_a_segment_is_rolled_by_record_time() -> None:
    machine = LogOnDisk(LogConfig(segment_ms=1000))
    machine.append(timestamp=NOW_MS)
    machine.append(timestamp=NOW_MS + 1000)
    assert len(machine.log.segments) == 1
    machine.append(timestamp=NOW_MS + 1001)
    assert len(machine.log.segments) == 2


def test_a_segment_without_record_times_is_rolled_by_the_clock() -> None:
    machine = LogOnDisk(LogConfig(segment_ms=1000))
    machine.append(timestamp=-1)
    machine.now_ms += 1001
    machine.append(timestamp=-1)
    assert len(machine.log.segments) == 2


@pytest.mark.parametrize("reopens", [False, True])
def test_the_first_segment_of_a_log_and_that_of_an_opened_one_are_rolled_earlier_by_a_jitter(reopens: bool) -> None:
    """Otherwise the logs of topics that were created, or opened, together are rolled together."""
    machine = LogOnDisk(LogConfig(segment_ms=1000, segment_jitter_ms=1000))
    machine.append(timestamp=NOW_MS)
    if reopens:
        machine.close_and_reopen()
    jitter_ms = random.Random(1).randrange(0, 1000)
    machine.append(timestamp=NOW_MS + 1000 - jitter_ms)
    assert len(machine.log.segments) == 1
    machine.append(timestamp=NOW_MS + 1000 - jitter_ms + 1)
    assert len(machine.log.segments) == 2


@pytest.mark.parametrize("restart", [False, True])
def test_a_segment_is_rolled_when_an_index_is_full(restart: bool) -> None:
    machine = LogOnDisk(LogConfig(segment_index_bytes=50, index_interval_bytes=0))
    for number in range(30):
        machine.append(timestamp=NOW_MS + number)
        if restart:
            machine.close_and_reopen()
    indexes = [segment.indexes.offset for segment in machine.log.segments]
    assert len(indexes) > 4
    assert all(len(index) <= 6 for index in indexes)
    assert [record.offset for record in machine.records()] == list(range(30))


def test_the_active_index_has_its_full_size_and_closed_ones_are_trimmed() -> None:
    machine = LogOnDisk(LogConfig(segment_bytes=1000, index_interval_bytes=0))
    for _ in range(12):
        machine.append(b"x" * 50)
    sizes = {entry.name: entry.size for entry in machine.files.list(machine.directory)}
    first, active = machine.log.segments[0], machine.log.active_segment
    assert sizes[f"{active.base_offset:020d}.index"] == 10485760
    assert sizes[f"{active.base_offset:020d}.timeindex"] == 10485756
    assert sizes[f"{first.base_offset:020d}.index"] == 8 * 7  # All of eight batches except the first.
    assert sizes[f"{first.base_offset:020d}.timeindex"] == 12
    machine.close()
    assert machine.files.size(active.path(".index")) < 1000


def test_the_batch_that_was_appended_last_is_read_as_after_a_restart() -> None:
    """The log has its position in memory until then, so that a reader at the end needs nothing from the file."""
    machine = LogOnDisk()
    for _ in range(3):
        machine.append(b"a", b"b", b"c")
    size = machine.log.size_bytes // 3

    def slices() -> list[tuple[int, int]]:
        reads = [
            machine.log.read(offset, max_bytes, max_offset=max_offset, min_one_batch=is_first)
            for offset in range(5, 10)
            for max_bytes in (0, size - 1, size, 3 * size)
            for max_offset in (offset, 8, 9)
            for is_first in (True, False)
        ]
        return [(read.position, read.size) if read.size else (0, 0) for read in reads]

    before = slices()
    assert {(2 * size, size), (0, 0)} < set(before)
    machine.close_and_reopen()
    assert slices() == before
    machine.log.truncate_to(7)
    assert machine.log.read(5, 1, max_offset=7).position == size


def test_reading_outside_of_the_log_is_an_error_and_behind_the_bound_is_nothing() -> None:
    machine = LogOnDisk()
    for value in (b"a", b"b", b"c"):
        machine.append(value)
    log = machine.log
    log.increment_log_start_offset(1)
    assert code_of(log.read, 0, 100, max_offset=3) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(log.read, 4, 100, max_offset=3) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(log.read(3, 100, max_offset=3)) == 0
    assert len(log.read(2, 100, max_offset=2)) == 0
    assert [record.value for record in iterate_records(log.read(1, 1000, max_offset=2).read())] == [b"b"]


def test_the_first_batch_comes_whole_however_small_the_limit() -> None:
    machine = LogOnDisk()
    machine.append(b"x" * 1000)
    machine.append(b"y")
    assert len(machine.log.read(0, 1, max_offset=2)) == len(value_batch(b"x" * 1000))
    assert len(machine.log.read(0, 1, max_offset=2, min_one_batch=False)) < 2


def test_a_slice_outlives_its_segment() -> None:
    machine = LogOnDisk(LogConfig(segment_bytes=100, retention_ms=0, file_delete_delay_ms=0))
    machine.append(b"a" * 30)
    machine.append(b"b" * 30)
    part = machine.log.read(0, 1000, max_offset=2)
    assert machine.log.delete_old_segments(NOW_MS + 10, 2) == 2
    for path, _ in machine.removals.take_due(NOW_MS + 10):
        machine.files.remove(path)
    assert [record.value for record in iterate_records(part.read())] == [b"a" * 30]


def test_timestamps_are_found_across_segments_and_inside_of_batches() -> None:
    machine = LogOnDisk(LogConfig(segment_bytes=300, index_interval_bytes=0))
    for number in range(20):
        records = [Record(0, NOW_MS + 100 * number + index * 10, b"k", b"v") for index in range(3)]
        machine.log.append_as_leader(bytearray(build_batch(records)), leader_epoch=number, now_ms=NOW_MS)
    log = machine.log
    assert log.offset_for_timestamp(NOW_MS + 511, max_offset=60) == (NOW_MS + 520, 17, 5)
    assert log.offset_for_timestamp(0, max_offset=60) == (NOW_MS, 0, 0)
    assert log.offset_for_timestamp(NOW_MS + 511, max_offset=17) is None
    assert log.offset_for_timestamp(NOW_MS + 1921, max_offset=60) is None
    log.increment_log_start_offset(10)
    assert log.offset_for_timestamp(0, max_offset=60) == (NOW_MS + 310, 10, 3)


def test_a_follower_takes_batches_as_they_are() -> None:
    machine = LogOnDisk()
    data = value_batch(b"a", base_offset=5, leader_epoch=2) + value_batch(b"b", b"c", base_offset=9, leader_epoch=3)
    result = machine.log.append_as_follower(bytearray(data + data[:40]))
    assert (result.base_offset, result.last_offset) == (5, 10)
    assert [(record.offset, record.value) for record in read_records(machine.log, 0)] == [
        (5, b"a"),
        (9, b"b"),
        (10, b"c"),
    ]
    assert machine.log.leader_epochs.entries == ((2, 5), (3, 9))
    assert code_of(machine.log.append_as_follower, value_batch(b"x", base_offset=10)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert machine.log.append_as_follower(b"").last_offset == 10


def test_truncation_takes_whole_batches_epochs_and_producers() -> None:
    machine = LogOnDisk(LogConfig(segment_bytes=300))
    for number in range(10):
        machine.append(b"x" * 20, producer_id=1, sequence=number, leader_epoch=number // 4)
    assert machine.log.truncate_to(5)
    assert machine.log.log_end_offset == 5
    assert machine.log.leader_epochs.entries == ((0, 0), (1, 4))
    assert machine.log.producer_state.producers[1].last_sequence == 4
    assert machine.append(producer_id=1, sequence=5, leader_epoch=3).base_offset == 5
    assert not machine.log.truncate_to(6)
    assert machine.crash_and_reopen().log_end_offset == 6
    assert list(machine.log.leader_epochs.entries) == [(0, 0), (1, 4), (3, 5)]


@pytest.mark.parametrize("end", [3, 4], ids=["its marker", "a later record"])
def test_truncation_removes_the_aborts_whose_markers_it_removes(end: int) -> None:
    machine = LogOnDisk()
    log = machine.log
    machine.append(b"a", producer_id=1, transactional=True)
    machine.end_transaction(ControlType.ABORT, producer_id=1)
    machine.append(b"b", producer_id=2, transactional=True)
    machine.end_transaction(ControlType.ABORT, producer_id=2)
    machine.append(b"c")
    first, second = AbortedTransaction(1, 0, 1, 2), AbortedTransaction(2, 2, 3, 4)
    assert log.aborted_transactions(0, 5) == [first, second]
    log.truncate_to(end)
    assert log.aborted_transactions(0, 5) == ([first] if end <= 3 else [first, second])
    if end == 3:
        assert log.last_stable_offset(3) == 2, "the transaction is open again"
        machine.end_transaction(ControlType.COMMIT, producer_id=2)
        assert log.aborted_transactions(0, 5) == [first]


def test_truncating_below_the_first_segment_starts_the_log_over() -> None:
    machine = LogOnDisk()
    machine.log.truncate_fully_and_start_at(100)
    assert machine.append(b"a").base_offset == 100
    assert machine.log.truncate_to(50)
    assert (machine.log.log_start_offset, machine.log.log_end_offset) == (50, 50)
    assert machine.append(b"b").base_offset == 50
    assert machine.close_and_reopen().log_start_offset == 50
    assert machine.values() == [b"b"]


def test_a_flush_planned_before_a_truncation_is_ignored() -> None:
    machine = LogOnDisk()
    for _ in range(4):
        machine.append()
    plan = machine.log.plan_flush()
    machine.log.truncate_to(1)
    machine.append()
    machine.append()
    plan.run()
    machine.log.flushed(plan)
    assert machine.log.recovery_point <= 1


def test_flush_messages_settles_no_append_before_its_sync() -> None:
    machine = LogOnDisk(LogConfig(flush_messages=3))
    log = machine.log
    machine.append()
    machine.append()
    assert (log.awaits_flush, log.settled_end_offset) == (False, 2)
    machine.append()
    machine.append()
    assert (log.awaits_flush, log.settled_end_offset, log.log_end_offset) == (True, 2, 4)
    plan = log.plan_flush()
    machine.append(b"1", b"2", b"3")
    plan.run()
    log.flushed(plan)
    assert (log.awaits_flush, log.settled_end_offset, log.recovery_point) == (True, 4, 4), "the next sync is due"
    log.flush()
    assert (log.awaits_flush, log.settled_end_offset, log.recovery_point) == (False, 7, 7)


def test_flush_messages_of_zero_settles_what_is_synced() -> None:
    machine = LogOnDisk(LogConfig(flush_messages=0))
    machine.append()
    assert machine.log.awaits_flush
    machine.log.flush()
    assert not machine.log.awaits_flush


@pytest.mark.parametrize(("end", "settled"), [(0, 0), (1, 1), (2, 1)])
def test_a_truncation_settles_what_it_leaves_of_synced_records(end: int, settled: int) -> None:
    machine = LogOnDisk(LogConfig(flush_messages=2))
    for _ in range(3):
        machine.append()
    machine.log.truncate_to(end)
    assert (machine.log.log_end_offset, machine.log.settled_end_offset) == (end, settled)
    machine.log.flush()
    assert (machine.log.awaits_flush, machine.log.settled_end_offset) == (False, end)


def test_a_closed_segment_waits_to_be_flushed() -> None:
    machine = LogOnDisk()
    machine.append()
    assert machine.log.plan_due_flush(NOW_MS) is None
    machine.log.roll(NOW_MS)
    machine.append()
    plan = machine.log.plan_due_flush(NOW_MS)
    assert plan is not None
    plan.run()
    machine.log.flushed(plan, NOW_MS)
    assert machine.log.recovery_point == 1
    assert machine.log.plan_due_flush(NOW_MS) is None


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_lost_index_is_rebuilt_when_its_segment_is_synced(kind: str) -> None:
    """An empty index in its place would mean that no record has a timestamp, and look-ups and retention
    would use it.
    """
    machine = LogOnDisk(LogConfig(index_interval_bytes=0))
    machine.append(b"v", timestamp=NOW_MS - 5)
    machine.append(b"v")
    machine.log.roll(NOW_MS)
    machine.append(b"v", timestamp=NOW_MS + 5)
    unload_indexes(machine.log)
    machine.files.remove(machine.log.segments[0].path(kind))
    machine.close_and_reopen()
    found = machine.log.offset_for_timestamp(NOW_MS, max_offset=3)
    assert found is not None
    assert found.offset == 1
    assert len(machine.log.segments[0].indexes.offset) == 1
    assert machine.log.segments[0].largest_timestamp == NOW_MS


def test_rolling_an_empty_segment_does_nothing() -> None:
    machine = LogOnDisk()
    machine.log.roll(NOW_MS)
    machine.append()
    machine.log.roll(NOW_MS)
    machine.log.roll(NOW_MS)
    assert [segment.base_offset for segment in machine.log.segments] == [0, 1]


def rolled(count: int, config: LogConfig) -> LogOnDisk:
    """A log of `count` segments with one record of 100 bytes and one second each."""
    machine = LogOnDisk(replace(config, segment_bytes=110, file_delete_delay_ms=500))
    for number in range(count):
        machine.append(b"x" * 31, timestamp=NOW_MS + 1000 * number)
    assert [segment.size for segment in machine.log.segments] == [100] * count
    return machine


@for_rows(
    "config, high_watermark, expected",
    [
        (LogConfig(retention_ms=2500), 5, 2),
        (LogConfig(retention_ms=2500), 1, 1),
        (LogConfig(retention_ms=-1), 5, 0),
        (LogConfig(retention_ms=-1, retention_bytes=300), 5, 2),
        (LogConfig(retention_ms=-1, retention_bytes=301), 5, 1),
        (LogConfig(retention_ms=-1, retention_bytes=0), 5, 5),
        (LogConfig(retention_ms=0), 5, 5),
        (LogConfig(retention_ms=0, cleanup_policy=frozenset({"compact"})), 5, 0),
        (LogConfig(retention_ms=0, cleanup_policy=frozenset({"compact", "delete"})), 5, 5),
    ],
)
def test_retention_deletes_by_age_and_by_size(config: LogConfig, high_watermark: int, expected: int) -> None:
    machine = rolled(5, config)
    assert machine.log.delete_old_segments(NOW_MS + 4001, high_watermark) == expected
    assert machine.log.log_start_offset == expected
    assert [record.offset for record in machine.records()] == list(range(expected, 5))
    assert machine.append().base_offset == 5


def test_deleted_segments_are_renamed_first_and_removed_later() -> None:
    machine = rolled(3, LogConfig(retention_bytes=100))
    assert machine.log.delete_old_segments(NOW_MS, 3) == 2
    assert "00000000000000000000.log.deleted" in machine.file_names()
    assert machine.removals.take_due(NOW_MS + 499) == []
    due = machine.removals.take_due(NOW_MS + 500)
    assert {path for path, _ in due} == {
        f"{machine.directory}/{name}" for name in machine.file_names() if name.endswith(".deleted")
    }


def test_segments_below_the_start_offset_are_deleted_even_in_a_compacted_log() -> None:
    machine = rolled(4, LogConfig(cleanup_policy=frozenset({"compact"})))
    machine.log.increment_log_start_offset(3)
    assert machine.log.delete_old_segments(NOW_MS, 4) == 3
    assert code_of(machine.log.increment_log_start_offset, 5) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert not machine.log.increment_log_start_offset(2)


def test_a_log_without_record_timestamps_expires_by_file_times() -> None:
    machine = LogOnDisk(LogConfig(retention_ms=1000, segment_bytes=100))
    machine.disk.now_ms = NOW_MS
    for _ in range(3):
        machine.append(b"x" * 29, timestamp=-1)
    assert machine.log.delete_old_segments(NOW_MS + 1000, 3) == 0
    assert machine.log.delete_old_segments(NOW_MS + 1001, 3) == 3


def test_the_end_offset_of_an_epoch_is_returned() -> None:
    machine = LogOnDisk()
    machine.log.assign_epoch(1, 0)
    machine.append(leader_epoch=1)
    machine.append(leader_epoch=1)
    machine.log.assign_epoch(5, 2)
    assert machine.log.end_offset_for_epoch(1) == (1, 2)
    assert machine.log.end_offset_for_epoch(3) == (1, 2)
    assert machine.log.end_offset_for_epoch(5) == (5, 2)
    assert machine.log.end_offset_for_epoch(6) == (-1, -1)
    assert machine.log.end_offset_for_epoch(0) == (0, 0)


def test_the_coordinator_writes_transactional_records_without_sequence_numbers() -> None:
    machine = LogOnDisk()
    batch = build_batch([Record(0, NOW_MS, b"k", b"v")], producer_id=1, producer_epoch=0, is_transactional=True)
    for _ in range(3):
        machine.log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, from_client=False)
    assert machine.log.last_stable_offset(3) == 0
    machine.end_transaction(ControlType.COMMIT, producer_id=1)
    assert machine.log.last_stable_offset(4) == 4


def test_a_follower_starts_with_the_batch_that_contains_the_log_start_of_its_leader() -> None:
    """Records may be deleted up to any offset, but a leader sends whole batches."""
    records = [Record(delta, NOW_MS, b"k", b"%d" % delta) for delta in range(4)]
    batch = build_batch(records, base_offset=8)
    machine = LogOnDisk()
    machine.log.truncate_fully_and_start_at(10)
    result = machine.log.append_as_follower(batch)
    assert (result.base_offset, machine.log.log_start_offset, machine.log.log_end_offset) == (8, 8, 12)
    assert machine.log.increment_log_start_offset(10)
    assert code_of(machine.log.append_as_follower, batch) is ErrorCode.OFFSET_OUT_OF_RANGE


@for_rows("damaged", range(6))
@for_rows("offset", range(1, 6))
def test_log_is_truncated_past_damage(damaged: int, offset: int) -> None:
    """The following segments are deleted first, so that a crash leaves no gap."""
    machine = LogOnDisk()
    for number in range(6):
        machine.append(b"%d" % number)
    machine.log.roll(machine.now_ms)
    machine.append(b"6")
    first = machine.log.segments[0]
    victim = list(first.headers())[damaged]
    first.file.write_at(victim.position + 8, bytes(4))
    assert machine.log.truncate_to(offset)
    assert machine.log.log_end_offset == offset
    assert machine.append(b"new").base_offset == offset
    kept = [header.base_offset for header in read_past_damage(first.file, 0, first.size)]
    assert kept == [*(number for number in range(offset) if number != damaged), offset]


def test_deleting_records_waits_for_no_file_and_old_epochs_stay_removed() -> None:
    """Replacing the file of epochs for each of 10,000 partitions took the event loop 96 ms at a time."""
    machine = LogOnDisk()
    for epoch in (1, 2, 3):
        machine.log.append_as_leader(value_batch(b"v"), leader_epoch=epoch, now_ms=NOW_MS)
    operations = machine.disk.operations
    assert machine.log.increment_log_start_offset(2)
    assert machine.disk.operations == operations
    entries = machine.log.leader_epochs.entries
    assert entries[0] == (3, 2)
    machine.close()
    assert machine.open(log_start_offset=2).leader_epochs.entries == entries

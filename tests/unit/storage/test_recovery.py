"""Opening of a log after a crash: incomplete batches, damaged indexes, unfinished swaps, lost checkpoints."""

from __future__ import annotations

import logging
import random

import pytest

from kctl.records.header import BatchHeader, parse_header
from kctl.storage.config import LogConfig
from kctl.storage.log.log import Log
from kctl.storage.names import offset_file_name
from kctl.storage.segments.batch_reader import read_past_damage
from kctl.storage.segments.segment import Segment
from tests.rows import for_rows
from tests.unit.storage.log_builder import NOW_MS, LogOnDisk, read_records, value_batch

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=0)


def filled(count: int = 12) -> LogOnDisk:
    """Four segments of three records."""
    machine = LogOnDisk(SMALL)
    for number in range(count):
        machine.append(b"v%02d" % number + b"x" * 20, producer_id=1, sequence=number, leader_epoch=number // 5)
    return machine


def path_of(machine: LogOnDisk, offset: int, kind: str) -> str:
    return f"{machine.directory}/{offset_file_name(offset, kind)}"


def test_a_torn_tail_is_truncated_with_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    machine = filled()
    machine.log.active_segment.file.write_at(machine.log.active_segment.size, b"torn")
    with caplog.at_level(logging.INFO):
        log = machine.crash_and_reopen()
    assert log.log_end_offset == 12
    assert len(machine.records()) == 12
    (line,) = [record.getMessage() for record in caplog.records]
    assert "truncated corrupt log" in line
    assert log.active_segment.path(".log") in line


def test_damage_in_the_middle_removes_all_later_segments() -> None:
    machine = filled()
    bases = [segment.base_offset for segment in machine.log.segments]
    assert len(bases) >= 4
    victim = machine.log.segments[1]
    victim.file.write_at(victim.size - 5, b"\xff\xff")
    log = machine.crash_and_reopen(recovery_point=0)
    assert log.log_end_offset == bases[2] - 1
    assert [segment.base_offset for segment in log.segments] == bases[:2]
    assert log.producer_state.producers[1].last_sequence == bases[2] - 2
    assert log.leader_epochs.latest_epoch == (bases[2] - 2) // 5
    assert not [name for name in machine.file_names() if name.startswith(offset_file_name(bases[2], ""))]
    assert machine.append(producer_id=1, sequence=bases[2] - 1).base_offset == bases[2] - 1


def test_segments_below_the_recovery_point_are_not_read_again() -> None:
    machine = filled()
    machine.log.flush()
    victim = machine.log.segments[0]
    victim.file.write_at(80, b"\xff\xff")
    log = machine.crash_and_reopen()
    assert log.log_end_offset == 12
    assert log.recovery_point == 12


def test_a_missing_epoch_file_is_rebuilt_from_the_batches() -> None:
    machine = filled()
    before = machine.log.leader_epochs.entries
    machine.close()
    machine.files.write_atomically(f"{machine.directory}/leader-epoch-checkpoint", b"0\n7\nnonsense\n")
    assert machine.open().leader_epochs.entries == before


def test_damaged_snapshots_are_dropped_for_older_ones() -> None:
    machine = filled()
    machine.close()
    snapshots = [name for name in machine.file_names() if name.endswith(".snapshot")]
    for name in snapshots[1:]:
        machine.files.write_atomically(f"{machine.directory}/{name}", b"\0\1garbage")
    log = machine.open()
    assert log.producer_state.producers[1].last_sequence == 11
    assert machine.append(producer_id=1, sequence=12).base_offset == 12


def test_producer_state_is_read_from_the_batches_without_any_snapshot() -> None:
    machine = filled()
    machine.close()
    for name in machine.file_names():
        if name.endswith(".snapshot"):
            machine.files.remove(f"{machine.directory}/{name}")
    log = machine.open()
    assert log.producer_state.producers[1].last_sequence == 11


@for_rows("content", [None, b"\1", b"\0\0\0\1\0\0\0\1" * 2, b"\x7f\xff\xff\xff\x7f\xff\xff\xff"])
@for_rows("kind", [".index", ".timeindex"])
def test_a_damaged_index_is_rebuilt(kind: str, content: bytes | None) -> None:
    machine = filled()
    expected = machine.records()
    machine.close()
    path = path_of(machine, 0, kind)
    sound = machine.files.read(path)
    if content is None:
        machine.files.remove(path)
    else:
        machine.files.write_atomically(path, content)
    log = machine.open()
    assert machine.records() == expected
    assert log.offset_for_timestamp(NOW_MS, max_offset=12) == (NOW_MS, 0, 0)
    log.truncate_to(3)
    if content is None or len(content) == 1:
        assert machine.files.read(path)[: len(sound)] == sound


def test_an_index_without_its_segment_is_removed() -> None:
    machine = filled()
    machine.close()
    machine.files.write_atomically(path_of(machine, 7777, ".index"), b"")
    machine.open()
    assert not machine.files.exists(path_of(machine, 7777, ".index"))


def test_leftovers_of_deletions_and_drafts_are_removed() -> None:
    machine = filled()
    machine.close()
    for suffix in (".deleted", ".cleaned"):
        machine.files.write_atomically(path_of(machine, 0, ".log") + suffix, b"x")
    machine.files.write_atomically(f"{machine.directory}/leader-epoch-checkpoint.tmp", b"x")
    machine.open()
    assert len(machine.records()) == 12
    assert not [name for name in machine.file_names() if name.endswith((".deleted", ".cleaned", ".tmp"))]


def swap_of_first_segments(machine: LogOnDisk, end: int) -> None:
    """A complete cleaning of everything before `end`, of which one record remains."""
    segment = Segment.create(machine.files, machine.directory, 0, SMALL, now_ms=NOW_MS, suffix=".swap")
    data = memoryview(bytearray(value_batch(b"cleaned", base_offset=end - 1)))
    segment.append(data, [parse_header(data)])
    segment.become_inactive()


def test_a_finished_swap_is_completed() -> None:
    machine = filled()
    bases = [segment.base_offset for segment in machine.log.segments]
    machine.close()
    swap_of_first_segments(machine, bases[2])
    machine.open(recovery_point=12)
    assert machine.values()[0] == b"cleaned"
    assert [record.offset for record in machine.records()] == [bases[2] - 1, *range(bases[2], 12)]
    assert not [name for name in machine.file_names() if name.endswith(".swap")]


def test_a_swap_is_undone_while_its_group_has_a_draft() -> None:
    machine = filled()
    machine.close()
    swap_of_first_segments(machine, machine.log.segments[2].base_offset)
    machine.files.write_atomically(path_of(machine, 0, ".log") + ".cleaned", b"x")
    machine.open()
    assert len(machine.records()) == 12


def test_a_log_that_ends_before_its_start_offset_starts_over_there() -> None:
    machine = filled()
    machine.close()
    log = machine.open(log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, machine.records()) == (50, 50, [])
    assert machine.append().base_offset == 50


def test_a_clean_shutdown_leaves_nothing_to_recover() -> None:
    machine = filled()
    log = machine.close_and_reopen()
    assert (log.recovery_point, log.log_end_offset) == (12, 12)
    assert machine.append(producer_id=1, sequence=12).base_offset == 12


def test_a_power_failure_after_a_clean_shutdown_loses_nothing() -> None:
    for seed in range(20):
        machine = LogOnDisk()
        machine.append(b"late", timestamp=NOW_MS + 9)
        machine.log.flush()
        machine.close()
        machine.disk.crash(random.Random(seed))
        log = machine.open(recovery_point=1)
        assert log.offset_for_timestamp(NOW_MS + 9, max_offset=1) == (NOW_MS + 9, 0, 0)


def test_trailing_zeros_are_preallocated_space() -> None:
    machine = LogOnDisk(LogConfig(preallocate=True, segment_bytes=10_000))
    machine.append(b"a")
    assert machine.files.size(path_of(machine, 0, ".log")) == 10_000
    assert machine.crash_and_reopen().log_end_offset == 1
    machine.append(b"b")
    machine.close_and_reopen()
    assert machine.values() == [b"a", b"b"]
    assert machine.files.size(path_of(machine, 0, ".log")) == machine.log.size_bytes


def test_damage_after_a_clean_shutdown_is_recovered_all_the_same() -> None:
    machine = filled()
    machine.close()
    victim = machine.log.segments[-1]
    machine.files.open(victim.path(".log")).truncate(victim.size - 1)
    assert machine.open().log_end_offset == 11
    assert len(machine.records()) == 11


@pytest.mark.parametrize("back", [1, 2, 3])
def test_damage_near_the_end_after_a_clean_shutdown_loses_nothing_else(
    back: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the index of the last segment contains: most batches after its last entry may be valid."""
    machine = LogOnDisk()
    for number in range(10):
        machine.append(b"%d" % number)
    machine.close()
    segment = machine.log.segments[-1]
    victim = list(segment.headers())[-back]
    size = segment.size
    machine.files.open(segment.path(".log")).write_at(victim.position + 8, bytes(4))
    log = machine.open(recovery_point=10)
    assert log.log_end_offset == 10
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    assert log.segments[0].size == size
    (line,) = [record.getMessage() for record in caplog.records if record.name == "kctl.storage.recovery.recovery"]
    assert "appending to a new segment path=/data/orders-0 offset=10 error=" in line
    assert machine.append(b"10").base_offset == 10
    machine.append(b"11")
    assert [record.offset for record in read_records(log, 10)] == [10, 11]
    caplog.clear()
    assert machine.close_and_reopen().log_end_offset == 12
    assert caplog.records == []
    found = [header.base_offset for header in sound_headers(machine.log)]
    assert found == [offset for offset in range(12) if offset != 10 - back]


def test_producer_state_is_read_past_damage() -> None:
    """Without a snapshot, a log that was closed cleanly was truncated at its first damage."""
    machine = filled()
    machine.close()
    victim = next(iter(machine.log.segments[1].headers()))
    machine.files.open(path_of(machine, 3, ".log")).write_at(victim.position + 8, bytes(4))
    for name in machine.file_names():
        if name.endswith(".snapshot"):
            machine.files.remove(f"{machine.directory}/{name}")
    log = machine.open(recovery_point=12)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    assert machine.append(producer_id=1, sequence=12).base_offset == 12


def test_index_is_rebuilt_past_damage(caplog: pytest.LogCaptureFixture) -> None:
    machine = LogOnDisk(LogConfig(index_interval_bytes=0))
    for number in range(10):
        machine.append(b"%d" % number)
    machine.close()
    segment = machine.log.segments[-1]
    victim = list(segment.headers())[4]
    machine.files.open(segment.path(".log")).write_at(victim.position + 8, bytes(4))
    machine.files.remove(segment.path(".index"))
    log = machine.open(recovery_point=10)
    assert log.log_end_offset == 10
    assert [record.offset for record in read_records(log, 5)] == [5, 6, 7, 8, 9]
    assert "cannot read all batches, leaving the damaged ones out of the indexes file=" in caplog.text


def sound_headers(log: Log) -> list[BatchHeader]:
    return [
        header
        for segment in log.segments
        for header in read_past_damage(segment.file, segment.base_offset, segment.size)
    ]


def test_batches_that_go_back_in_offsets_are_damage() -> None:
    machine = LogOnDisk()
    machine.append(b"a")
    machine.append(b"b")
    segment = machine.log.active_segment
    segment.file.write_at(segment.size, value_batch(b"again", base_offset=1))
    assert machine.crash_and_reopen().log_end_offset == 2
    assert machine.values() == [b"a", b"b"]


def test_epochs_that_are_not_in_their_file_yet_are_read_from_the_batches() -> None:
    machine = LogOnDisk()
    for epoch in (2, 5):
        machine.log.assign_epoch(epoch, machine.log.log_end_offset)
        machine.append(b"value", leader_epoch=epoch)
    assert not machine.files.exists(f"{machine.directory}/leader-epoch-checkpoint")
    log = machine.crash_and_reopen()
    assert [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries] == [(2, 0), (5, 1)]

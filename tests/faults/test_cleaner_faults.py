"""Crashes at every file operation of a cleaning: the log reads as before or after, and the next start recovers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest

from kctl.errors import KctlError
from kctl.records.compression import Codec
from kctl.records.control import ControlType
from kctl.records.header import Record
from kctl.storage.config import LogConfig
from tests.unit.storage.cleaner_world import COMPACTED, TP, CleanerWorld
from tests.unit.storage.log_builder import read_records
from tests.unit.storage.manager_builder import remove_due_files

# Each is (segment.bytes while writing, segment.bytes while cleaning): one group, several groups, groups of one.
SHAPES = [(200, 1 << 20), (200, 700), (500, 200)]


def dirty_world(shape: tuple[int, int], config: LogConfig = COMPACTED) -> CleanerWorld:
    """A clean part, a dirty part with a transaction of each kind, several segments."""
    world = CleanerWorld(replace(config, segment_bytes=shape[0], delete_retention_ms=0, file_delete_delay_ms=60_000))
    for number in range(6):
        world.pass_time(10)
        world.put((b"key-%d" % (number % 4), b"v%d" % number), (b"gone-%d" % number, b"x"), codec=Codec.LZ4)
    world.clean_all()
    for number in range(6):
        world.pass_time(10)
        world.put((b"key-%d" % (number % 3), b"w%d" % number), (b"gone-%d" % number, None))
    world.put((b"key-0", b"committed"), producer_id=3, transactional=True)
    world.put((b"key-1", b"aborted"), producer_id=4, transactional=True)
    world.put((b"key-5", b"idempotent"), producer_id=6)
    world.end(ControlType.COMMIT, 3)
    world.end(ControlType.ABORT, 4)
    world.put((b"key-5", b"later"))
    world.roll()
    world.put((b"key-6", b"in the active segment"))
    world.log.flush()
    world.log.config = world.config = replace(world.config, segment_bytes=shape[1])
    world.manager.checkpoints.write_recovery_points()
    return world


def responses(world: CleanerWorld) -> dict[bytes, bytes | None]:
    """The final state of a read_committed consumer; tombstones may be gone."""
    log = world.log
    aborted = log.aborted_transactions(0, log.log_end_offset)
    latest: dict[bytes, bytes | None] = {}
    for header in world.headers():
        if header.is_control:
            continue
        if header.is_transactional and any(
            transaction.producer_id == header.producer_id
            and transaction.first_offset <= header.base_offset < transaction.last_offset
            for transaction in aborted
        ):
            continue
        for record in read_records(log, header.base_offset):
            if record.offset <= header.last_offset and record.key is not None:
                latest[record.key] = record.value
    return {key: value for key, value in latest.items() if value is not None}


def producers(world: CleanerWorld) -> dict[int, tuple[int, int, int]]:
    return {
        producer_id: (entry.epoch, entry.last_sequence, entry.last_offset)
        for producer_id, entry in world.log.producer_state.producers.items()
    }


def check(world: CleanerWorld, expected: dict[bytes, bytes | None], cleaned: list[Record], end_offset: int) -> None:
    """No record is lost, no deleted record reappears, no file is left; cleaning again gives the expected result."""
    log = world.log
    assert responses(world) == expected
    assert log.log_end_offset == end_offset
    assert log.last_stable_offset(end_offset) == end_offset
    offsets = [record.offset for record in world.records()]
    assert offsets == sorted(set(offsets))
    for offset in (0, end_offset // 2, end_offset - 1):
        assert read_records(log, offset) == [record for record in world.records() if record.offset >= offset]
    remove_due_files(world.manager, world.now_ms + 60_000)
    bases = {segment.base_offset for segment in log.segments}
    for name in world.file_names():
        assert not name.endswith((".cleaned", ".swap", ".deleted", ".tmp")), name
        if name.endswith((".log", ".index", ".timeindex", ".txnindex")):
            assert int(name.partition(".")[0]) in bases, name
    known = producers(world)
    world.clean()
    assert responses(world) == expected
    assert {record.offset for record in world.records()} <= {record.offset for record in cleaned}
    assert producers(world) == known


@pytest.mark.parametrize(
    ("shape", "how"),
    [
        (SHAPES[1], "power"),
        (SHAPES[1], "error"),
        *(
            pytest.param(shape, how, marks=pytest.mark.matrix)
            for shape, how in ((SHAPES[0], "power"), (SHAPES[2], "power"), (SHAPES[1], "kill"))
        ),
    ],
)
def test_log_survives_a_crash_at_any_operation_of_a_cleaning(shape: tuple[int, int], how: str) -> None:
    reference = dirty_world(shape)
    expected, end_offset, known = responses(reference), reference.log.log_end_offset, producers(reference)
    size_before = reference.log.size_bytes
    first = reference.disk.operations
    assert reference.clean()
    total = reference.disk.operations - first
    cleaned = reference.records()
    assert responses(reference) == expected
    assert reference.log.size_bytes < size_before
    assert total > 20
    for operation in range(1, total + 2):
        world = dirty_world(shape)
        world.disk.fail_at(operation)
        world.clean()
        assert world.disk.has_failed == (operation <= total)
        if how == "kill":
            world.kill()
        elif how == "power":
            world.lose_power(operation)
        else:
            world.disk.fail_at(
                None
            )  # The disk works again; the broker has been notified, and continues or is restarted.
            assert operation > total or not world.log.log_directory.is_online or TP in world.cleaner.uncleanable
            world.kill()
        assert producers(world) == known, f"operation {operation}"
        check(world, expected, cleaned, end_offset)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_disk_failure_during_cleaning_leaves_the_log_online(shape: tuple[int, int]) -> None:
    """Only incomplete renames take the directory offline: a full disk must not stop a topic that can be read."""
    for operation in count(1):
        world = dirty_world(shape)
        before = world.records()
        world.disk.fail_at(operation)
        world.clean()
        if not world.log.log_directory.is_online or not world.disk.has_failed:
            break
        world.disk.fail_at(None)
        assert TP in world.cleaner.uncleanable
        assert world.records() == before
        world.put((b"key-9", b"appended"))
        assert not world.clean()
    assert operation > 10


def died_while_cleaning(shape: tuple[int, int], operation: int) -> CleanerWorld:
    world = dirty_world(shape)
    world.disk.fail_at(operation)
    world.clean()
    return world


def is_swapping(world: CleanerWorld) -> bool:
    return any(name.endswith(".log.swap") for name in world.file_names())


def test_log_survives_a_crash_at_any_operation_of_swap_recovery() -> None:
    shape = SHAPES[0]
    reference = dirty_world(shape)
    expected, end_offset = responses(reference), reference.log.log_end_offset
    reference.clean()
    cleaned = reference.records()

    died_at = next(number for number in count(1) if is_swapping(died_while_cleaning(shape, number)))
    for operation in count(1):
        world = died_while_cleaning(shape, died_at)
        world.disk.kill()
        world.disk.fail_at(operation)
        with suppress(KctlError):
            world.start()
        has_failed = world.disk.has_failed
        world.lose_power(operation)
        check(world, expected, cleaned, end_offset)
        if not has_failed:
            break

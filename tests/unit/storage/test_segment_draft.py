"""Large batches are written by a thread to a draft, which becomes the file of a new segment when they are appended."""

from __future__ import annotations

import pytest

from kctl.limits import APPENDED_INLINE_BYTES_MAX
from kctl.records.allowance import Allowance, AllowanceExceeded
from kctl.records.batch import iterate_batches
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.validate import validate_produced, validate_replicated
from kctl.storage.config import LogConfig
from kctl.storage.names import DRAFT_SUFFIX
from kctl.storage.segments.draft import DraftedBatches
from tests.rows import for_rows
from tests.unit.storage.log_builder import NOW_MS, LogOnDisk

CONFIG = LogConfig(max_message_bytes=2 * APPENDED_INLINE_BYTES_MAX)
LARGE = bytes(range(256)) * 400


def large_batch(value: bytes = LARGE) -> bytearray:
    return bytearray(build_batch([Record(0, NOW_MS, b"k", value)]))


def drafted(machine: LogOnDisk) -> DraftedBatches:
    log = machine.log
    valid = validate_produced(large_batch(), log.config.append_rules, now_ms=NOW_MS, request_version=9)
    return log.new_draft().with_batches(valid)


def appended(machine: LogOnDisk) -> DraftedBatches:
    """Small batches, a large one from a draft, and small ones."""
    machine.append(b"1", b"2")
    batches = drafted(machine)
    machine.append(b"3")
    result = machine.log.append_as_leader(batches, leader_epoch=7, now_ms=NOW_MS)
    assert (result.base_offset, result.last_offset) == (3, 3)
    machine.append(b"5", leader_epoch=7)
    return batches


def drafts(machine: LogOnDisk) -> list[str]:
    return [name for name in machine.file_names() if name.endswith(DRAFT_SUFFIX)]


def test_a_large_batch_is_not_checked_on_the_event_loop() -> None:
    machine = LogOnDisk(CONFIG)
    records = memoryview(large_batch(bytes(APPENDED_INLINE_BYTES_MAX)))
    with pytest.raises(AllowanceExceeded):
        machine.log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, allowance=Allowance())
    assert machine.log.log_end_offset == 0


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_draft_is_read_like_other_batches_also_after_a_restart(seed: int | None) -> None:
    machine = LogOnDisk(CONFIG)
    expected = [b"1", b"2", b"3", LARGE, b"5"]
    assert appended(machine).draft.is_taken
    assert machine.values() == expected
    assert drafts(machine) == []
    (header,) = [
        header
        for header in iterate_batches(machine.log.read(3, 1 << 30, max_offset=4).read())
        if header.base_offset == 3
    ]
    assert header.leader_epoch == 7
    machine.log.flush()
    machine.crash_and_reopen(seed=seed)
    assert machine.values() == expected
    machine.close_and_reopen()
    assert machine.values() == expected


@for_rows("seed", range(8))
def test_a_power_failure_leaves_what_was_flushed_and_no_draft(seed: int) -> None:
    """As after a roll, the end of the segment before may be lost when the batch is not."""
    machine = LogOnDisk(CONFIG)
    machine.append(b"0")
    machine.log.flush()
    appended_values = [b"0", b"1", b"2", b"3", LARGE, b"5"]
    machine.append(b"1", b"2")
    batches = drafted(machine)
    machine.append(b"3")
    machine.log.append_as_leader(batches, leader_epoch=0, now_ms=NOW_MS)
    machine.append(b"5")
    machine.crash_and_reopen(seed=seed)
    values = machine.values()
    assert values[0] == b"0"
    assert values == [value for value in appended_values if value in values]
    assert drafts(machine) == []


def test_a_process_that_is_killed_before_the_append_leaves_no_draft() -> None:
    machine = LogOnDisk(CONFIG)
    machine.append(b"1")
    drafted(machine)
    assert len(drafts(machine)) == 1
    machine.crash_and_reopen()
    assert machine.values() == [b"1"]
    assert drafts(machine) == []


def test_the_first_batch_of_a_log_and_those_of_a_follower_can_be_drafts() -> None:
    leader, follower = LogOnDisk(CONFIG), LogOnDisk(CONFIG)
    leader.log.append_as_leader(drafted(leader), leader_epoch=4, now_ms=NOW_MS)
    leader.append(b"2", leader_epoch=4)
    fetched = leader.log.read(0, 1 << 30, max_offset=2).read()
    draft = follower.log.new_draft()
    follower.log.append_as_follower(draft.with_batches(validate_replicated(memoryview(bytearray(fetched)))))
    assert follower.values() == leader.values() == [LARGE, b"2"]
    assert follower.log.leader_epochs.latest_epoch == 4


def test_a_draft_of_a_log_that_was_moved_is_not_used() -> None:
    machine, other = LogOnDisk(CONFIG), LogOnDisk(CONFIG, at="/other")
    batches = drafted(other)
    machine.log.append_as_leader(batches, leader_epoch=0, now_ms=NOW_MS)
    assert not batches.draft.is_taken
    assert machine.values() == [LARGE]
    batches.draft.remove()
    assert drafts(other) == []

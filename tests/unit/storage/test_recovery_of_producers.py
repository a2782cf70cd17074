"""Recovery of producer state while a log is recovered."""

from __future__ import annotations

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.records.control import ControlType
from kctl.storage.config import LogConfig
from tests.unit.storage.log_builder import LogOnDisk


def test_keeps_every_batch_of_an_idempotent_producer_after_a_crash() -> None:
    disk = LogOnDisk()
    for sequence in range(5):
        disk.append(b"%d" % sequence, producer_id=7, sequence=sequence)

    log = disk.crash_and_reopen()

    assert log.log_end_offset == 5
    assert disk.values() == [b"0", b"1", b"2", b"3", b"4"]


def test_the_last_sequence_of_a_producer_survives_a_crash() -> None:
    disk = LogOnDisk()
    for sequence in range(5):
        disk.append(b"%d" % sequence, producer_id=7, sequence=sequence)

    disk.crash_and_reopen()

    again = disk.append(b"4", producer_id=7, sequence=4)
    assert again.base_offset == 4
    assert disk.log.log_end_offset == 5


@pytest.mark.parametrize("start", ["clean", "unclean"])
def test_requests_in_flight_at_a_stop_are_duplicates_after_the_start(start: str) -> None:
    """A client sends all five again, from the first on: with an error for the first one it repeats that for minutes."""
    for sequences in (range(5), range(2**31 - 3, 2**31 + 2)):
        # The last segment has two of the batches, so that the snapshot at its base offset has the third one only.
        disk = LogOnDisk(LogConfig(segment_bytes=300))
        numbers = [sequence % 2**31 for sequence in sequences]
        for sequence in numbers:
            disk.append(b"v" * 20, producer_id=7, sequence=sequence)
            disk.append(b"other")
        if start == "clean":
            disk.close_and_reopen()
        else:
            disk.crash_and_reopen(recovery_point=disk.log.segments[-1].base_offset)
        found = [disk.append(b"v" * 20, producer_id=7, sequence=sequence) for sequence in numbers]
        assert [(again.duplicate, again.base_offset) for again in found] == [(True, 2 * n) for n in range(5)], sequences
        assert disk.append(b"next", producer_id=7, sequence=sequences.stop % 2**31).base_offset == 10


def test_batches_that_were_never_appended_are_no_duplicates_after_a_start() -> None:
    disk = LogOnDisk()
    disk.append(b"0", producer_id=7, sequence=0)
    disk.log.producer_state.producers.clear()  # The producer has expired: it may go on with any number.
    for sequence in range(4, 10):
        disk.append(b"%d" % sequence, producer_id=7, sequence=sequence, leader_epoch=sequence)
    disk.close_and_reopen()
    for sequence in (0, 1, 3):
        with pytest.raises(ApiError) as refused:
            disk.append(b"%d" % sequence, producer_id=7, sequence=sequence, leader_epoch=10)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence
    assert disk.append(b"4", producer_id=7, sequence=4, leader_epoch=10).duplicate, "of an earlier leader epoch"


@pytest.mark.parametrize("start", ["clean", "unclean"])
@pytest.mark.parametrize("removed", [(".index", ".timeindex", ".txnindex"), (".index", ".txnindex", ".snapshot")])
def test_removed_indexes_are_built_again_with_their_aborted_transactions(removed: tuple[str, ...], start: str) -> None:
    disk = LogOnDisk(LogConfig(segment_bytes=200))
    for producer_id in (1, 2, 3):
        disk.append(b"a", producer_id=producer_id, transactional=True)
        disk.append(b"b" * 100)
        disk.end_transaction(ControlType.COMMIT if producer_id == 2 else ControlType.ABORT, producer_id=producer_id)
    expected = disk.log.aborted_transactions(0, disk.log.log_end_offset)
    assert {found.producer_id for found in expected} == {1, 3}
    assert len(disk.log.segments) > 2
    disk.close()

    for name in disk.file_names():
        if name.endswith(removed):
            disk.files.remove(f"{disk.directory}/{name}")
    log = disk.open(was_clean=start == "clean", recovery_point=disk.log.recovery_point)

    assert log.aborted_transactions(0, log.log_end_offset) == expected

"""Recovery of producer state while a log is recovered."""

from __future__ import annotations

import pytest

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

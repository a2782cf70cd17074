"""Recovery of producer state while a log is recovered."""

from __future__ import annotations

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

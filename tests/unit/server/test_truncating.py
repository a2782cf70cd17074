"""Truncations read the producers of a log in a thread, and have the result of one that reads them at once."""

from __future__ import annotations

import asyncio
import threading

from kctl.server.replication.follower.truncating import truncate
from kctl.storage.config import LogConfig
from kctl.storage.log.log import Log
from kctl.testing.sim_files import SimFiles
from tests.rows import for_rows
from tests.unit.storage.log_builder import LogOnDisk


class ThreadsOfReads(SimFiles):
    """Notes the threads that read whole files, as snapshots are read."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: set[int] = set()

    def read(self, path: str) -> bytes:
        self.readers.add(threading.get_ident())
        return super().read(path)


def filled(files: SimFiles) -> LogOnDisk:
    """Two producers with batches of three records, at offsets up to 30, in several segments."""
    machine = LogOnDisk(LogConfig(segment_bytes=300), files=files)
    for number in range(10):
        machine.append(b"a", b"b", b"c", producer_id=number % 2, sequence=number // 2 * 3)
        if number % 4 == 3:
            machine.log.roll(machine.now_ms)
            machine.log.flush()
    return machine


def state_of(log: Log) -> object:
    producers = log.producer_state.producers.values()
    return (
        log.log_end_offset,
        log.producer_state.end_offset,
        {producer.producer_id: producer.last_offset for producer in producers},
    )


@for_rows("offset", [0, 1, 3, 12, 13, 17, 24, 26, 29, 30])
def test_the_producers_are_read_in_a_thread(offset: int) -> None:
    files = ThreadsOfReads()
    machine, expected = filled(files), filled(SimFiles())
    expected.log.truncate_to(offset)
    files.readers.clear()
    assert asyncio.run(truncate(machine.log, offset, lambda: True)) == (offset < 30)
    assert state_of(machine.log) == state_of(expected.log)
    assert threading.get_ident() not in files.readers
    assert bool(files.readers) == (12 <= offset < 30)  # The first snapshot is at 12.


def test_a_truncation_that_is_obsolete_when_the_producers_have_been_read_is_left_out() -> None:
    machine = filled(SimFiles())
    before = state_of(machine.log)
    assert not asyncio.run(truncate(machine.log, 5, lambda: False))
    assert state_of(machine.log) == before


def test_a_truncation_meanwhile_makes_what_was_read_useless() -> None:
    machine, expected = filled(SimFiles()), filled(SimFiles())

    def cut_and_append() -> bool:
        machine.log.truncate_to(3)
        machine.append(b"x", b"y", b"z", producer_id=7)
        machine.append(b"x", b"y", b"z", producer_id=7, sequence=3)
        return True

    asyncio.run(truncate(machine.log, 6, cut_and_append))
    expected.log.truncate_to(3)
    expected.append(b"x", b"y", b"z", producer_id=7)
    assert state_of(machine.log) == state_of(expected.log)

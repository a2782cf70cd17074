"""The processes of the log cleaners: the same files as a thread writes, and what happens when one ends."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kctl.config.dynamic import ConfigView
from kctl.errors import CorruptLog, KctlError
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.control import ControlType
from kctl.records.header import Record
from kctl.server.loop.tasks import SystemClock
from kctl.server.replication.logs.cleaner_processes import CleanerProcesses
from kctl.server.replication.logs.cleaners import LogCleaners
from kctl.storage.cleaning.cleaner import WORKERS_MAX
from kctl.storage.cleaning.cleaning import CleaningTask, CleaningWork, NotedKeys, WorkerEnded, WrittenSegment
from kctl.storage.cleaning.messages import describe_error, error_of, frame_of, read_message
from kctl.storage.files import RealFiles
from kctl.storage.log_manager import LogManager
from kctl.storage.state.producer_state import ProducerEntry
from kctl.system.operating_system import is_process_alive
from tests.peers import probe
from tests.unit.storage.cleaner_world import COMPACTED, TP, CleanerWorld

PATIENCE_S = 60
HISTORIES = 6
TABLE = TopicPartition("table", 0)
DAY_MS = 86_400_000
OTHER_VERSION = """
import socket, sys
from kctl.storage.cleaning.messages import READY, frame_of

socket.socket(fileno=0).sendall(frame_of((READY, "99.1")))
sys.stdin.read()
"""


class MovedClock(SystemClock):
    """The system's clock, which tests set forward."""

    moved_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.moved_ms


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def write_history(world: CleanerWorld, chance: random.Random) -> None:
    """Records of all kinds, some of them compacted already: transactions, tombstones, codecs, producers, no key."""
    sequences: dict[int, int] = {}
    for number in range(chance.randrange(20, 60)):
        pairs = [
            (b"key-%d" % chance.randrange(12), chance.choice([None, chance.randbytes(chance.randrange(90))]))
            for _ in range(chance.randrange(1, 9))
        ]
        producer_id = chance.choice([-1, -1, 3, 4])
        is_transactional = producer_id == 4
        world.put(
            *pairs,
            codec=chance.choice([Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.GZIP]),
            producer_id=producer_id,
            sequence=sequences.get(producer_id, 0),
            transactional=is_transactional,
        )
        sequences[producer_id] = sequences.get(producer_id, 0) + len(pairs)
        if is_transactional and chance.randrange(2):
            world.end(chance.choice([ControlType.COMMIT, ControlType.ABORT]), 4)
        if number == 15:
            world.clean_all()
    world.end(ControlType.ABORT, 4)
    world.roll()


@pytest.mark.long
def test_a_process_writes_the_same_files_as_a_thread(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    async def compare() -> None:
        processes = CleanerProcesses(threads.submit)
        pids = set()

        def in_process(task: CleaningTask) -> CleaningWork:
            return processes.work_on(task, lambda: pytest.fail("no process was started"))

        for seed in range(HISTORIES):
            chance = random.Random(seed)
            config = replace(
                COMPACTED,
                segment_bytes=chance.choice([600, 2500, 1 << 20]),
                index_interval_bytes=chance.choice([0, 500]),
                delete_retention_ms=chance.choice([0, DAY_MS]),
                file_delete_delay_ms=0,
            )
            here, there = tmp_path / f"{seed}-thread", tmp_path / f"{seed}-process"
            here.mkdir()
            bytes_max = chance.choice([150, 1 << 20])
            first = CleanerWorld(config, files=RealFiles(), at=str(here), dedupe_buffer_bytes=bytes_max)
            write_history(first, chance)
            first.manager.clean_shutdown()
            shutil.copytree(here, there)
            cleaned = [
                CleanerWorld(config, files=RealFiles(), at=str(at), dedupe_buffer_bytes=bytes_max, work_on=work_on)
                for at, work_on in ((here, None), (there, in_process))
            ]
            for world in cleaned:
                while world.clean():
                    pass
                assert world.cleaner.uncleanable == {}
                world.manager.clean_shutdown()
            pids.update(processes.pids)
            assert contents(here) == contents(there), f"seed {seed}"
            assert cleaned[0].cleaner.statistics == cleaned[1].cleaner.statistics
        assert len(pids) == 1, "one process for all logs"
        processes.stop()
        await wait_for(lambda: not any(map(is_process_alive, pids)))

    asyncio.run(compare())


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """The bytes of each file of the log, and of the checkpoints; of segments also the modification time."""
    return {
        str(path.relative_to(folder)): (
            path.read_bytes(),
            path.stat().st_mtime_ns // 1_000_000 if path.suffix == ".log" else 0,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def has_ended(pid: int) -> bool:
    """Whether all threads of a child have ended; it is not reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


async def wait_for(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(probe.wait_until, condition, what="the condition", timeout_s=PATIENCE_S)


def drafts(folder: Path) -> list[Path]:
    return list(folder.rglob("*.log.cleaned"))


def dirty_table(folder: Path, clock: SystemClock) -> LogManager:
    """A log of 400 records of 1 KB in four segments; two have each key."""
    manager = LogManager([str(folder)], files=RealFiles(), clock=clock, random=random.Random(1))
    manager.load()
    log = manager.get_or_create(TABLE, config=replace(COMPACTED, segment_bytes=1 << 20))
    for number in range(400):
        record = Record(0, 1, b"key-%d" % (number % 200), random.Random(number).randbytes(1000))
        log.append_as_leader(bytearray(build_batch([record])), leader_epoch=0, now_ms=1)
        if number % 100 == 99:
            log.roll(1)
    log.flush()
    return manager


def run_cleaners(
    manager: LogManager,
    clock: SystemClock,
    work: Callable[[LogCleaners, ConfigView], Awaitable[None]],
    **properties: str,
) -> None:
    async def run() -> None:
        configs = ConfigView({name.replace("_", "."): value for name, value in properties.items()})
        cleaners = LogCleaners(
            manager,
            lambda log: log.log_end_offset,
            clock,
            configs=configs,
            random=random.Random(2),
            process_bytes_min=0,
        )
        configs.subscribe(cleaners._changed)
        try:
            await work(cleaners, configs)
        finally:
            await asyncio.wait_for(cleaners.stop(), PATIENCE_S)
        assert cleaners.processes.pids == []

    asyncio.run(run())
    manager.release()


@pytest.mark.long
def test_a_log_whose_process_is_killed_is_unchanged_and_cleaned_again(tmp_path: Path) -> None:
    clock = MovedClock()
    manager = dirty_table(tmp_path, clock)
    log = manager.logs[TABLE]
    bases = [segment.base_offset for segment in log.segments]

    async def work(cleaners: LogCleaners, configs: ConfigView) -> None:
        await cleaners.start_idle_cleaners()
        await wait_for(lambda: bool(drafts(tmp_path)))  # The first pass is over.
        (pid,) = cleaners.processes.pids
        os.kill(pid, signal.SIGKILL)
        await asyncio.wait_for(cleaners.idle(), PATIENCE_S)
        assert [segment.base_offset for segment in log.segments] == bases
        assert not drafts(tmp_path)
        assert manager.checkpoints.cleaner_offset(TABLE) is None
        assert cleaners.cleaner.uncleanable == {}
        await cleaners.start_idle_cleaners()
        assert cleaners.processes.pids == [], "it is tried again after a pause"

        assert configs.set_dynamic_default({"log.cleaner.io.max.bytes.per.second": "1e12"}) == []
        clock.moved_ms = 60_000
        await cleaners.start_idle_cleaners()
        await asyncio.wait_for(cleaners.idle(), PATIENCE_S)
        assert manager.checkpoints.cleaner_offset(TABLE) == 400
        assert cleaners.cleaner.statistics.keys == 200
        assert cleaners.processes.pids != [pid]

    # The first second is free: 400 KB are read at once, and what is written waits.
    run_cleaners(manager, clock, work, **{"log.cleaner.io.max.bytes.per.second": "410000"})
    assert sum(segment.size for segment in log.segments) < 250_000


@pytest.mark.long
def test_the_rate_of_a_process_is_changed_while_it_works(tmp_path: Path) -> None:
    clock = SystemClock()
    manager = dirty_table(tmp_path, clock)

    async def work(cleaners: LogCleaners, configs: ConfigView) -> None:
        await cleaners.start_idle_cleaners()
        await wait_for(lambda: bool(cleaners.processes.pids))
        assert cleaners._rate_of_each() == 200_000
        assert configs.set_dynamic_default({"log.cleaner.io.max.bytes.per.second": "1e12"}) == []
        await asyncio.wait_for(cleaners.idle(), PATIENCE_S)
        assert manager.checkpoints.cleaner_offset(TABLE) == 400

    run_cleaners(manager, clock, work, **{"log.cleaner.io.max.bytes.per.second": "200000"})


@pytest.mark.long
def test_a_stop_ends_the_process_and_removes_its_temporary_files(tmp_path: Path) -> None:
    clock = SystemClock()
    manager = dirty_table(tmp_path, clock)
    pids: list[int] = []

    async def work(cleaners: LogCleaners, _configs: ConfigView) -> None:
        await cleaners.start_idle_cleaners()
        await wait_for(lambda: bool(drafts(tmp_path)))
        pids.extend(cleaners.processes.pids)

    run_cleaners(manager, clock, work, **{"log.cleaner.io.max.bytes.per.second": "410000"})
    assert len(pids) == 1
    assert not is_process_alive(pids[0])
    assert not drafts(tmp_path)
    assert manager.checkpoints.cleaner_offset(TABLE) is None


def test_an_idle_process_ends(threads: ThreadPoolExecutor, tmp_path: Path) -> None:
    async def run() -> None:
        processes = CleanerProcesses(threads.submit, idle_s=0)
        world = CleanerWorld(
            files=RealFiles(),
            at=str(tmp_path),
            work_on=lambda task: processes.work_on(task, lambda: pytest.fail("no process was started")),
        )
        world.put((b"a", b"1"), (b"a", b"2"))
        world.clean_all()
        assert len(world.records()) == 1
        (pid,) = processes.pids
        await wait_for(lambda: not is_process_alive(pid))
        assert processes.pids == []
        world.manager.release()

    asyncio.run(run())


@pytest.mark.long
def test_an_idle_process_that_was_killed_is_replaced(threads: ThreadPoolExecutor, tmp_path: Path) -> None:
    async def run() -> None:
        processes = CleanerProcesses(threads.submit)
        world = CleanerWorld(
            files=RealFiles(),
            at=str(tmp_path),
            work_on=lambda task: processes.work_on(task, lambda: pytest.fail("no process was started")),
        )
        pids: list[int] = []
        for value in (b"1", b"2"):
            world.put((b"a", b"0"), (b"a", value))
            world.clean_all()
            assert [value for _, _, value in world.pairs()] == [value]
            (pid,) = processes.pids
            os.kill(pid, signal.SIGKILL)
            await wait_for(partial(has_ended, pid))
            pids.append(pid)
        assert len(set(pids)) == 2
        processes.stop()
        world.manager.release()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["/nonexistent"], "No such file or directory"),
        ([sys.executable, "-c", ""], "status 0"),
        (
            [
                *(sys.executable, "-c"),
                OTHER_VERSION,
            ],
            "kctl was upgraded to 99.1",
        ),
    ],
)
def test_a_thread_cleans_if_no_process_of_this_version_can_be_started(
    threads: ThreadPoolExecutor,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    command: list[str],
    reason: str,
) -> None:
    async def run() -> None:
        processes = CleanerProcesses(threads.submit, command=command)
        world = CleanerWorld(
            files=RealFiles(),
            at=str(tmp_path),
            work_on=lambda task: processes.work_on(task, lambda: world.cleaner.work_in_thread(task)),
        )
        for value in (b"1", b"2"):
            world.put((b"a", value))
            world.put((b"a", value))
            world.clean_all()
            assert [value for _, _, value in world.pairs()] == [value]
        assert processes.pids == []
        world.manager.release()

    asyncio.run(run())
    warnings = [record.getMessage() for record in caplog.records if "cannot start a process" in record.getMessage()]
    assert (len(warnings), reason in warnings[0]) == (1, True), warnings


class EndingWork:
    """Work of a process that ends each time."""

    def note_keys(self, _producers: list[ProducerEntry]) -> NotedKeys:
        raise WorkerEnded("the process of the cleaner has ended with signal SIGKILL")

    def write(self, first: int, end: int) -> WrittenSegment:
        raise AssertionError((first, end))

    def close(self) -> None:
        pass


def test_a_log_that_ends_each_process_is_left_alone() -> None:
    world = CleanerWorld(work_on=lambda _task: EndingWork())
    world.put((b"a", b"1"), (b"a", b"2"))
    world.roll()
    for attempt in range(1, WORKERS_MAX + 1):
        assert world.cleaner.uncleanable == {}
        assert world.clean(), attempt
        assert not world.clean(), "again at once"
        world.pass_time(3_600_000)
    assert "has ended with signal SIGKILL" in world.cleaner.uncleanable[TP]
    assert [record.value for record in world.records()] == [b"1", b"2"]


@pytest.mark.parametrize(
    "error",
    [
        CorruptLog("/data/orders-0/0.log", 17, "odd"),
        OSError(28, "No space left on device", "/data/orders-0/0.log.cleaned"),
        ValueError("other"),
    ],
)
def test_errors_of_a_process_are_those_of_a_thread(error: Exception) -> None:
    frame = frame_of(("failed", *describe_error(error)))
    position = 0

    def receive(size: int) -> bytes:
        nonlocal position
        part = frame[position : position + min(size, 3)]
        position += len(part)
        return part

    message = read_message(receive)
    assert message is not None
    same = error_of(*message[1:])
    if isinstance(error, ValueError):
        assert (type(same), str(same)) == (KctlError, "ValueError: other")
    else:
        assert (type(same), str(same)) == (type(error), str(error))
    assert read_message(receive) is None

"""Measures how long a group coordinator takes to load 1,000,000 committed offsets, and the effect on others.

    python -m benchmarks.offsets_loading [--runs 3] [--offsets 1000000] [--dir DIR]

One partition of __consumer_offsets on disk, read by the broker's own reader into its own coordinator, in this process.
Three shapes: few groups that commit many partitions at once, many groups that commit a few, and commits one by one.
While it loads, a task yields to the loop over and over.  The longest time that the loop's thread worked between
two turns is the pause: processor time, so that what else the machine does is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from benchmarks.harness.report import Figure, report
from kctl.model import GROUP_METADATA_TOPIC, TopicPartition
from kctl.records.build import build_batch
from kctl.server.cluster.topics.internal import InternalLog
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.groups.records import offset_records
from kctl.server.loop import memory
from kctl.server.loop.tasks import SystemClock
from kctl.server.loop.timer import WheelTimer
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.files import RealFiles
from kctl.storage.log.log import Log
from kctl.storage.recovery.recovery import open_log

NOW_MS = 1_700_000_000_000
PARTITION = 0
LOAD_BUFFER_BYTES = 5 << 20
GOAL_S = "< 5"


@dataclass(frozen=True, slots=True)
class Shape:
    """How 1,000,000 commits may look."""

    name: str
    partitions_per_group: int
    commits_per_batch: int


SHAPES = (
    Shape("1,000 groups, 20 a commit", 1_000, 20),
    Shape("10,000 groups, 10 a commit", 100, 10),
    Shape("1,000 groups, one by one", 1_000, 1),
)


class OneLog:
    """As much of the broker's replica manager and metadata as the reader of internal topics needs."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def partition(self, _topic: str, _index: int) -> OneLog:
        return self

    def partition_count(self, _topic: str) -> int:
        return 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--offsets", type=int, default=1_000_000)
    parser.add_argument("--dir", default=None, help="where to write; default: the temporary folder")
    options = parser.parse_args()
    figures: list[Figure] = []
    for shape in SHAPES:
        with tempfile.TemporaryDirectory(prefix="kctl-loading-", dir=options.dir) as folder:
            log = filled_log(folder, shape, options.offsets)
            runs = [asyncio.run(load(log, shape, options.offsets)) for _ in range(options.runs)]
            log.release()
        took, used, pauses, memory = zip(*runs, strict=True)
        figures += [
            Figure(f"{shape.name}: load", "s", took, GOAL_S),
            Figure(f"{shape.name}: processor", "s", used, GOAL_S),
            Figure(f"{shape.name}: pause", "ms", pauses),
            Figure(f"{shape.name}: memory", "B/offset", memory),
        ]
    report("offsets_loading", figures, runs=options.runs, offsets=options.offsets)


def filled_log(folder: str, shape: Shape, offsets: int) -> Log:
    """A partition with so many commits, each of another partition of another group."""
    log = open_log(
        TopicPartition(GROUP_METADATA_TOPIC, PARTITION),
        f"{folder}/{GROUP_METADATA_TOPIC}-{PARTITION}",
        LogConfig(segment_bytes=100 << 20),
        files=RealFiles(),
        log_directory=LogDirectory(folder),
        removals=DelayedRemovals(),
        random=random.Random(1),
        now_ms=NOW_MS,
    )
    for group_id, committed in commits(shape, offsets):
        batch = build_batch(offset_records(group_id, committed, NOW_MS))
        log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=NOW_MS, from_client=False)
    return log


def commits(shape: Shape, offsets: int) -> Iterator[tuple[str, dict[TopicPartition, OffsetAndMetadata]]]:
    """What the groups commit; every topic has 100 partitions."""
    for first in range(0, offsets, shape.commits_per_batch):
        group, position = divmod(first, shape.partitions_per_group)
        yield (
            f"group-of-consumers-{group}",
            {
                TopicPartition(f"orders-of-region-{number // 100}", number % 100): OffsetAndMetadata(
                    first + number, leader_epoch=1, commit_timestamp_ms=NOW_MS
                )
                for number in range(position, position + shape.commits_per_batch)
            },
        )


async def load(log: Log, shape: Shape, offsets: int) -> tuple[float, float, float, float]:
    """Seconds until all is there, and of them on the processor; the longest pause in ms; bytes of memory per offset."""
    loop = asyncio.get_running_loop()
    clock = SystemClock()
    only_log = cast(Any, OneLog(log))
    coordinator = GroupCoordinator(
        broker_id=0,
        config=GroupConfig(),
        offsets_log=InternalLog(only_log, only_log, only_log, load_buffer_bytes=LOAD_BUFFER_BYTES),
        clock=clock,
        timer=WheelTimer(clock, loop),
        random=random.Random(1),
    )
    coordinator.start()
    memory.freeze()  # As the broker does when it has started.
    before = resident_bytes()
    pauses: list[float] = []
    watcher = loop.create_task(watch(pauses))
    await asyncio.sleep(0.05)
    pauses.clear()
    started, used = time.perf_counter(), time.process_time()
    coordinator.partitions.on_leader(PARTITION, 0)
    await coordinator.partitions.loaded()
    took_s, used_s = time.perf_counter() - started, time.process_time() - used
    await asyncio.sleep(0.05)
    watcher.cancel()
    grown = resident_bytes() - before
    groups = -(-offsets // shape.partitions_per_group)
    assert len((await coordinator.groups())[1]) == groups
    _, found = coordinator.committed(f"group-of-consumers-{groups - 1}", None)
    assert len(found) == min(shape.partitions_per_group, offsets)
    await coordinator.stop()
    gc.unfreeze()
    return took_s, used_s, max(pauses) * 1000, grown / offsets


async def watch(pauses: list[float]) -> None:
    """Measures how long each iteration of the loop takes that is not its own."""
    last = time.thread_time()
    for _ in itertools.count():
        await asyncio.sleep(0)
        now = time.thread_time()
        pauses.append(now - last)
        last = now


def resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


if __name__ == "__main__":
    main()

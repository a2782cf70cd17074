"""A log manager on a simulated disk, with default settings."""

from __future__ import annotations

import random

from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager
from kctl.testing.sim_clock import ManualClock
from kctl.testing.sim_files import SimFiles
from tests.unit.storage.log_builder import NOW_MS

TP = TopicPartition("orders", 0)


def manager_on(disk: SimFiles, *log_dirs: str, clock: ManualClock | None = None, **more: object) -> LogManager:
    manager = LogManager(
        log_dirs or ["/data"],
        files=disk,
        clock=clock or ManualClock(start_ms=NOW_MS),
        random=random.Random(1),
        **more,  # type: ignore[arg-type]
    )
    manager.load()
    return manager


def produce(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(build_batch([Record(0, NOW_MS, b"k", b"v")]), leader_epoch=0, now_ms=NOW_MS)


def remove_due_files(manager: LogManager, now_ms: int) -> None:
    """As the broker does periodically."""
    plan = manager.plan_removals(now_ms)
    plan.run()
    manager.take_failures(plan)

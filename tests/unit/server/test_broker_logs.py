"""Logs that are loaded and closed in a thread."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

from kctl.config.dynamic import ConfigView
from kctl.model import TopicPartition
from kctl.server.network.world import real_world
from kctl.server.replication.logs.broker_logs import BrokerLogs
from kctl.storage.config import LogConfig
from kctl.testing.sim_files import SimFiles
from tests.unit.storage.manager_builder import manager_on, produce

PATIENCE_S = 60


class WaitingFiles(SimFiles):
    """The first look at a log waits until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reached, self.may_go_on = threading.Event(), threading.Event()

    def stamp(self, path: str) -> tuple[int, int]:
        self.is_reached.set()
        self.may_go_on.wait(PATIENCE_S)
        return super().stamp(path)


def test_a_broker_that_is_stopped_while_it_loads_logs_waits_for_that_and_leaves_them_clean() -> None:
    disk = WaitingFiles()
    disk.may_go_on.set()
    before = manager_on(disk)
    for number in range(3):
        produce(before.get_or_create(TopicPartition("orders", number)))
    before.clean_shutdown({})
    names = [entry.name for entry in disk.list("/data")]
    disk.is_reached.clear()
    disk.may_go_on.clear()

    async def start_and_stop() -> None:
        logs = BrokerLogs(
            ConfigView({"log.dirs": "/data"}),
            replace(real_world(), files=disk),
            on_log_dir_failure=lambda: None,
            fail=lambda error: None,
        )
        starting = asyncio.create_task(logs.load(lambda topic: LogConfig()))
        assert await asyncio.to_thread(disk.is_reached.wait, PATIENCE_S)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        closing = asyncio.create_task(logs.close(None))
        await asyncio.sleep(0)
        assert disk.locks, "the directory is locked as long as the thread uses it"
        disk.may_go_on.set()
        await closing

    asyncio.run(start_and_stop())
    assert not disk.locks
    assert [entry.name for entry in disk.list("/data")] == names

"""One broker with several log directories on a simulated disk, whose replicas move between them."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from uuid import UUID

from kctl.config.dynamic import ConfigView
from kctl.errors import ApiError
from kctl.model import ZERO_UUID, TopicPartition
from kctl.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.loop.timer import WheelTimer
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.logs.broker_logs import LogTasks
from kctl.server.replication.logs.log_dir_moves import LogDirMoves
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.purgatory import Purgatory
from kctl.storage.config import LogConfig
from kctl.storage.files import Entry
from kctl.storage.log.log import Log
from kctl.storage.log_manager import LogManager
from kctl.testing.sim_clock import SimClock
from kctl.testing.sim_files import SimFiles
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.storage.log_builder import read_records

BROKER_ID = 0
TP = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, segment_index_bytes=1200, file_delete_delay_ms=1000)
BACKOFF_MS = 100


class Disks(SimFiles):
    """Log directories on disks of their own: one fails alone."""

    def __init__(self) -> None:
        super().__init__()
        self._failing = ""
        self._left = 0
        self.failed: list[tuple[str, str]] = []
        """(operation, path) of the first failed operation, and of all after it."""

    def fail_disk_at(self, operation: int, log_dir: str) -> None:
        """Makes the n-th operation in this directory and all after it raise OSError."""
        self._failing, self._left = log_dir + "/", operation

    def mend(self) -> None:
        self._failing = ""
        self.failed.clear()

    def list(self, directory: str) -> list[Entry]:
        self.step("list", directory)
        return super().list(directory)

    def step(self, operation: str, path: str) -> None:
        super().step(operation, path)
        if self._failing and (path + "/").startswith(self._failing):
            self._left -= 1
            if self._left <= 0:
                self.failed.append((operation, path))
                raise OSError(errno.EIO, f"{os.strerror(errno.EIO)} (simulated, {operation})", path)


class MoveWorld:
    """Leader epochs are incremented with every role."""

    def __init__(
        self,
        loop: SimLoop,
        disk: SimFiles | None = None,
        *,
        log_dirs: tuple[str, ...] = ("/one", "/two"),
        config: LogConfig = CONFIG,
        bytes_per_second: float = 1e18,
        workers: int = 2,
        leader_epoch: int = 0,
    ) -> None:
        self.disk = disk if disk is not None else SimFiles()
        self.config = config
        self.bytes_per_second = bytes_per_second
        self.clock = SimClock(loop.time)
        self.failed: list[str] = []
        self.logs = LogManager(
            log_dirs,
            files=self.disk,
            clock=self.clock,
            random=random.Random(self.disk.operations),
            default_config=config,
            on_log_dir_failure=self.failed.append,
        )
        self.logs.load()
        timer = WheelTimer(self.clock, loop)
        self.metadata = MetadataCache()
        self.replicas = ReplicaManager(
            BROKER_ID,
            logs=self.logs,
            metadata=self.metadata,
            clock=self.clock,
            produce_purgatory=Purgatory(timer),
            fetch_purgatory=Purgatory(timer),
            log_config=lambda _: config,
            lag_time_max_ms=30_000,
            min_insync_replicas=lambda _: 1,
        )
        self.moves = LogDirMoves(
            self.replicas,
            self.logs,
            self.clock,
            workers=workers,
            piece_bytes=300,
            backoff_ms=BACKOFF_MS,
            bytes_per_second=lambda: self.bytes_per_second,
        )
        self.leader_epoch = leader_epoch

    def lead(
        self,
        tp: TopicPartition = TP,
        *,
        leader: int = BROKER_ID,
        replicas: tuple[int, ...] = (0,),
        topic_id: UUID = ZERO_UUID,
    ) -> Partition:
        """The controller makes `leader` the leader; raises ApiError if the broker refuses."""
        self.leader_epoch += 1
        state = LeaderAndIsrPartitionState(
            partition_index=tp.partition,
            controller_epoch=1,
            leader=leader,
            leader_epoch=self.leader_epoch,
            isr=list(replicas),
            partition_epoch=0,
            replicas=list(replicas),
            is_new=tp not in self.logs.logs,
        )
        topics = [LeaderAndIsrTopicState(topic_name=tp.topic, topic_id=topic_id, partition_states=[state])]
        request = LeaderAndIsrRequest(controller_id=0, controller_epoch=1, type=0, topic_states=topics, live_leaders=[])
        outcome, changed = self.replicas.become_leader_or_follower(request)
        for partition in changed:
            self.moves.resume(partition)
        for code in outcome.values():
            if code:
                raise ApiError(code)
        return self.replicas.partitions[tp]

    def stop_replica(self, tp: TopicPartition = TP, *, delete: bool = False) -> None:
        """The controller stops the replica."""
        state = StopReplicaPartitionState(partition_index=tp.partition, leader_epoch=-1, delete_partition=delete)
        topics = [StopReplicaTopicState(topic_name=tp.topic, partition_states=[state])]
        request = StopReplicaRequest(controller_id=0, controller_epoch=1, topic_states=topics)
        for partition in self.replicas.stop_replicas(request)[1]:
            self.moves.stop(partition.topic_partition)

    def append(self, *values: bytes, tp: TopicPartition = TP) -> None:
        """One batch per value.  Raises ApiError."""
        partition = self.replicas.partition(*tp)
        for value in values:
            batch = bytearray(build_batch([Record(0, self.clock.now_ms(), b"key", value)]))
            self.replicas.append(partition, memoryview(batch), required_acks=1, request_version=9)

    def log(self, tp: TopicPartition = TP) -> Log:
        return self.logs.logs[tp]

    def place(self, tp: TopicPartition = TP) -> str:
        return self.log(tp).log_directory.path

    def values(self, tp: TopicPartition = TP) -> list[bytes | None]:
        log = self.log(tp)
        return [record.value for record in read_records(log, log.log_start_offset)]

    def names(self, log_dir: str) -> list[str]:
        """The folders in a log directory."""
        return [entry.name for entry in self.disk.list(log_dir) if entry.is_directory]

    async def begin_slow_move(self, path: str) -> None:
        """Returns when the copy has its first records; the next ones take until `bytes_per_second` is raised."""
        self.bytes_per_second = 1
        self.moves.move(TP, path)
        await until(lambda: self.logs.futures.logs[TP].log_end_offset > 0)

    async def settled(self) -> None:
        """Returns when no move is in progress."""
        await until(lambda: not len(self.moves))

    def log_tasks(self) -> LogTasks:
        return LogTasks(self.logs, self.replicas, self.clock, configs=ConfigView({}), random=random.Random(1))


async def until(holds: Callable[[], bool]) -> None:
    """Advances virtual time; fails after an hour of it."""
    async with asyncio.timeout(3600):
        while not holds():  # noqa: ASYNC110 - advances virtual time
            await asyncio.sleep(0.001)


def play(scene: Callable[[MoveWorld], Awaitable[None]], **more: Any) -> None:
    """A scenario with this world and running workers."""

    async def main(loop: SimLoop) -> None:
        world = MoveWorld(loop, **more)
        world.moves.start()
        try:
            await scene(world)
        finally:
            await world.moves.close()

    simulate(main, seed=1)


def run(main: Callable[[SimLoop], Coroutine[Any, Any, None]]) -> None:
    simulate(main, seed=1)

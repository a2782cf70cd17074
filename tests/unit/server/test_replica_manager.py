"""The partitions of a broker as the controller changes them, on a simulated disk."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Collection
from uuid import UUID

import pytest

from kctl.errors import ErrorCode
from kctl.model import TopicPartition, uuid_text
from kctl.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from kctl.server.loop.timer import WheelTimer
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.purgatory import Purgatory
from kctl.storage.config import LogConfig
from kctl.storage.log_manager import LogManager
from kctl.testing.sim_clock import ManualClock
from kctl.testing.sim_files import SimFiles

TOPIC = "orders"


class CountingFiles(SimFiles):
    """Counts operations by kind."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[str, int] = {}

    def step(self, operation: str, path: str) -> None:
        super().step(operation, path)
        self.steps[operation] = self.steps.get(operation, 0) + 1


def replica_manager(disk: SimFiles, loop: asyncio.AbstractEventLoop) -> ReplicaManager:
    clock = ManualClock(start_ms=0)
    logs = LogManager(["/data"], files=disk, clock=clock, random=random.Random(1))
    logs.load()
    timer = WheelTimer(clock, loop)
    return ReplicaManager(
        1,
        logs=logs,
        metadata=MetadataCache(),
        clock=clock,
        produce_purgatory=Purgatory(timer),
        fetch_purgatory=Purgatory(timer),
        log_config=lambda _: LogConfig(),
        lag_time_max_ms=30_000,
        min_insync_replicas=lambda _: 1,
    )


def lead(manager: ReplicaManager, partitions: int, *, leader_epoch: int = 0) -> None:
    states = [
        LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=1,
            leader_epoch=leader_epoch,
            isr=[1],
            partition_epoch=0,
            replicas=[1],
            is_new=True,
        )
        for index in range(partitions)
    ]
    topic = LeaderAndIsrTopicState(topic_name=TOPIC, partition_states=states)
    manager.become_leader_or_follower(
        LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=[topic], live_leaders=[])
    )


def delete(manager: ReplicaManager, partitions: int) -> None:
    states = [
        StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=True)
        for index in range(partitions)
    ]
    topic = StopReplicaTopicState(topic_name=TOPIC, partition_states=states)
    manager.stop_replicas(StopReplicaRequest(controller_id=1, controller_epoch=1, topic_states=[topic]))


def syncs_of_a_deletion(partitions: int) -> int:
    disk = CountingFiles()
    with asyncio.Runner() as runner:
        manager = replica_manager(disk, runner.get_loop())
        lead(manager, partitions)
        disk.steps.clear()
        delete(manager, partitions)
        runner.run(manager.write_deletions())
    assert not manager.partitions
    assert manager.logs.get(TopicPartition(TOPIC, 0)) is None
    return disk.steps.get("sync", 0)


def test_deleting_a_topic_syncs_as_often_for_many_partitions_as_for_one() -> None:
    """A checkpoint contains all partitions: writing it once per partition took minutes for a few thousand."""
    assert syncs_of_a_deletion(50) == syncs_of_a_deletion(1) > 0


class Waiting:
    """Waits for all partitions, as a follower's fetch does, and counts its checks."""

    future = None

    def __init__(self) -> None:
        self.looks = 0

    def try_complete(self, changed: Collection[object]) -> bool:
        self.looks += 1
        return False

    def on_timeout(self) -> None:
        """No delayed requests."""


def test_a_waiting_request_is_checked_once_when_many_partitions_advance() -> None:
    """Each check is of all partitions: one per changed partition took seconds when a broker with many lost
    leadership.
    """

    async def scenario() -> None:
        manager = replica_manager(SimFiles(), asyncio.get_running_loop())
        lead(manager, 50)
        waiting = Waiting()
        manager._fetch_purgatory.complete_or_watch(waiting, list(manager.partitions), 1_000_000)
        waiting.looks = 0
        lead(manager, 50, leader_epoch=1)
        await asyncio.sleep(0)
        assert waiting.looks == 1
        delete(manager, 50)
        await asyncio.sleep(0)
        assert waiting.looks == 2

    asyncio.run(scenario())


def reported(manager: ReplicaManager, topic_id: UUID) -> dict[TopicPartition, ErrorCode]:
    """The error codes of LeaderAndIsr that makes this broker leader of a partition of the topic with this id."""
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=1,
        leader_epoch=0,
        isr=[1],
        partition_epoch=0,
        replicas=[1],
    )
    topic = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=topic_id, partition_states=[state])
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=[topic], live_leaders=[])
    return manager.become_leader_or_follower(request)[0]


def test_log_with_another_topic_id_is_refused_and_a_remedy_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, tp = SimFiles(), TopicPartition(TOPIC, 0)
    with asyncio.Runner() as runner:
        before = replica_manager(disk, runner.get_loop())
        assert reported(before, UUID(int=5)) == {tp: ErrorCode.NONE}
        before.logs.clean_shutdown()
        manager = replica_manager(disk, runner.get_loop())
        assert reported(manager, UUID(int=6)) == {tp: ErrorCode.INCONSISTENT_TOPIC_ID}
        assert tp not in manager.partitions
        (line,) = [record.getMessage() for record in caplog.records if "inconsistent topic id" in record.getMessage()]
        for output in (
            "partition=orders-0",
            "directory=/data/orders-0",
            uuid_text(UUID(int=5)),
            uuid_text(UUID(int=6)),
        ):
            assert output in line
        assert reported(manager, UUID(int=5)) == {tp: ErrorCode.NONE}


def test_malformed_partition_metadata_is_logged_and_rewritten(caplog: pytest.LogCaptureFixture) -> None:
    disk, tp = SimFiles(), TopicPartition(TOPIC, 0)
    with asyncio.Runner() as runner:
        before = replica_manager(disk, runner.get_loop())
        reported(before, UUID(int=5))
        before.logs.clean_shutdown()
        path = "/data/orders-0/partition.metadata"
        sound = disk.read(path)
        disk.write_atomically(path, b"version: 0\ntopic_id: ?")
        assert reported(replica_manager(disk, runner.get_loop()), UUID(int=5)) == {tp: ErrorCode.NONE}
        assert disk.read(path) == sound
        (line,) = [
            record.getMessage() for record in caplog.records if "corrupt partition.metadata" in record.getMessage()
        ]
        assert f"{path} at position 0: topic_id is missing or malformed" in line


class ThreadsOfFiles(SimFiles):
    """Notes the threads that use files."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def step(self, operation: str, path: str) -> None:
        super().step(operation, path)
        self.threads.add(threading.get_ident())


TOPIC_ID = UUID(int=7)


def roles(*, leader: int, partitions: int = 3) -> LeaderAndIsrRequest:
    """Roles of partitions that are new to broker 1."""
    states = [
        LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=leader,
            leader_epoch=5,
            isr=[leader],
            partition_epoch=0,
            replicas=[1, 2],
            is_new=True,
        )
        for index in range(partitions)
    ]
    topic = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=states)
    return LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=[topic], live_leaders=[])


@pytest.mark.parametrize("leader", [1, 2])
def test_the_event_loop_does_not_wait_for_files_of_new_logs(leader: int) -> None:
    async def main() -> None:
        disk = ThreadsOfFiles()
        manager = replica_manager(disk, asyncio.get_running_loop())
        disk.threads.clear()
        request = roles(leader=leader)
        await manager.create_logs(request)
        assert not manager.partitions, "nothing is served before it has a role"
        assert not manager.logs.logs
        outcome, changed = manager.become_leader_or_follower(request)
        assert set(outcome.values()) == {ErrorCode.NONE}
        assert len(changed) == len(manager.logs.logs) == 3
        assert disk.threads
        assert threading.get_ident() not in disk.threads
        for partition in changed:
            assert partition.log.topic_id == TOPIC_ID
            assert partition.log.leader_epochs.latest_epoch == (5 if leader == 1 else -1)
        manager.logs.clean_shutdown()
        again = replica_manager(disk, asyncio.get_running_loop()).logs.logs
        assert {log.topic_id for log in again.values()} == {TOPIC_ID}

    asyncio.run(main())


def test_logs_of_invalid_roles_are_not_created() -> None:
    async def main() -> None:
        disk = CountingFiles()
        manager = replica_manager(disk, asyncio.get_running_loop())
        disk.steps.clear()
        for name, replicas, epoch in (("../victim", [1], 0), (TOPIC, [2], 0), (TOPIC, [1], -1)):
            request = roles(leader=1, partitions=1)
            request.topic_states[0].topic_name = name
            request.topic_states[0].partition_states[0].replicas = replicas
            request.topic_states[0].partition_states[0].leader_epoch = epoch
            await manager.create_logs(request)
            assert ErrorCode.NONE not in manager.become_leader_or_follower(request)[0].values()
        assert not disk.steps

    asyncio.run(main())


def test_a_directory_that_fails_while_logs_are_created_goes_offline() -> None:
    async def main() -> None:
        disk = SimFiles()
        manager = replica_manager(disk, asyncio.get_running_loop())
        disk.fail_at(0)
        request = roles(leader=1)
        await manager.create_logs(request)
        assert not manager.logs.online_directories
        assert set(manager.become_leader_or_follower(request)[0].values()) == {ErrorCode.KAFKA_STORAGE_ERROR}

    asyncio.run(main())

"""flush.messages: appends are acknowledged after the sync, and the event loop is not blocked meanwhile."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable

import pytest

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.handlers.produce import ProduceHandler
from kctl.server.loop.timer import WheelTimer
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.requests.purgatory import Purgatory
from kctl.server.requests.record_work import RecordWork
from kctl.storage.config import LogConfig
from kctl.storage.log_manager import LogManager
from kctl.testing.sim_clock import ManualClock
from kctl.testing.sim_files import SimFiles

TOPIC = "orders"
ACKS = pytest.mark.parametrize("acks", [1, -1])


class SlowDisk(SimFiles):
    """Syncs in other threads than the first wait until they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.may_sync = threading.Event()
        self.plans = 0
        self.loop_may_sync = False
        self._loop_thread = threading.current_thread()

    def step(self, operation: str, path: str) -> None:
        if operation.startswith("sync") and threading.current_thread() is self._loop_thread:
            assert self.loop_may_sync
        elif operation.startswith("sync"):
            self.plans += operation == "sync directory"
            assert self.may_sync.wait(30)
        super().step(operation, path)


class World:
    """Broker 1 leads partition 0, which flushes each message, and partition 1, which does not."""

    def __init__(self) -> None:
        self.disk = SlowDisk()
        clock = ManualClock(start_ms=0)
        logs = LogManager(["/data"], files=self.disk, clock=clock, random=random.Random(1))
        logs.load()
        timer = WheelTimer(clock, asyncio.get_running_loop())
        purgatory: Purgatory[TopicPartition] = Purgatory(timer)
        self.replicas = ReplicaManager(
            1,
            logs=logs,
            metadata=MetadataCache(),
            clock=clock,
            produce_purgatory=purgatory,
            fetch_purgatory=Purgatory(timer),
            log_config=lambda _: LogConfig(),
            lag_time_max_ms=30_000,
            min_insync_replicas=lambda _: 1,
        )
        self._handler = ProduceHandler(self.replicas, purgatory, RecordWork(), clock, MetadataCache())
        self._sent = 0
        for index in (0, 1):
            self._lead(index)
        self.partition.log.config = LogConfig(flush_messages=1)

    @property
    def partition(self) -> Partition:
        return self.replicas.partition(TOPIC, 0)

    def _lead(self, index: int) -> None:
        state = LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=1,
            leader_epoch=0,
            isr=[1],
            partition_epoch=0,
            replicas=[1],
            is_new=True,
        )
        topic = LeaderAndIsrTopicState(topic_name=TOPIC, partition_states=[state])
        self.replicas.become_leader_or_follower(
            LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=[topic], live_leaders=[])
        )

    def produce(self, index: int, acks: int) -> ProduceResponse | asyncio.Future[ProduceResponse]:
        self._sent += 1
        batch = memoryview(bytearray(build_batch([Record(0, 0, b"k", b"%d" % self._sent)])))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=index, records=batch)])
            ],
        )
        context = RequestContext(9, 1, "client", Peer("/127.0.0.1", "PLAINTEXT"))
        reply = self._handler.handle(request, context)
        assert isinstance(reply, (ProduceResponse, asyncio.Future))
        return reply


def outcome(response: ProduceResponse) -> tuple[int, int]:
    reply = response.responses[0].partition_responses[0]
    return reply.error_code, reply.base_offset


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def notify() -> None:
        async with asyncio.timeout(60):
            world = World()
            try:
                await scenario(world)
            finally:
                world.disk.may_sync.set()
                await world.replicas.flushes.close()

    asyncio.run(notify())


@ACKS
def test_the_response_to_an_append_is_sent_after_its_sync(acks: int) -> None:
    async def scenario(world: World) -> None:
        reply = world.produce(0, acks)
        assert isinstance(reply, asyncio.Future)
        await asyncio.sleep(0)
        assert (reply.done(), world.partition.high_watermark, world.partition.log.log_end_offset) == (False, 0, 1)
        world.disk.may_sync.set()
        assert outcome(await reply) == (ErrorCode.NONE, 0)
        assert (world.partition.high_watermark, world.partition.log.recovery_point) == (1, 1)

    play(scenario)


def test_other_partitions_are_served_while_one_waits_for_the_disk() -> None:
    async def scenario(world: World) -> None:
        waiting = world.produce(0, -1)
        for number in range(3):
            reply = world.produce(1, -1)
            assert isinstance(reply, ProduceResponse), "nothing to wait for"
            assert outcome(reply) == (ErrorCode.NONE, number)
            await asyncio.sleep(0)
        assert isinstance(waiting, asyncio.Future)
        assert not waiting.done()

    play(scenario)


def test_appends_during_a_sync_share_the_next_sync() -> None:
    async def scenario(world: World) -> None:
        results = [world.produce(0, -1)]
        await asyncio.sleep(0)  # The first sync determines its files.
        results += [world.produce(0, acks) for acks in (-1, 1) * 20]
        world.disk.may_sync.set()
        offsets = [outcome(await reply) for reply in results if isinstance(reply, asyncio.Future)]
        assert offsets == [(ErrorCode.NONE, number) for number in range(41)]
        assert world.disk.plans == 2

    play(scenario)


@ACKS
def test_a_failed_sync_returns_an_error_and_takes_the_directory_offline(acks: int) -> None:
    async def scenario(world: World) -> None:
        reply = world.produce(0, acks)
        world.disk.fail_at(1)
        world.disk.may_sync.set()
        assert isinstance(reply, asyncio.Future)
        assert outcome(await reply) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert not world.replicas.logs.online_directories

    play(scenario)


@ACKS
def test_deleting_a_topic_during_its_sync_does_not_count_as_a_disk_failure(acks: int) -> None:
    async def scenario(world: World) -> None:
        log = world.partition.log
        assert isinstance(world.produce(0, acks), asyncio.Future)
        await asyncio.sleep(0)  # The sync determines its files by the current name of the directory.
        world.disk.loop_may_sync = True
        world.replicas.logs.delete(log.topic_partition)
        world.disk.may_sync.set()
        await world.replicas.flushes.close()
        assert world.replicas.logs.online_directories
        assert not log.awaits_flush

    play(scenario)


def test_a_follower_flushes_copied_records_before_it_fetches_again() -> None:
    async def scenario(world: World) -> None:
        log = world.partition.log
        log.append_as_follower(build_batch([Record(0, 0, b"k", b"v")], leader_epoch=0))
        settled = asyncio.ensure_future(world.replicas.flushes.settle([log]))
        await asyncio.sleep(0)
        assert not settled.done()
        world.disk.may_sync.set()
        await settled
        assert (log.recovery_point, log.awaits_flush) == (1, False)

    play(scenario)

"""The published losses and divergences of truncation by high watermark, on whole brokers by protocol version.

With inter.broker.protocol.version 0.10.2 followers cut at their high watermark, as all brokers did before KIP-101; with
1.1 they request the end of one epoch, once (KIP-101); from 2.0 on they go back epoch by epoch (KIP-279).  The same
history is simulated with each version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from kctl.client.cluster import ClusterClient
from kctl.client.producing.partitioners import DefaultPartitioner
from kctl.client.producing.producer import Delivery, Producer, ProducerSettings
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kctl.server.replication.partition import Partition
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate

TOPIC = "orders"
TP = TopicPartition(TOPIC, 0)
BY_HIGH_WATERMARK = {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.10.2"}
BY_ONE_EPOCH = {"inter.broker.protocol.version": "1.1", "log.message.format.version": "1.1"}
BY_EPOCHS: dict[str, str] = {}
PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.enable": "false",
    "unclean.leader.election.enable": "true",
    "auto.leader.rebalance.enable": "false",
}


class Scene:
    """Brokers, of which number 0 is the controller and holds no replica."""

    def __init__(self, loop: SimLoop, brokers: int, properties: dict[str, str]) -> None:
        self.cluster = SimCluster(loop, properties={**PROPERTIES, **properties})
        self._loop = loop
        self._brokers = brokers

    async def begin(self) -> None:
        await self.cluster.start(self._brokers)
        replicas = list(range(1, self._brokers))
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
            configs=[],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        async with self.client() as client:
            response = await client.on_controller(lambda connection: connection.send(request, CreateTopicsResponse))
        assert [topic.error_code for topic in response.topics] == [ErrorCode.NONE]
        await self.until(lambda: all(self._leader_of(replica) == 1 for replica in replicas))

    def client(self) -> ClusterClient:
        return self.cluster.client()

    async def produce(self, *values: bytes) -> None:
        """Returns when they are acknowledged by all in-sync replicas."""
        reported: list[Delivery] = []
        async with self.client() as client:
            producer = Producer(
                client,
                ProducerSettings(linger_ms=0, idempotent=False),
                reported.append,
                clock_ms=lambda: int(self._loop.time() * 1000),
                partitioner=DefaultPartitioner(lambda _: 0),
            )
            for value in values:
                await producer.send(TOPIC, value, partition=0)
                await producer.flush()
        assert [delivery.error for delivery in reported] == [None] * len(values)

    def partition(self, broker_id: int) -> Partition:
        """The log of the broker that currently runs with this id."""
        broker = self.cluster.brokers[broker_id].broker
        assert broker is not None
        assert broker.replicas is not None
        return broker.replicas.partitions[TP]

    async def restart(self, broker_id: int) -> None:
        """Starts a broker that was killed, and waits until it has its role."""
        await self.cluster.start_broker(broker_id)
        await self.until(lambda: self._leader_of(broker_id) >= 0)

    async def until(self, claim: Callable[[], bool], *, within_s: float = 0.01) -> None:
        """Returns as soon as the claim is true."""
        async with asyncio.timeout(120):
            while not claim():  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(within_s)

    def _leader_of(self, broker_id: int) -> int:
        """The broker's leader, or itself; -1 as long as it has no role."""
        broker = self.cluster.brokers[broker_id].broker
        replicas = broker.replicas if broker is not None else None
        return replicas.partitions[TP].leader if replicas is not None and TP in replicas.partitions else -1

    def bytes_of(self, broker_id: int) -> bytes:
        """The records on the broker's disk."""
        log = self.partition(broker_id).log
        return b"".join(segment.file.read_at(0, segment.size) for segment in log.segments)

    def end(self, broker_id: int) -> int:
        return self.partition(broker_id).log.log_end_offset

    def has(self, broker_id: int, value: bytes) -> bool:
        return value in self.bytes_of(broker_id)


def play(act: Callable[[Scene], Awaitable[None]], *, brokers: int, properties: dict[str, str]) -> None:
    async def main(loop: SimLoop) -> None:
        scene = Scene(loop, brokers, properties)
        with scene.cluster.network.on_host("client"):
            await scene.begin()
            await act(scene)
        await scene.cluster.stop()

    simulate(main, seed=1)


class NothingSurvives(Random):
    """Decides how much of what was not synced is on the disk."""

    def randrange(self, *_: object) -> int:
        return 0


@pytest.mark.parametrize(("properties", "is_lost"), [(BY_HIGH_WATERMARK, True), (BY_EPOCHS, False)])
def test_a_record_is_lost_between_two_failures_unless_followers_truncate_by_epoch(
    properties: dict[str, str], is_lost: bool
) -> None:
    """KIP-101, scenario 1: a follower truncates replicated records, and becomes leader before it has fetched them
    again.
    """

    async def act(scene: Scene) -> None:
        await scene.produce(b"first")
        await scene.until(lambda: all(scene.partition(broker_id).high_watermark == 1 for broker_id in (1, 2, 3)))
        producing = asyncio.create_task(scene.produce(b"second"))
        await scene.until(lambda: all(scene.end(broker_id) == 2 for broker_id in (1, 2, 3)), within_s=0.0001)
        # The followers have it and have reported it; the new high watermark does not reach them.
        scene.cluster.network.partition(["broker-1"], ["broker-2", "broker-3"], one_way=True)
        await producing
        assert [scene.partition(broker_id).high_watermark for broker_id in (1, 2, 3)] == [2, 1, 1]

        scene.cluster.kill(1)
        scene.cluster.network.heal()
        await scene.until(lambda: scene.partition(2).is_leader and scene.partition(3).leader == 2, within_s=0.0001)
        reported_s = asyncio.get_running_loop().time()
        await scene.until(
            lambda: scene.end(3) == 1 or asyncio.get_running_loop().time() > reported_s + 5, within_s=0.0001
        )
        scene.cluster.kill(2)
        await scene.until(lambda: scene.partition(3).is_leader)
        await scene.produce(b"third")
        assert scene.has(3, b"second") is not is_lost

    play(act, brokers=4, properties=properties)


@pytest.mark.parametrize(("properties", "are_apart"), [(BY_HIGH_WATERMARK, True), (BY_EPOCHS, False)])
def test_replicas_diverge_after_a_power_failure_unless_followers_truncate_by_epoch(
    properties: dict[str, str], are_apart: bool
) -> None:
    """KIP-101, scenario 2: records of a follower below its high watermark differ from those of the new leader."""

    async def act(scene: Scene) -> None:
        await scene.produce(b"first")
        await scene.until(lambda: scene.end(2) == 1)
        for broker_id in (1, 2):
            scene.partition(broker_id).log.flush()
        await scene.produce(b"second")
        await asyncio.sleep(20)  # The high watermark is in the checkpoint.
        scene.cluster.kill(1)
        scene.cluster.kill(2)
        scene.cluster.disks[2].crash(NothingSurvives())
        await asyncio.sleep(20)
        await scene.restart(2)
        assert scene.end(2) == 1
        await scene.produce(b"third")
        await scene.restart(1)
        await scene.until(lambda: scene.end(1) == scene.end(2) == 2)
        await asyncio.sleep(20)
        assert scene.has(2, b"third")
        assert (scene.bytes_of(1) != scene.bytes_of(2)) is are_apart

    play(act, brokers=3, properties=properties)


@pytest.mark.parametrize(("properties", "are_apart"), [(BY_ONE_EPOCH, True), (BY_EPOCHS, False)])
def test_replicas_diverge_after_unclean_elections_unless_followers_truncate_epoch_by_epoch(
    properties: dict[str, str], are_apart: bool
) -> None:
    """KIP-279: the follower's last epoch is unknown to the leader, whose epoch before it ends too late."""

    async def act(scene: Scene) -> None:
        await scene.produce(*(b"shared %d" % number for number in range(10)))
        await scene.until(lambda: scene.end(2) == 10)
        scene.cluster.kill(2)
        await scene.until(lambda: scene.partition(1).isr == (1,))
        await scene.produce(*(b"one %d" % number for number in range(10)))
        scene.cluster.kill(1)
        await asyncio.sleep(20)
        await scene.restart(2)
        await scene.produce(*(b"two %d" % number for number in range(20)))
        assert scene.end(2) == 30
        scene.cluster.kill(2)
        await asyncio.sleep(20)
        await scene.restart(1)
        assert scene.end(1) == 20
        await scene.produce(*(b"one again %d" % number for number in range(15)))
        await scene.restart(2)
        await scene.until(lambda: scene.end(1) == scene.end(2) == 35)
        await asyncio.sleep(20)
        assert scene.has(1, b"one 5")
        assert scene.has(2, b"two 5") is are_apart
        assert (scene.bytes_of(1) != scene.bytes_of(2)) is are_apart

    play(act, brokers=3, properties=properties)


def test_a_leader_that_appended_nothing_becomes_a_follower_again() -> None:
    """No other log has its epoch: it has to truncate it, or it would query it forever."""

    async def act(scene: Scene) -> None:
        await scene.produce(b"first")
        await scene.until(lambda: scene.end(2) == 1)
        for leader, other in ((1, 2), (2, 1), (1, 2), (2, 1)):
            scene.cluster.brokers[leader].expire_session()
            await scene.until(lambda: scene.partition(other).is_leader)  # noqa: B023 - awaited here
            await scene.until(lambda: set(scene.partition(other).isr) == {1, 2})  # noqa: B023 - awaited here
        await scene.produce(b"second")
        await scene.until(lambda: scene.end(2) == 2)

    play(act, brokers=3, properties=BY_EPOCHS)

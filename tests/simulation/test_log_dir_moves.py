"""Three brokers with two log directories each, whose replicas move while brokers fail and return."""

from __future__ import annotations

import asyncio
import random

import pytest

from kctl.admin.placement.log_dirs import describe_log_dirs, move_replicas
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.consumer import Consumer
from kctl.client.producing.producer import Delivery
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate
from tests.property.examples import share_of
from tests.simulation.scene import eager_producer

TOPIC = "orders"
PARTITIONS = [TopicPartition(TOPIC, index) for index in range(2)]
RECORDS = 200
MOVES = 9
BROKERS = 3
DIRS = ["/one", "/two"]


class Run:
    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.cluster = SimCluster(
            loop,
            properties={
                "log.dirs": ",".join(DIRS),
                "min.insync.replicas": "2",
                "replica.lag.time.max.ms": "5000",
                "log.segment.bytes": "2000",
                "zookeeper.session.timeout.ms": "6000",
                "num.replica.alter.log.dirs.threads": "1",
            },
        )
        self.random = random.Random(loop.seed)
        self.acknowledged: set[bytes] = set()
        self.failed: list[bytes] = []
        self.moved = 0

    async def play(self) -> None:
        await self.cluster.start(BROKERS)
        with self.cluster.network.on_host("client"):
            async with self.cluster.client() as client:
                topic = CreatableTopic(
                    name=TOPIC, num_partitions=len(PARTITIONS), replication_factor=BROKERS, assignments=[], configs=[]
                )
                request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
                response = await client.on_controller(lambda connection: connection.send(request, CreateTopicsResponse))
                assert [topic.error_code for topic in response.topics] == [ErrorCode.NONE]
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._write(client))
                    group.create_task(self._move_about(client))
                read = await self._read(client)
        await self.cluster.stop()
        assert self.failed == []
        for index, values in enumerate(read.values()):
            assert values == [b"%06d" % number for number in range(RECORDS) if number % len(PARTITIONS) == index]
        assert self.moved > 0

    async def _write(self, client: ClusterClient) -> None:
        producer = eager_producer(client, self.loop, self._delivered)
        for number in range(RECORDS):
            await producer.send(TOPIC, b"%06d" % number, partition=number % len(PARTITIONS))
            await asyncio.sleep(0.05)
        await producer.flush()

    def _delivered(self, delivery: Delivery) -> None:
        values = [record.value or b"" for record in delivery.records]
        if delivery.error is None:
            self.acknowledged.update(values)
        else:
            self.failed += values

    async def _move_about(self, client: ClusterClient) -> None:
        """Sends replicas of one broker to directories by chance; two times of three it is killed, or stopped."""
        for number in range(MOVES):
            broker_id = self.random.randrange(BROKERS)
            await asyncio.sleep(self.random.uniform(0.2, 1.0))
            before = await self._places(client, broker_id)
            await move_replicas(client, {(broker_id, tp): self.random.choice(DIRS) for tp in PARTITIONS})
            await asyncio.sleep(self.random.uniform(0, 0.05))
            if number % 3 == 1:
                self.cluster.kill(broker_id)
                await self.cluster.start_broker(broker_id)
            elif number % 3 == 2:
                await self.cluster.brokers[broker_id].stop()
                await self.cluster.start_broker(broker_id)
            await asyncio.sleep(1)
            self.moved += sum(before[tp] != place for tp, place in (await self._places(client, broker_id)).items())

    async def _places(self, client: ClusterClient, broker_id: int) -> dict[TopicPartition, str]:
        while True:
            found, _ = await describe_log_dirs(client, [broker_id], PARTITIONS)
            places = {
                replica.tp: log_dir.path for log_dir in found for replica in log_dir.replicas if not replica.is_future
            }
            if len(places) == len(PARTITIONS):
                return places
            await asyncio.sleep(0.1)

    async def _read(self, client: ClusterClient) -> dict[TopicPartition, list[bytes]]:
        consumer = Consumer(client, dict.fromkeys(PARTITIONS, 0))
        values: dict[TopicPartition, list[bytes]] = {tp: [] for tp in PARTITIONS}
        async with asyncio.timeout(900):
            while sum(map(len, values.values())) < RECORDS:
                try:
                    polled = await consumer.poll()
                except (ApiError, ClusterUnreachable):
                    await asyncio.sleep(0.1)
                    consumer = Consumer(client, consumer.positions)
                    continue
                for tp, records in polled:
                    values[tp] += [record.value or b"" for record in records]
        return values


@pytest.mark.parametrize("seed", range(share_of(4)))
def test_moved_log_has_every_record_once_and_in_order(seed: int) -> None:
    async def main(loop: SimLoop) -> None:
        await Run(loop).play()

    simulate(main, seed=seed)

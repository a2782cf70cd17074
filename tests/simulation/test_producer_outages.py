"""Producers ride out brokers that are away for a time, and partitions do not wait for each other's brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kctl.client import AsyncProducer, ProducerConfig, RecordMetadata
from kctl.client.consuming.consumer import Consumer
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate
from tests.simulation.scene import create_topic
from tests.simulation.test_cluster import PROPERTIES

TOPIC = "orders"
ONE_BROKER = PROPERTIES | {
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "default.replication.factor": "1",
}


def run(brokers: int, work: Callable[[SimLoop, SimCluster], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, properties=ONE_BROKER)
        await cluster.start(brokers)
        with cluster.network.on_host("client"):
            await work(loop, cluster)
        await cluster.stop()

    simulate(main, seed=1)


def config(brokers: int, **settings: object) -> ProducerConfig:
    servers = ",".join(f"broker-{number}:9092" for number in range(brokers))
    return ProducerConfig(bootstrap_servers=servers, **settings)  # type: ignore[arg-type]


async def written(cluster: SimCluster, partitions: list[TopicPartition]) -> dict[TopicPartition, list[bytes]]:
    values: dict[TopicPartition, list[bytes]] = {tp: [] for tp in partitions}
    async with cluster.client() as client:
        consumer = Consumer(client, dict.fromkeys(partitions, 0))
        for _ in range(20):
            for tp, records in await consumer.poll():
                values[tp] += [record.value or b"" for record in records]
    return values


@pytest.mark.parametrize("settings", [{}, {"enable_idempotence": False, "acks": "1"}, {"transactional_id": "loader"}])
def test_only_broker_is_killed_and_comes_back_and_no_record_fails(settings: dict[str, object]) -> None:
    async def work(_loop: SimLoop, cluster: SimCluster) -> None:
        futures: list[asyncio.Future[RecordMetadata]] = []

        async def outage() -> None:
            await asyncio.sleep(1)
            cluster.kill(0)
            await asyncio.sleep(4)
            await cluster.start_broker(0)

        async with AsyncProducer(config(1, **settings)) as producer:
            if "transactional_id" in settings:
                await producer.begin_transaction()
            failing = asyncio.create_task(outage())
            for number in range(800):
                futures.append(await producer.send(TOPIC, b"%06d" % number))
                await asyncio.sleep(0.01)
            await producer.flush()
            if "transactional_id" in settings:
                await producer.commit_transaction()
            await failing
        assert [future for future in futures if future.exception() is not None] == []
        (values,) = (await written(cluster, [TopicPartition(TOPIC, 0)])).values()
        assert list(dict.fromkeys(values)) == [b"%06d" % number for number in range(800)], "in order"
        if settings.get("enable_idempotence", True):
            assert len(values) == 800, "each once"

    run(1, work)


def test_broker_that_does_not_respond_delays_its_own_partitions_only() -> None:
    async def work(loop: SimLoop, cluster: SimCluster) -> None:
        async with cluster.client() as client:
            await create_topic(client, TOPIC, 3)
            leaders = [partition.leader for partition in (await client.metadata([TOPIC])).topics[TOPIC].partitions]
        assert sorted(leaders) == [0, 1, 2]
        hung = 1
        async with AsyncProducer(config(3, delivery_timeout_ms=20_000, request_timeout_ms=10_000)) as producer:
            for partition in range(3):
                await (await producer.send(TOPIC, b"first", partition=partition))
            cluster.network.partition(["client"], [f"broker-{hung}"])
            started = loop.time()
            futures = {
                partition: [await producer.send(TOPIC, b"x", partition=partition) for _ in range(100)]
                for partition in range(3)
            }
            for partition in range(3):
                if leaders[partition] != hung:
                    await asyncio.gather(*futures[partition])
            assert loop.time() - started < 1, "in virtual time: the others did not wait"
            late = futures[leaders.index(hung)]
            results = await asyncio.gather(*late, return_exceptions=True)
            assert loop.time() - started < 21, "delivery.timeout.ms ends every future"
            for error in results:
                assert isinstance(error, ApiError)
                assert error.code is ErrorCode.REQUEST_TIMED_OUT
                assert "may have been written" in str(error)
            cluster.network.heal()
            again = await producer.send(TOPIC, b"last", partition=leaders.index(hung))
            assert (await again).partition == leaders.index(hung)

    run(3, work)


def test_buffer_and_topic_are_waited_for_as_long_as_max_block() -> None:
    async def work(loop: SimLoop, cluster: SimCluster) -> None:
        cluster.kill(0)
        async with AsyncProducer(config(1, max_block_ms=3_000)) as producer:
            started = loop.time()
            with pytest.raises(Exception, match=r"topic 'orders' is not known within max\.block\.ms=3000"):
                await producer.send(TOPIC, b"x")
            assert 2.9 < loop.time() - started < 3.5, "virtual time"
        await cluster.start_broker(0)

    run(1, work)

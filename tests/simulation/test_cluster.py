"""Whole brokers under virtual time: what was acknowledged stays, whoever dies, and a seed gives one run."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kctl.client.cluster import ClusterClient
from kctl.client.consumer import Consumer
from kctl.client.producer import Delivery, Producer, ProducerSettings
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate

TOPIC = "orders"
PARTITION = TopicPartition(TOPIC, 0)
PROPERTIES = {
    "offsets.topic.num.partitions": "2",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "5000",
    "zookeeper.session.timeout.ms": "6000",
}

Fault = Callable[[SimCluster], Awaitable[None]]


class Run:
    """Three brokers, one topic on all of them, one client that writes to it and then reads it."""

    def __init__(self, loop: SimLoop, folder: Path) -> None:
        self.loop = loop
        self.cluster = SimCluster(loop, properties=PROPERTIES)
        self.acknowledged: list[bytes] = []
        self.failed: list[bytes] = []

    async def play(self, fault: Fault, *, records: int) -> None:
        """Writes, with the fault in the midst of it, and checks that everything acknowledged is there, in order."""
        await self.cluster.start(3)
        with self.cluster.network.on_host("client"):
            async with self.cluster.client() as client:
                await self._create_topic(client)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._write(client, records))
                    group.create_task(fault(self.cluster))
                read = await self._read(client)
        await self.cluster.stop()
        assert not self.failed
        assert [value for value in read if value in set(self.acknowledged)] == self.acknowledged
        assert len(read) == len(set(read)) == records

    async def leader(self, client: ClusterClient | None = None) -> int:
        async with client or self.cluster.client() as asking:
            metadata = await asking.metadata([TOPIC])
        return metadata.topics[TOPIC].partitions[0].leader

    async def _create_topic(self, client: ClusterClient) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=3, assignments=[], configs=[])
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        response = await client.on_controller(lambda connection: connection.send(request, CreateTopicsResponse))
        assert [each.error_code for each in response.topics] == [ErrorCode.NONE]

    async def _write(self, client: ClusterClient, records: int) -> None:
        producer = Producer(
            client,
            ProducerSettings(linger_ms=0),
            self._delivered,
            clock_ms=lambda: int(self.loop.time() * 1000),
            choose=random.Random(1).randrange,
        )
        for number in range(records):
            await producer.send(TOPIC, b"record %d" % number, partition=0)
            await asyncio.sleep(0.05)
        await producer.flush()

    def _delivered(self, delivery: Delivery) -> None:
        values = [record.value or b"" for record in delivery.records]
        (self.acknowledged if delivery.error is None else self.failed).extend(values)

    async def _read(self, client: ClusterClient) -> list[bytes]:
        consumer = Consumer(client, {PARTITION: 0})
        values: list[bytes] = []
        async with asyncio.timeout(60):
            while len(values) < len(self.acknowledged):
                try:
                    polled = await consumer.poll()
                except ApiError as error:
                    # A broker that has just come back does not know the topics yet.
                    if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise
                    await asyncio.sleep(0.1)
                    consumer = Consumer(client, consumer.positions)
                    continue
                for _, records in polled:
                    values += [record.value or b"" for record in records]
        return values


async def nothing(_cluster: SimCluster) -> None:
    """No fault."""


async def leader_of(cluster: SimCluster) -> int:
    async with cluster.client() as client:
        metadata = await client.metadata([TOPIC])
    return metadata.topics[TOPIC].partitions[0].leader


async def leader_killed(cluster: SimCluster) -> None:
    await asyncio.sleep(1)
    cluster.kill(await leader_of(cluster))


async def leader_killed_and_back(cluster: SimCluster) -> None:
    await asyncio.sleep(1)
    leader = await leader_of(cluster)
    cluster.kill(leader)
    await asyncio.sleep(10)
    await cluster.start_broker(leader)


async def leader_stopped(cluster: SimCluster) -> None:
    await asyncio.sleep(1)
    await cluster.brokers[await leader_of(cluster)].stop()


async def follower_killed_and_back(cluster: SimCluster) -> None:
    await asyncio.sleep(1)
    follower = (await leader_of(cluster) + 1) % 3
    cluster.kill(follower)
    await asyncio.sleep(8)
    await cluster.start_broker(follower)


async def followers_cut_off(cluster: SimCluster) -> None:
    await asyncio.sleep(1)
    leader = await leader_of(cluster)
    others = [f"broker-{broker}" for broker in range(3) if broker != leader]
    cluster.network.partition([f"broker-{leader}"], others)
    await asyncio.sleep(3)
    cluster.network.heal()


async def connections_reset(cluster: SimCluster) -> None:
    for _ in range(5):
        await asyncio.sleep(0.7)
        for one in range(3):
            cluster.network.cut(f"broker-{one}", "client")
            cluster.network.cut(f"broker-{one}", f"broker-{(one + 1) % 3}")


def bad_day(seed: int) -> Fault:
    """Ten mishaps, chosen by the seed; at least two brokers always run, and in the end all do."""
    chance = random.Random(f"{seed} bad day")

    async def fault(cluster: SimCluster) -> None:
        dead: list[int] = []
        for _ in range(10):
            await asyncio.sleep(chance.uniform(0.5, 4))
            victim = chance.choice([broker for broker in range(3) if broker not in dead])
            match chance.choice(["kill", "stop", "return", "partition", "cut", "zookeeper"]):
                case "kill" if not dead:
                    cluster.kill(victim)
                    dead.append(victim)
                case "stop" if not dead:
                    await cluster.brokers[victim].stop()
                    dead.append(victim)
                case "return" if dead:
                    await cluster.start_broker(dead.pop())
                case "partition":
                    others = [f"broker-{broker}" for broker in range(3) if broker != victim]
                    cut_off = chance.sample(others, chance.randrange(1, 3))
                    cluster.network.partition([f"broker-{victim}"], cut_off, one_way=chance.random() < 0.3)
                    await asyncio.sleep(chance.uniform(0.5, 12))
                    cluster.network.heal()
                case "cut":
                    cluster.network.cut(f"broker-{victim}", "client")
                case "zookeeper":
                    cluster.brokers[victim].lose_zookeeper()
                    await asyncio.sleep(chance.choice([1, 3, 10]))
                    cluster.brokers[victim].find_zookeeper()
        for broker in dead:
            await cluster.start_broker(broker)

    return fault


def run(folder: Path, fault: Fault, *, seed: int, records: int = 100) -> str:
    async def main(loop: SimLoop) -> str:
        await Run(loop, folder).play(fault, records=records)
        return f"{loop.trace.count} {loop.trace.digest()}"

    return simulate(main, seed=seed)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "fault",
    [
        nothing,
        leader_killed,
        leader_killed_and_back,
        leader_stopped,
        follower_killed_and_back,
        followers_cut_off,
        connections_reset,
    ],
    ids=lambda fault: fault.__name__,
)
def test_what_was_acknowledged_stays(tmp_path: Path, fault: Fault, seed: int) -> None:
    run(tmp_path, fault, seed=seed)


@pytest.mark.parametrize("seed", range(8))
def test_what_was_acknowledged_stays_on_a_bad_day(tmp_path: Path, seed: int) -> None:
    run(tmp_path, bad_day(seed), seed=seed, records=400)


def test_a_seed_gives_one_run(tmp_path: Path) -> None:
    first = run(tmp_path / "1", leader_killed, seed=5)
    assert run(tmp_path / "2", leader_killed, seed=5) == first
    assert run(tmp_path / "3", leader_killed, seed=6) != first


def test_the_run_does_not_depend_on_how_strings_hash(tmp_path: Path) -> None:
    runs = {run(tmp_path / "here", bad_day(3), seed=3)}
    for hash_seed in ("1", "99"):
        finished = subprocess.run(
            [sys.executable, __file__, str(tmp_path / hash_seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        )
        runs.add(finished.stdout)
    assert len(runs) == 1


if __name__ == "__main__":
    sys.stdout.write(run(Path(sys.argv[1]), bad_day(3), seed=3))

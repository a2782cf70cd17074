"""Whole brokers under virtual time: acknowledged records survive faults, and a seed gives one run."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kctl.client.cluster import ClusterClient
from kctl.client.consuming.consumer import Consumer
from kctl.client.producing.producer import Delivery
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.model import TopicPartition
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop
from tests.property.examples import share_of
from tests.rows import for_rows
from tests.simulation.faults import random_faults
from tests.simulation.invariants import Invariants
from tests.simulation.scene import create_topic, eager_producer, traced

TOPIC = "orders"
PROPERTIES = {
    "offsets.topic.num.partitions": "2",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "5000",
    "zookeeper.session.timeout.ms": "6000",
    "leader.imbalance.check.interval.seconds": "10",
}
GONE_FOR_NOW = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # of a broker that has just come back
    ErrorCode.OFFSET_NOT_AVAILABLE,
}

Fault = Callable[[SimCluster], Coroutine[Any, Any, None]]


class Run:
    """Some brokers, one topic, a writer, a reader during the run, and a reader at the end."""

    def __init__(self, loop: SimLoop, *, brokers: int = 3, partitions: int = 1) -> None:
        self.loop = loop
        self.cluster = SimCluster(loop, properties=PROPERTIES)
        self.acknowledged: list[bytes] = []
        self.failed: list[bytes] = []
        self._brokers = brokers
        self._partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self._traces = Traces()

    async def play(self, fault: Fault, *, records: int) -> None:
        """Writes, with the fault in between, and checks that all acknowledged records are there, in order."""
        await self.cluster.start(self._brokers)
        self.loop.on_step = Invariants(self.cluster).look
        with self._traces, self.cluster.network.on_host("client"):
            async with self.cluster.client() as client, self.cluster.client() as other:
                await create_topic(client, TOPIC, len(self._partitions))
                reading = asyncio.create_task(self._read(other, records))
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._write(client, records))
                    group.create_task(fault(self.cluster))
                history = await self._read(client, len(self.acknowledged))
                assert await reading == history, "who read along saw what is there now"
        self.loop.on_step = None
        await self.cluster.stop()
        assert not self.failed
        assert not self._traces.found, self._traces.found
        self._check(history, records)

    def _check(self, history: dict[TopicPartition, list[bytes]], records: int) -> None:
        acknowledged = set(self.acknowledged)
        assert sum(len(values) for values in history.values()) == records
        for partition, values in history.items():
            assert values == sorted(set(values)), "each once, in order"
            assert [v for v in self.acknowledged if v in set(values)] == [v for v in values if v in acknowledged]
            assert all(partition == self._partition_of(int(value)) for value in values)
        assert acknowledged <= {value for values in history.values() for value in values}

    def _partition_of(self, number: int) -> TopicPartition:
        return self._partitions[number % len(self._partitions)]

    async def _write(self, client: ClusterClient, records: int) -> None:
        producer = eager_producer(client, self.loop, self._delivered)
        for number in range(records):
            await producer.send(TOPIC, b"%06d" % number, partition=self._partition_of(number).partition)
            await asyncio.sleep(0.05)
        await producer.flush()

    def _delivered(self, delivery: Delivery) -> None:
        values = [record.value or b"" for record in delivery.records]
        (self.acknowledged if delivery.error is None else self.failed).extend(values)

    async def _read(self, client: ClusterClient, count: int) -> dict[TopicPartition, list[bytes]]:
        """Reads so many records and resumes after leader changes."""
        consumer = Consumer(client, dict.fromkeys(self._partitions, 0))
        values: dict[TopicPartition, list[bytes]] = {partition: [] for partition in self._partitions}
        async with asyncio.timeout(900):
            while sum(map(len, values.values())) < count:
                try:
                    polled = await consumer.poll()
                except (ApiError, ClusterUnreachable) as error:
                    if isinstance(error, ApiError) and error.code not in GONE_FOR_NOW:
                        raise
                    await asyncio.sleep(0.1)
                    consumer = Consumer(client, consumer.positions)
                    continue
                for partition, records in polled:
                    values[partition] += [record.value or b"" for record in records]
        return values


class Traces(logging.Handler):
    """Unexpected errors: those that a broker logs with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))

    def __enter__(self) -> None:
        logging.getLogger("kctl").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("kctl").removeHandler(self)


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
        for number in range(3):
            cluster.network.cut(f"broker-{number}", "client")
            cluster.network.cut(f"broker-{number}", f"broker-{(number + 1) % 3}")


async def session_ends_twice(cluster: SimCluster) -> None:
    """The second time while the broker registers in the new session."""
    await asyncio.sleep(1)
    victim = cluster.brokers[await leader_of(cluster)]
    victim.expire_session()
    await asyncio.sleep(0.001)
    victim.expire_session()


async def power_lost(cluster: SimCluster) -> None:
    await asyncio.sleep(2)
    leader = await leader_of(cluster)
    cluster.lose_power(leader)
    await asyncio.sleep(0.5)
    await cluster.start_broker(leader)


def random_faults_of(seed: int) -> Fault:
    chance = random.Random(f"{seed} bad day")
    return lambda cluster: random_faults(cluster, chance)


def run(fault: Fault, *, seed: int, records: int = 100, brokers: int = 3, partitions: int = 1) -> str:
    def play(loop: SimLoop) -> Awaitable[None]:
        return Run(loop, brokers=brokers, partitions=partitions).play(fault, records=records)

    return traced(play, seed)


def run_with_random_faults(seed: int, *, records: int = 400) -> str:
    """On three to five brokers, selected by the seed."""
    brokers = random.Random(f"{seed} brokers").choice([3, 3, 4, 5])
    return run(random_faults_of(seed), seed=seed, records=records, brokers=brokers, partitions=brokers)


@for_rows("seed", [1, 2])
@for_rows(
    "fault",
    [
        nothing,
        leader_killed,
        leader_killed_and_back,
        leader_stopped,
        follower_killed_and_back,
        followers_cut_off,
        connections_reset,
        session_ends_twice,
        power_lost,
    ],
)
def test_acknowledged_records_survive_one_fault(fault: Fault, seed: int) -> None:
    run(fault, seed=seed)


@pytest.mark.parametrize("seed", range(share_of(8)))
def test_acknowledged_records_survive_random_faults(seed: int) -> None:
    run_with_random_faults(seed)


def test_a_seed_gives_one_run() -> None:
    first = run(leader_killed, seed=5)
    assert run(leader_killed, seed=5) == first
    assert run(leader_killed, seed=6) != first


def test_the_run_does_not_depend_on_how_strings_hash() -> None:
    runs = {run_with_random_faults(3, records=100)}
    finished = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "PYTHONHASHSEED": "99", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    runs.add(finished.stdout)
    assert len(runs) == 1


if __name__ == "__main__":
    sys.stdout.write(run_with_random_faults(3, records=100))

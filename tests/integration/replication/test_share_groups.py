"""Share groups of a cluster of three brokers of ours, with share consumers of two projects: brokers and members are
killed, and leaders move.  What was acknowledged with success is not handed out again, and everything else is.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kctl.client import AsyncProducer, AsyncShareConsumer, ProducerConfig, ShareConsumerConfig, ShareRecord
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.errors import KctlError
from kctl.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.peers.kctl_broker import KctlBroker
from tests.peers.three_brokers import forked_cluster

pytestmark = pytest.mark.timeout(280)

WAIT_S = 90
GROUP = 32
PARTITIONS = 3
PROPERTIES = {
    "group.coordinator.rebalance.protocols": "classic,consumer,share",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.session.timeout.ms": "3000",
    "group.share.assignment.interval.ms": "100",
    "group.share.record.lock.duration.ms": "10000",
    "group.share.delivery.count.limit": "10",
    "share.coordinator.state.topic.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "replica.lag.time.max.ms": "2000",
    "zookeeper.session.timeout.ms": "2000",
}
KILLED = """
import sys
from kctl.client import ShareConsumer, ShareConsumerConfig
bootstrap, topic = sys.argv[1:]
with ShareConsumer(ShareConsumerConfig(bootstrap_servers=bootstrap, group_id=topic, max_poll_records=20)) as consumer:
    consumer.subscribe([topic])
    while not (records := consumer.poll()):
        pass
    print(*(record.value.decode() for record in records), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[KctlBroker]]:
    with forked_cluster(tmp_path_factory.mktemp("cluster"), lambda _: PROPERTIES) as started:
        yield started


def bootstrap_of(brokers: list[KctlBroker]) -> str:
    return ",".join(broker.bootstrap for broker in brokers)


def config(brokers: list[KctlBroker], group: str, **settings: object) -> ShareConsumerConfig:
    return ShareConsumerConfig(bootstrap_servers=bootstrap_of(brokers), group_id=group, **settings)  # type: ignore[arg-type]


def member_to_be_killed(brokers: list[KctlBroker], topic: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", KILLED, bootstrap_of(brokers), topic]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def begin(brokers: list[KctlBroker], topic: str) -> None:
    """Creates a topic whose group begins with its first record."""
    admin = AdminClient({"bootstrap.servers": bootstrap_of(brokers)})
    created = admin.create_topics([NewTopic(topic, PARTITIONS, len(brokers), config={"min.insync.replicas": "2"})])
    await asyncio.to_thread(created[topic].result, WAIT_S)
    configs = [AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=topic, configs=configs)
    async with ClusterClient(config(brokers, topic).client_settings(), AsyncioTransport()) as client:
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        response = await (await client.any_broker()).send(request, IncrementalAlterConfigsResponse)
    assert [outcome.error_code for outcome in response.responses] == [0]


async def write(brokers: list[KctlBroker], topic: str, numbers: range) -> None:
    async with AsyncProducer(ProducerConfig(bootstrap_servers=bootstrap_of(brokers))) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


class Reader:
    """A member of ours, which notes what was acknowledged with success."""

    def __init__(self, brokers: list[KctlBroker], topic: str) -> None:
        self.acknowledged: set[tuple[int, int]] = set()
        self.values: Counter[bytes] = Counter()
        self.repeated: list[tuple[int, int]] = []
        self._topic = topic
        self._consumer = AsyncShareConsumer(config(brokers, topic, max_poll_records=7), on_acknowledged=self._note)

    def _note(self, partition: object, offsets: tuple[int, ...], error: KctlError | None) -> None:
        if error is None:
            self.acknowledged.update((partition.partition, offset) for offset in offsets)  # type: ignore[attr-defined]

    async def __aenter__(self) -> Self:
        await self._consumer.__aenter__()
        await self._consumer.subscribe([self._topic])
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._consumer.__aexit__(None)

    async def poll(self, others: set[tuple[int, int]]) -> list[ShareRecord]:
        """Reads some records; `others` were acknowledged before, by anyone."""
        done = others | self.acknowledged
        records = await self._consumer.poll(20)
        places = [(record.partition, record.offset) for record in records]
        self.repeated += [place for place in places if place in done]
        self.values.update(record.value or b"" for record in records)
        return records


async def read_until(readers: list[Reader], wanted: int, others: set[bytes]) -> None:
    """Until all numbers were read by one of the readers or by others."""
    everything = {b"%d" % number for number in range(wanted)}
    async with asyncio.timeout(WAIT_S):
        while not everything <= others.union(*(reader.values for reader in readers)):
            done = set().union(*(reader.acknowledged for reader in readers))
            for reader in readers:
                with contextlib.suppress(KctlError):
                    await reader.poll(done)


def test_no_record_is_lost_when_brokers_and_members_are_killed(brokers: list[KctlBroker], tmp_path: Path) -> None:
    topic = "killed"

    async def run() -> None:
        await begin(brokers, topic)
        await write(brokers, topic, range(90))
        with member_to_be_killed(brokers, topic) as member:
            assert member.stdout is not None
            held = (await asyncio.to_thread(member.stdout.readline)).split()
            assert held
            async with Reader(brokers, topic) as first, Reader(brokers, topic) as second:
                # With three members each is assigned one partition: its records are not read while it holds them.
                member.kill()
                await read_until([first, second], 90, set())
                for number in (0, 1):
                    broker = brokers[number]
                    broker.kill9()
                    written = 90 + 60 * number
                    others = [other for other in brokers if other is not broker]
                    await write(others, topic, range(written, written + 30))
                    await read_until([first, second], written + 30, set())
                    await asyncio.to_thread(broker.start)
                    await write(brokers, topic, range(written + 30, written + 60))
                    await read_until([first, second], written + 60, set())
                assert not first.repeated
                assert not second.repeated

    asyncio.run(run())


def test_records_are_shared_with_members_of_librdkafka(brokers: list[KctlBroker]) -> None:
    topic = "librdkafka"

    async def run() -> None:
        await begin(brokers, topic)
        await write(brokers, topic, range(300))
        other = confluent_kafka.ShareConsumer(
            {
                "bootstrap.servers": bootstrap_of(brokers),
                "group.id": topic,
                "share.acknowledgement.mode": "explicit",
            }
        )
        other.subscribe([topic])
        values: Counter[bytes] = Counter()

        def poll_other() -> None:
            messages = [message for message in other.poll(timeout=0.2) if message.error() is None]
            for message in messages:
                other.acknowledge(message, confluent_kafka.AcknowledgeType.ACCEPT)
                values[message.value() or b""] += 1
            if messages:
                assert set(other.commit_sync(timeout=30).values()) <= {None}

        async with Reader(brokers, topic) as ours:
            written = 300
            async with asyncio.timeout(WAIT_S):
                while not (values and ours.values and len(values | ours.values) == written):
                    if not values or not ours.values:
                        await write(brokers, topic, range(written, written + 30))
                        written += 30
                    await asyncio.to_thread(poll_other)
                    await ours.poll(set())
        other.close()
        assert set((values + ours.values).values()) == {1}

    asyncio.run(run())

"""Groups of the consumer protocol (KIP-848) of our broker, with clients of three projects."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import confluent_kafka
import pytest

from kctl.client import AsyncConsumer, AsyncProducer, ConsumerConfig, ProducerConfig, SubscriptionPattern
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.errors import ApiError, ErrorCode
from kctl.model import ZERO_UUID
from kctl.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.faults import mixed_groups
from tests.integration.clients.confluent import Confluent
from tests.peers import apache_kafka, probe
from tests.peers.kctl_broker import KctlBroker, kctl_broker

pytestmark = pytest.mark.timeout(200)

WAIT_S = 60
UNKNOWN_ID = UUID(int=1 << 100)
PROPERTIES = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.assignment.interval.ms": "100",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KctlBroker]:
    with kctl_broker(tmp_path_factory.mktemp("broker") / "data", properties=PROPERTIES) as started:
        yield started


def consumer(broker: KctlBroker, group: str, **settings: object) -> AsyncConsumer:
    config = {"group_protocol": "consumer", "auto_offset_reset": "earliest"} | settings
    return AsyncConsumer(ConsumerConfig(bootstrap_servers=broker.bootstrap, group_id=group, **config))  # type: ignore[arg-type]


async def poll_until(claim: Callable[[], bool], *consumers: AsyncConsumer) -> list[bytes | None]:
    """The values that were read until the claim holds."""
    values: list[bytes | None] = []
    async with asyncio.timeout(WAIT_S):
        while not claim():
            for each in consumers:
                values += [record.value for record in await each.poll(20)]
    return values


async def write(broker: KctlBroker, topic: str, count: int, partitions: int) -> None:
    async with AsyncProducer(ProducerConfig(bootstrap_servers=broker.bootstrap)) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


def test_members_of_three_clients_lose_no_record_when_some_are_killed(broker: KctlBroker, tmp_path: Path) -> None:
    clients = ("kctl", "confluent", "kctl-classic")
    has_java = apache_kafka.why_not() is None
    mixed_groups.play("consumer", 1, tmp_path, kills=2, has_java=has_java, bootstrap=broker.bootstrap, clients=clients)


def test_group_goes_on_when_its_coordinator_is_killed_and_restarted(broker: KctlBroker) -> None:
    Confluent(broker.bootstrap).create_topic("restarted", 3)

    async def run() -> None:
        await write(broker, "restarted", 30, 3)
        async with consumer(broker, "restarted") as first, consumer(broker, "restarted") as second:
            for each in (first, second):
                await each.subscribe(["restarted"])
            values = await poll_until(lambda: bool(first.assignment) and bool(second.assignment), first, second)
            values += await poll_until(lambda: len(values) + sum(first.positions().values()) > 0, first)
            epoch = first.group_metadata().generation
            await first.commit()
            broker.kill9()
            await asyncio.to_thread(broker.start)
            await write(broker, "restarted", 30, 3)
            ends = 20 * 3
            values += await poll_until(
                lambda: sum(first.positions().values()) + sum(second.positions().values()) == ends, first, second
            )
            assert first.group_metadata().generation == epoch, "the members were found in the log"
        async with consumer(broker, "restarted") as third:
            await third.subscribe(["restarted"])
            await poll_until(lambda: len(third.assignment) == 3, third)
            assert await poll_until(lambda: sum(third.positions().values()) == ends, third) == []

    asyncio.run(run())


def test_regular_expression_is_matched_by_the_broker(broker: KctlBroker) -> None:
    client = Confluent(broker.bootstrap)
    for topic in ("regex.one", "regex.two", "other.regex.one"):
        client.create_topic(topic, 1)

    async def run() -> None:
        async with consumer(broker, "regex") as reader:
            await reader.subscribe(SubscriptionPattern("regex\\.(one|two)"))
            await poll_until(lambda: {tp.topic for tp in reader.assignment} == {"regex.one", "regex.two"}, reader)
        async with consumer(broker, "regex") as reader:
            await reader.subscribe(SubscriptionPattern("(a"))
            with pytest.raises(ApiError, match="not a regular expression"):
                await poll_until(lambda: False, reader)

    asyncio.run(run())


def test_topics_are_described_by_their_ids(broker: KctlBroker) -> None:
    """librdkafka asks for the names of topics that it is assigned before it knows them, as after this creation."""
    client = Confluent(broker.bootstrap)
    client.create_topic("by-id", 1)

    async def run() -> list[tuple[str | None, bool, int]]:
        host, port = probe.address(broker.bootstrap)
        connection = await AsyncioTransport().connect(
            host, port, client_id="c", connect_timeout_ms=30_000, timeout_ms=30_000
        )
        named = MetadataRequest(topics=[MetadataRequestTopic(name="by-id")])
        topic_id = (await connection.send(named, MetadataResponse)).topics[0].topic_id
        ids = [MetadataRequestTopic(topic_id=id_, name=None) for id_ in (topic_id, UNKNOWN_ID, ZERO_UUID)]
        response = await connection.send(MetadataRequest(topics=ids), MetadataResponse, version=12)
        old = await connection.send(MetadataRequest(topics=ids[:1]), MetadataResponse, version=11)
        await connection.close()
        return [(topic.name, topic.topic_id == topic_id, topic.error_code) for topic in (*response.topics, *old.topics)]

    assert asyncio.run(run()) == [
        ("by-id", True, ErrorCode.NONE),
        (None, False, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, False, ErrorCode.INVALID_REQUEST),
        ("", False, ErrorCode.INVALID_REQUEST),
    ]
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "by-id", "group.protocol": "consumer"}
    )
    client.create_topic("assigned-by-id", 1)
    reader.subscribe(["assigned-by-id"])
    with contextlib.closing(reader):
        probe.wait_until(
            lambda: reader.poll(0.1) is None and bool(reader.assignment()), what="an assignment", timeout_s=WAIT_S
        )


def test_broker_says_that_it_serves_the_protocol(broker: KctlBroker) -> None:
    async def run() -> None:
        host, port = probe.address(broker.bootstrap)
        connection = await AsyncioTransport().connect(
            host, port, client_id="c", connect_timeout_ms=30_000, timeout_ms=30_000
        )
        request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        response = await connection.send(request, ApiVersionsResponse, version=3)
        await connection.close()
        newest = {entry.api_key: entry.max_version for entry in response.api_keys}
        assert {key: newest.get(key) for key in (3, 8, 9, 16, 68, 69)} == {3: 13, 8: 10, 9: 10, 16: 5, 68: 1, 69: 1}

    asyncio.run(run())

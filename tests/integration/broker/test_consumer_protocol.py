"""Groups of the consumer protocol (KIP-848) of our broker, with clients of three projects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kctl.client import AsyncConsumer, AsyncProducer, ConsumerConfig, ProducerConfig, SubscriptionPattern
from kctl.errors import ApiError
from tests.faults import mixed_groups
from tests.integration.clients.confluent import Confluent
from tests.peers import apache_kafka
from tests.peers.kctl_broker import KctlBroker, kctl_broker

pytestmark = pytest.mark.timeout(200)

WAIT_S = 60
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
    clients = ("kctl", "confluent", "kctl")
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


def test_regular_expression_is_matched_by_the_broker_also_with_new_topics(broker: KctlBroker) -> None:
    client = Confluent(broker.bootstrap)
    client.create_topic("regex.one", 1)

    async def run() -> None:
        async with consumer(broker, "regex") as reader:
            await reader.subscribe(SubscriptionPattern("regex\\.(one|two)"))
            await poll_until(lambda: {tp.topic for tp in reader.assignment} == {"regex.one"}, reader)
            client.create_topic("regex.two", 2)
            client.create_topic("other.regex.one", 1)
            await poll_until(lambda: {tp.topic for tp in reader.assignment} == {"regex.one", "regex.two"}, reader)
            assert len(reader.assignment) == 3
        async with consumer(broker, "regex") as reader:
            await reader.subscribe(SubscriptionPattern("(a"))
            with pytest.raises(ApiError, match="not a regular expression"):
                await poll_until(lambda: False, reader)

    asyncio.run(run())

"""Our consumers in groups of the consumer protocol (KIP-848) of Apache Kafka 4, alone and beside other clients."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kctl.client import (
    AsyncConsumer,
    AsyncProducer,
    ConsumerConfig,
    ProducerConfig,
    RebalanceListener,
    SubscriptionPattern,
    TopicPartition,
)
from kctl.errors import ApiError, ErrorCode
from tests.faults import exactly_once, mixed_groups
from tests.integration.cli.conftest import KAFKA_4, Kctl

pytestmark = [pytest.mark.parametrize("bootstrap", [KAFKA_4], indirect=True), pytest.mark.timeout(300)]

WAIT_S = 60


class Calls(RebalanceListener):
    """What the listener of a consumer was told, and what it owns."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self.lost: set[TopicPartition] = set()

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.owned.isdisjoint(partitions)
        self.owned.update(partitions)

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.owned.issuperset(partitions)
        self.owned.difference_update(partitions)

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.lost.update(partitions)
        self.owned.difference_update(partitions)


def config(bootstrap: str, group: str, **settings: Any) -> ConsumerConfig:
    return ConsumerConfig(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol="consumer",
        auto_offset_reset="earliest",
        **settings,
    )


async def poll_until(claim: Callable[[], bool], *consumers: AsyncConsumer) -> list[bytes]:
    """The values that were read until the claim holds."""
    values: list[bytes] = []
    async with asyncio.timeout(WAIT_S):
        while not claim():
            for consumer in consumers:
                values += [record.value for record in await consumer.poll(20)]
    return values


def test_members_of_three_clients_and_both_protocols_lose_no_record_when_some_are_killed(
    bootstrap: str, tmp_path: Path
) -> None:
    """Ours, librdkafka's and Java's, and one of ours with the classic protocol, as during an upgrade of a group."""
    mixed_groups.play("consumer", 1, tmp_path, kills=2, has_java=True, bootstrap=bootstrap)


def test_workers_that_are_killed_write_each_record_once(bootstrap: str, tmp_path: Path) -> None:
    exactly_once.play("consumer", 1, tmp_path, count=600, kills=1, bootstrap=bootstrap)


def test_partitions_are_shared_without_a_pause_and_committed_before_they_are_revoked(
    bootstrap: str, topic: str
) -> None:
    async def run() -> None:
        async with AsyncProducer(ProducerConfig(bootstrap_servers=bootstrap)) as producer:
            for number in range(300):
                await producer.send(topic, b"%d" % number, partition=number % 3)
        calls = [Calls(), Calls()]
        first, second = (AsyncConsumer(config(bootstrap, topic, max_poll_records=10)) for _ in calls)
        async with first:
            async with second:
                await first.subscribe([topic], calls[0])
                values = await poll_until(lambda: len(calls[0].owned) == 3, first)
                await second.subscribe([topic], calls[1])
                values += await poll_until(lambda: bool(calls[1].owned), first, second)
                assert calls[0].owned | calls[1].owned == {TopicPartition(topic, number) for number in range(3)}
                assert first.group_metadata().generation == second.group_metadata().generation
                values += await poll_until(lambda: sum(first.positions().values()) > 0, first, second)
                values += [record.value for record in await second.poll(0)]
            values += await poll_until(lambda: len(calls[0].owned) == 3, first)
            values += await poll_until(lambda: sum(first.positions().values()) == 300, first)
        assert calls[0].owned == calls[1].owned == calls[0].lost == calls[1].lost == set()
        assert sorted(map(int, values)) == list(range(300)), "each is read once"

    asyncio.run(run())


def test_members_are_told_what_the_coordinator_refuses(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        for settings, subscription, named in (
            ({}, SubscriptionPattern("(["), r"'\(\[' is not a regular expression of RE2"),
            ({"group_remote_assignor": "none-such"}, [topic], "'none-such' of group_remote_assignor.*uniform"),
        ):
            async with AsyncConsumer(config(bootstrap, topic, **settings)) as consumer:
                await consumer.subscribe(subscription)
                with pytest.raises(ApiError, match=named):
                    await poll_until(lambda: False, consumer)
        static = config(bootstrap, topic, group_instance_id="till-7", max_poll_interval_ms=10_000)
        async with AsyncConsumer(static) as holder:
            await holder.subscribe([topic])
            await poll_until(lambda: len(holder.assignment) == 3, holder)
            async with AsyncConsumer(static) as other:
                await other.subscribe([topic])
                with pytest.raises(ApiError, match="'till-7' has not left") as refused:
                    await poll_until(lambda: False, other)
                assert refused.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
            member = holder.group_metadata()
        async with AsyncConsumer(static) as successor:
            await successor.subscribe([topic])
            await poll_until(lambda: len(successor.assignment) == 3, successor)
            assert successor.group_metadata().member_id != member.member_id
        transactional = ProducerConfig(bootstrap_servers=bootstrap, transactional_id=topic)
        async with AsyncProducer(transactional) as producer:
            await producer.begin_transaction()
            with pytest.raises(ApiError):  # Its member has another id now.
                await producer.send_offsets(member, {TopicPartition(topic, 0): 7})
            await producer.abort_transaction()

    asyncio.run(run())


def test_a_topic_that_was_created_again_gets_no_commit_of_the_earlier_one(
    bootstrap: str, topic: str, kctl: Kctl
) -> None:
    async def run() -> None:
        tp = TopicPartition(topic, 0)
        servers = ProducerConfig(bootstrap_servers=bootstrap)
        earlier = ConsumerConfig(bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest")
        async with AsyncProducer(servers) as producer, AsyncConsumer(earlier) as reader:
            for number in range(5):
                await (await producer.send(topic, b"%d" % number, partition=0))
            await reader.assign([tp])
            await poll_until(lambda: reader.position(tp) == 5, reader)
            await reader.commit()
            assert await reader.committed([tp]) == {tp: 5}
            reader.pause([tp])
            assert kctl(f"topics delete {topic} --yes").status == 0
            assert kctl(f"topics create {topic} --partitions 3").status == 0
            with pytest.raises(ApiError, match=re.escape(str(tp))) as refused:
                await reader.commit({tp: 5})
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_ID
            assert await reader.committed([tp]) == {}
        async with AsyncProducer(servers) as producer:
            for number in range(8):
                await (await producer.send(topic, b"new %d" % number, partition=0))
        for protocol in ("classic", "consumer"):
            settings = ConsumerConfig(
                bootstrap_servers=bootstrap,
                group_id=topic,
                group_protocol=protocol,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            async with AsyncConsumer(settings) as consumer:
                await consumer.subscribe([topic])
                values = await poll_until(lambda: consumer.positions().get(tp) == 8, consumer)
                assert values == [b"new %d" % number for number in range(8)]

    asyncio.run(run())


def test_topics_are_matched_by_the_broker_or_by_the_client(bootstrap: str, topic: str, kctl: Kctl) -> None:
    """The broker looks for new topics every 10 seconds at most, the client after metadata_max_age_ms."""

    async def run() -> None:
        added = TopicPartition(f"{topic}-added", 1)
        matched = AsyncConsumer(config(bootstrap, f"{topic}-1", metadata_max_age_ms=200))
        searched = AsyncConsumer(config(bootstrap, f"{topic}-2"))
        async with matched, searched:
            await matched.subscribe(re.compile(f"{topic}.*"))
            await poll_until(lambda: len(matched.assignment) == 3, matched)
            await asyncio.to_thread(kctl, f"topics create {added.topic} --partitions 2")
            await poll_until(lambda: added in matched.assignment, matched)
            await searched.subscribe(SubscriptionPattern(f"{topic}.*"))
            await poll_until(lambda: len(searched.assignment) == 5, searched)

    asyncio.run(run())


def test_command_consumes_as_a_member_of_the_consumer_protocol(kctl: Kctl, topic: str, tmp_path: Path) -> None:
    kctl(f"produce {topic}", stdin=b"1\n2\n3\n")
    properties = tmp_path / "client.properties"
    properties.write_text("group.protocol=consumer\ngroup.remote.assignor=range\nauto.offset.reset=earliest\n")
    line = f"consume {topic} --group {topic} --command-config {properties} --from beginning"
    ran = kctl(line)
    assert (ran.status, len(ran.out.splitlines())) == (0, 3), ran.err
    (item,) = kctl(f"groups describe {topic} --format json").document
    committed = [int(row[3]) for row in kctl(f"groups describe {topic}").rows if row[3] != "-"]
    assert (item["type"], sum(committed)) == ("consumer", 3)
    properties.write_text("group.protocol=consumer\nsession.timeout.ms=9000\n")
    ran = kctl(line)
    assert (ran.status, "session.timeout.ms" in ran.err and "a setting of the broker" in ran.err) == (2, True), ran.err

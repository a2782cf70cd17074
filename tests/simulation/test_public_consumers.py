"""AsyncConsumer on whole brokers under virtual time: members beside slow programs, cancelled calls, outages."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kctl.admin.groups.groups import look_up_group
from kctl.client import AsyncConsumer, CommitFailed, ConsumerConfig, ConsumerRecord, RebalanceListener, TopicPartition
from kctl.client.cluster import ClusterClient
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.model import ZERO_UUID
from kctl.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kctl.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kctl.testing.sim_cluster import PORT, SimCluster
from kctl.testing.sim_loop import SimLoop
from tests.simulation.faults import CLIENT
from tests.simulation.scene import create_topic, eager_producer, traced

TOPIC = "orders"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(3)]
PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "6000",
}
GROUP = "readers"
Consume = AsyncConsumer[Any, Any]
TASKS = {"fetch records", "group heartbeats", "group topics", "automatic commits", "group join", "group settles"}


class Stage:
    """Three brokers, a topic of three partitions, and consumers of one group."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.chance = random.Random(f"{loop.seed} consumers")
        self.cluster = SimCluster(loop, properties=PROPERTIES)
        self.written = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ClusterClient]:
        await self.cluster.start(3)
        with self.cluster.network.on_host(CLIENT):
            async with self.cluster.client() as client:
                await create_topic(client, TOPIC, len(PARTITIONS))
                yield client
        await self.cluster.stop()

    async def write(self, client: ClusterClient, count: int, topic: str = TOPIC) -> None:
        producer = eager_producer(client, self.loop, lambda _: None)
        for number in range(self.written, self.written + count):
            await producer.send(topic, b"%d" % number, partition=number % len(PARTITIONS))
        await producer.flush()
        self.written += count

    def consumer(self, **settings: Any) -> Consume:
        servers = [f"broker-{number}:{PORT}" for number in self.cluster.brokers]
        defaults: dict[str, Any] = {
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 500,
            "auto_commit_interval_ms": 1_000,
        }
        return AsyncConsumer(ConsumerConfig(bootstrap_servers=servers, **(defaults | settings)))

    async def members(self, client: ClusterClient) -> int:
        return len((await look_up_group(client, GROUP)).members)

    async def committed(self) -> dict[TopicPartition, int]:
        async with self.consumer() as reader:
            return await reader.committed(PARTITIONS)

    async def until(self, condition: Callable[[], Awaitable[object]], seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while not await condition():  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(0.05)


async def group_beside_a_slow_program(stage: Stage) -> None:
    """While records wait, the offsets are committed in time and another member gets its share."""
    async with stage.open() as client:
        await stage.write(client, 3_000)
        async with stage.consumer(max_poll_records=1) as first, stage.consumer() as second:
            await first.subscribe([TOPIC])
            await second.subscribe([TOPIC])
            count = 0

            async def poll_slowly() -> None:
                nonlocal count
                while True:
                    count += len(await first.poll(1_000))
                    await asyncio.sleep(0.1)

            slow = asyncio.create_task(poll_slowly())
            await asyncio.sleep(8)
            assert 50 < count < 100, "records wait"
            committed = sum((await stage.committed()).values())
            assert count - 15 <= committed < count, "committed every second"

            async def has_share() -> bool:
                await second.poll(100)
                return bool(second.assignment)

            await stage.until(has_share, 3)
            before = count
            await asyncio.sleep(3)
            assert before < count, "the first member goes on"
            assert len(first.assignment) + len(second.assignment) == len(PARTITIONS)
            slow.cancel()


async def member_that_does_not_poll(stage: Stage) -> None:
    """It leaves, its commits fail, and it is a member again after the next poll."""

    class Lost(RebalanceListener):
        lost = 0

        async def on_lost(self, partitions: Any) -> None:
            self.lost += len(partitions)

    listener = Lost()
    async with stage.open() as client:
        await stage.write(client, 30)
        async with stage.consumer(max_poll_interval_ms=2_000, enable_auto_commit=False) as consumer:
            await consumer.subscribe([TOPIC], listener)
            assert await consumer.poll(20_000)
            await asyncio.sleep(4)
            assert await stage.members(client) == 0
            with pytest.raises(CommitFailed, match="max_poll_interval_ms"):
                await consumer.commit()
            assert await consumer.poll(20_000)
            assert listener.lost == len(PARTITIONS)
            await consumer.commit()


async def outage(stage: Stage) -> None:
    """All brokers are killed and come back: the iteration goes on, and a commit that waits succeeds."""
    async with stage.open() as client, stage.consumer(enable_auto_commit=False, session_timeout_ms=30_000) as consumer:
        await stage.write(client, 30)
        await consumer.subscribe([TOPIC])
        records: list[ConsumerRecord[Any, Any]] = []

        async def read() -> None:
            async for record in consumer:
                records.append(record)
                if len(records) == 60:
                    return

        async def has_read() -> bool:
            return len(records) == 30

        reading = asyncio.create_task(read())
        await stage.until(has_read)
        for number in list(stage.cluster.brokers):
            stage.cluster.kill(number)
        committing = asyncio.create_task(consumer.commit({PARTITIONS[0]: 5}))
        await asyncio.sleep(4)
        for number in list(stage.cluster.brokers):
            await stage.cluster.start_broker(number)
        await committing
        assert (await consumer.committed(PARTITIONS))[PARTITIONS[0]] == 5
        await stage.write(client, 30)
        await asyncio.wait_for(reading, 60)
        assert Counter(int(record.value) for record in records) == Counter(range(60))


async def topic_that_is_deleted(stage: Stage) -> None:
    """The other topic of the group is read on."""
    async with stage.open() as client, stage.consumer() as consumer:
        await create_topic(client, "doomed", 3)
        await stage.write(client, 30)
        await stage.write(client, 3, "doomed")
        await consumer.subscribe([TOPIC, "doomed"])
        found = 0

        async def has_all() -> bool:
            nonlocal found
            found += len(await consumer.poll(200))
            return found == stage.written

        await stage.until(has_all)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="doomed", topic_id=ZERO_UUID)], timeout_ms=30_000)
        deleted = await client.on_controller(lambda connection: connection.send(request, DeleteTopicsResponse))
        assert [topic.error_code for topic in deleted.responses] == [ErrorCode.NONE]
        await stage.write(client, 30)
        await stage.until(has_all)

        async def has_one_topic() -> bool:
            await consumer.poll(200)
            return consumer.assignment == set(PARTITIONS)

        await stage.until(has_one_topic)
        await stage.write(client, 30)
        await stage.until(has_all)


async def pattern_and_added_partitions(stage: Stage) -> None:
    """New topics that match, and partitions that are added, are read by all members, without internal topics."""
    async with stage.open() as client:
        await stage.write(client, 30)
        settings = {"metadata_max_age_ms": 2_000, "assignors": ("roundrobin",)}
        async with stage.consumer(**settings) as first, stage.consumer(**settings) as second:
            for consumer in (first, second):
                await consumer.subscribe(re.compile(r"or.*|__.*"))

            async def share(*topics: str) -> None:
                async def are_assigned() -> bool:
                    records = [*await first.poll(100), *await second.poll(100)]
                    seen.update((record.topic, record.value) for record in records)
                    assigned = first.assignment | second.assignment
                    is_balanced = abs(len(first.assignment) - len(second.assignment)) <= 1
                    return assigned == expected and is_balanced and len(seen) == stage.written

                expected = {TopicPartition(topic, number) for topic in topics for number in range(counts[topic])}
                await stage.until(are_assigned, 30)

            seen: set[tuple[str, bytes]] = set()
            counts = {TOPIC: 3, "ores": 3}
            await share(TOPIC)
            await create_topic(client, "ores", 3)
            await create_topic(client, "other", 3)
            await stage.write(client, 9, "ores")
            await share(TOPIC, "ores")
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=TOPIC, count=5, assignments=None)],
                timeout_ms=30_000,
                validate_only=False,
            )
            await client.on_controller(lambda connection: connection.send(request, CreatePartitionsResponse))
            counts[TOPIC] = 5
            await share(TOPIC, "ores")
            assert first.metrics()["records-consumed-total"] > 0
            assert first.metrics()["join-total"] >= 3


async def cancelled_calls(stage: Stage, calls: int) -> None:
    """Calls are cancelled at any await: no record is lost or comes twice, and nothing is left behind."""
    async with stage.open() as client:
        await stage.write(client, 300)
        tasks_before = set(asyncio.all_tasks())
        consumer = stage.consumer(max_poll_records=7, fetch_max_wait_ms=50)
        read_to = dict.fromkeys(PARTITIONS, 0)

        def note(records: list[ConsumerRecord[Any, Any]]) -> None:
            for record in records:
                tp = TopicPartition(record.topic, record.partition)
                assert record.offset == read_to[tp], f"{tp}: {record.offset} instead of {read_to[tp]}"
                read_to[tp] += 1

        async def poll() -> None:
            note(await consumer.poll(stage.chance.choice((0, 10, 500))))

        async def iterate() -> None:
            async with contextlib.aclosing(aiter(consumer)) as records:  # type: ignore[type-var]
                async for record in records:
                    note([record])
                    if stage.chance.random() < 0.2:
                        break

        ways: list[Callable[[], Awaitable[object]]] = [poll, poll, poll, iterate, consumer.commit]
        ways += [lambda: consumer.committed(PARTITIONS), lambda: consumer.partitions_of(TOPIC)]
        ways += [lambda: consumer.end_offsets(PARTITIONS), lambda: consumer.beginning_offsets(PARTITIONS)]
        ways += [lambda: consumer.offsets_for_times(dict.fromkeys(PARTITIONS, 0))]
        await consumer.subscribe([TOPIC])
        for _ in range(calls):
            way = stage.chance.choice(ways)
            with contextlib.suppress(TimeoutError, UsageError):
                async with asyncio.timeout(stage.chance.choice((0, 0.0005, 0.002, 0.01, 0.2))):
                    await way()
            if stage.chance.random() < 0.1:
                await stage.write(client, 3)

        async def has_all() -> bool:
            note(await consumer.poll(200))
            return sum(read_to.values()) == stage.written

        await stage.until(has_all)
        await consumer.commit()
        while True:
            try:
                async with asyncio.timeout(stage.chance.choice((0, 0.0005, 0.002))):
                    await consumer.close()
                break
            except TimeoutError:
                continue
        assert await stage.members(client) == 0
        assert await stage.committed() == read_to
        await asyncio.sleep(1)
        left = [task for task in asyncio.all_tasks() - tasks_before if task.get_name() in TASKS]
        assert not left, left


async def cancelled_subscriptions(stage: Stage, calls: int) -> None:
    """subscribe, unsubscribe, assign and close are cancelled at any await: no member is left."""
    async with stage.open() as client:
        await stage.write(client, 30)
        for _ in range(calls):
            consumer = stage.consumer(fetch_max_wait_ms=50)
            ways: list[Callable[[], Awaitable[object]]] = [
                lambda: consumer.subscribe([TOPIC]),  # noqa: B023 - called in this round
                lambda: consumer.poll(2_000),  # noqa: B023
                lambda: consumer.poll(2_000),  # noqa: B023
                consumer.unsubscribe,
                lambda: consumer.assign(PARTITIONS),  # noqa: B023
            ]
            await consumer.subscribe([TOPIC])
            for _ in range(4):
                with contextlib.suppress(TimeoutError, KctlError):
                    async with asyncio.timeout(stage.chance.choice((0.0005, 0.002, 0.01, 3))):
                        await stage.chance.choice(ways)()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(stage.chance.choice((0, 0.0005, 0.002, 3))):
                    await consumer.close()

            async def is_empty() -> bool:
                try:
                    return await stage.members(client) == 0
                except ApiError as error:
                    return error.code is ErrorCode.GROUP_ID_NOT_FOUND

            await stage.until(is_empty, 4)  # less than the session timeout


@pytest.mark.parametrize(
    "play",
    [
        group_beside_a_slow_program,
        member_that_does_not_poll,
        outage,
        topic_that_is_deleted,
        pattern_and_added_partitions,
    ],
)
def test_consumer(play: Callable[[Stage], Awaitable[None]]) -> None:
    traced(lambda loop: play(Stage(loop)), 1)


@pytest.mark.parametrize("seed", [1, 2])
def test_cancelled_calls_lose_nothing_and_leave_nothing_behind(seed: int) -> None:
    traced(lambda loop: cancelled_calls(Stage(loop), 500), seed)


def test_cancelled_subscriptions_leave_no_member_behind() -> None:
    traced(lambda loop: cancelled_subscriptions(Stage(loop), 40), 1)

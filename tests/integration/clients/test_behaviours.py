"""What kctl.client does in the situations of the functional tests of aiokafka: one behaviour is one function.

KCTL_TEST_BOOTSTRAP names another broker, such as that of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kctl.client import (
    AsyncConsumer,
    AsyncProducer,
    ConsumerConfig,
    ConsumerRecord,
    ProducerConfig,
    RebalanceListener,
    TopicPartition,
)
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.records.header import TimestampType
from tests.integration.clients.conftest import RUN

PATIENCE_S = 60
Behaviour = Callable[["Stage"], Awaitable[None]]
BEHAVIOURS: list[Behaviour] = []


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS.append(function)
    return function


class Stage:
    """A topic of two partitions, and clients with settings that suit tests."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.first, self.second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    def create(self, topic: str, partitions: int = 2, **config: str) -> None:
        config = {name.replace("_", "."): value for name, value in config.items()}
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(PATIENCE_S)

    def producer(self, **settings: Any) -> AsyncProducer:
        return AsyncProducer(ProducerConfig(bootstrap_servers=self.bootstrap, linger_ms=0, **settings))

    def consumer(self, group: str | None = None, **settings: Any) -> AsyncConsumer:
        name = f"{self.topic}-{group}" if group else None
        defaults: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        chosen = {**defaults, "fetch_max_wait_ms": 100, **settings}
        return AsyncConsumer(ConsumerConfig(bootstrap_servers=self.bootstrap, group_id=name, **chosen))

    async def write(self, *values: str, partition: int = 0, topic: str | None = None) -> None:
        async with self.producer() as producer:
            for value in values:
                await producer.send(topic or self.topic, value, partition=partition)


async def read(consumer: AsyncConsumer, count: int) -> list[ConsumerRecord]:
    """The next records, so many; and no more."""
    records: list[ConsumerRecord] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(records) < count:
            records += await consumer.poll(1_000)
    assert len(records) == count, records
    return records


async def values(consumer: AsyncConsumer, count: int) -> list[str]:
    return [record.value.decode() for record in await read(consumer, count)]


async def error_of(work: Awaitable[Any]) -> KctlError:
    with pytest.raises(KctlError) as raised:
        await work
    return raised.value


# Producer


@behaviour
async def a_topic_that_does_not_exist_is_refused(stage: Stage) -> None:
    async with stage.producer(allow_auto_create_topics=False) as producer:
        error = await error_of(producer.send(f"{stage.topic}-missing", "x"))
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@behaviour
async def records_of_a_partition_have_consecutive_offsets(stage: Stage) -> None:
    async with stage.producer() as producer:
        sent = [await producer.send(stage.topic, "x", partition=number % 2) for number in range(20)]
        stored = await asyncio.gather(*sent)
    assert [(result.partition, result.offset) for result in stored] == [(n % 2, n // 2) for n in range(20)]


@behaviour
async def records_with_a_key_go_to_one_partition(stage: Stage) -> None:
    async with stage.producer() as producer:
        stored = await asyncio.gather(*[await producer.send(stage.topic, "x", key="customer-1") for _ in range(9)])
    assert len({result.partition for result in stored}) == 1


@behaviour
async def no_acknowledgement_gives_no_offset(stage: Stage) -> None:
    async with stage.producer(acks="0", enable_idempotence=False) as producer:
        assert (await (await producer.send(stage.topic, "x", partition=0))).offset == -1
    async with stage.consumer() as consumer:
        await consumer.assign([stage.first])
        assert await values(consumer, 1) == ["x"]


@behaviour
async def flush_waits_for_all_results(stage: Stage) -> None:
    async with AsyncProducer(ProducerConfig(bootstrap_servers=stage.bootstrap, linger_ms=60_000)) as producer:
        sent = [await producer.send(stage.topic, "x") for _ in range(10)]
        await producer.flush()
        assert all(future.done() for future in sent)


@behaviour
async def keys_values_headers_and_times_arrive(stage: Stage) -> None:
    headers = (("a", b"1"), ("a", None), ("é", b""))
    async with stage.producer(value_serializer=lambda number: b"%d" % number) as producer:
        await producer.send(stage.topic, 7, key=b"k", headers=headers, partition=1, timestamp_ms=1_234)
    async with stage.consumer(value_deserializer=int) as consumer:
        await consumer.assign([stage.second])
        (record,) = await read(consumer, 1)
    assert (record.key, record.value, record.headers, record.timestamp_ms) == (b"k", 7, headers, 1_234)
    assert record.timestamp_type is TimestampType.CREATE_TIME


@behaviour
async def the_broker_sets_the_time_of_a_topic_with_append_times(stage: Stage) -> None:
    topic = f"{stage.topic}-times"
    stage.create(topic, 1, message_timestamp_type="LogAppendTime")
    async with stage.producer() as producer:
        stored = await (await producer.send(topic, "x", timestamp_ms=1_234))
    async with stage.consumer() as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        (record,) = await read(consumer, 1)
    assert record.timestamp_ms == stored.timestamp_ms > 1_234
    assert record.timestamp_type is TimestampType.LOG_APPEND_TIME


@behaviour
async def a_large_record_is_written_and_read_beyond_the_limits_of_fetches(stage: Stage) -> None:
    large = "x" * 900_000
    await stage.write(large, "small")
    async with stage.consumer(max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000) as consumer:
        await consumer.assign([stage.first])
        assert await values(consumer, 2) == [large, "small"]


@behaviour
async def a_producer_that_was_closed_refuses_records(stage: Stage) -> None:
    async with stage.producer() as producer:
        await producer.send(stage.topic, "x")
    assert isinstance(await error_of(producer.send(stage.topic, "x")), UsageError)


# Consumer


@behaviour
async def only_assigned_partitions_are_read(stage: Stage) -> None:
    await stage.write("a")
    await stage.write("b", partition=1)
    async with stage.consumer() as consumer:
        await consumer.assign([stage.second])
        assert await values(consumer, 1) == ["b"]
        assert consumer.assignment == {stage.second}


@behaviour
async def poll_returns_at_most_max_poll_records(stage: Stage) -> None:
    await stage.write(*map(str, range(10)))
    async with stage.consumer(max_poll_records=4) as consumer:
        await consumer.assign([stage.first])
        lengths: list[int] = []
        while sum(lengths) < 10:
            lengths.append(len(await consumer.poll(1_000)))
    assert max(lengths) <= 4


@behaviour
async def a_group_resumes_where_it_has_committed(stage: Stage) -> None:
    await stage.write("a", "b", "c")
    async with stage.consumer("resuming", max_poll_records=2) as consumer:
        await consumer.subscribe([stage.topic])
        while not (records := await consumer.poll(1_000)):
            pass
        await consumer.commit()
        assert (await consumer.committed([stage.first]))[stage.first] == len(records)
    async with stage.consumer("resuming") as consumer:
        await consumer.assign([stage.first])
        assert await values(consumer, 3 - len(records)) == ["a", "b", "c"][len(records) :]


@behaviour
async def offsets_are_committed_automatically_at_the_end(stage: Stage) -> None:
    await stage.write("a", "b")
    async with stage.consumer("automatic", enable_auto_commit=True) as consumer:
        await consumer.subscribe([stage.topic])
        await read(consumer, 2)
    async with stage.consumer("automatic") as consumer:
        assert await consumer.committed([stage.first]) == {stage.first: 2}


@behaviour
async def without_a_group_nothing_can_be_committed_or_subscribed(stage: Stage) -> None:
    async with stage.consumer() as consumer:
        assert isinstance(await error_of(consumer.subscribe([stage.topic])), UsageError)
        await consumer.assign([stage.first])
        assert isinstance(await error_of(consumer.commit()), UsageError)


@behaviour
async def given_offsets_are_committed(stage: Stage) -> None:
    await stage.write("a", "b", "c")
    async with stage.consumer("given") as consumer:
        await consumer.assign([stage.first])
        await consumer.commit({stage.first: 2})
        assert await consumer.committed([stage.first, stage.second]) == {stage.first: 2}


@behaviour
async def seek_moves_back_and_forth(stage: Stage) -> None:
    await stage.write(*"abcde")
    async with stage.consumer() as consumer:
        await consumer.assign([stage.first])
        assert await values(consumer, 5) == [*"abcde"]
        for offset, expected in ((1, "bcde"), (4, "e"), (0, "abcde")):
            consumer.seek(stage.first, offset)
            assert consumer.position(stage.first) == offset
            assert await values(consumer, len(expected)) == [*expected]
        await consumer.seek_to_beginning([stage.first])
        assert await values(consumer, 5) == [*"abcde"]
        await consumer.seek_to_end([stage.first])
        await stage.write("f")
        assert await values(consumer, 1) == ["f"]


@behaviour
async def a_partition_that_is_not_assigned_has_no_position(stage: Stage) -> None:
    async with stage.consumer() as consumer:
        await consumer.assign([stage.first])
        for call in (consumer.position, lambda tp: consumer.seek(tp, 0), lambda tp: consumer.pause([tp])):
            with pytest.raises(UsageError):
                call(stage.second)
        with pytest.raises(UsageError):
            consumer.seek(stage.first, -1)


@behaviour
async def an_offset_outside_of_the_log_is_reset_or_reported(stage: Stage) -> None:
    await stage.write("a")
    for reset, expected in (("earliest", ["a"]), ("none", ErrorCode.OFFSET_OUT_OF_RANGE)):
        async with stage.consumer(auto_offset_reset=reset) as consumer:
            await consumer.assign({stage.first: 50})
            if reset == "earliest":
                assert await values(consumer, 1) == expected
            else:
                error = await error_of(consumer.poll(PATIENCE_S * 1_000))
                assert isinstance(error, ApiError)
                assert error.code is expected


@behaviour
async def paused_partitions_are_not_read(stage: Stage) -> None:
    await stage.write("a")
    await stage.write("b", partition=1)
    async with stage.consumer() as consumer:
        await consumer.assign([stage.first, stage.second])
        consumer.pause([stage.first])
        assert await values(consumer, 1) == ["b"]
        assert consumer.paused == {stage.first}
        assert await consumer.poll(200) == []
        consumer.resume([stage.first])
        assert await values(consumer, 1) == ["a"]


@behaviour
async def a_pattern_finds_topics_now_and_later_and_no_internal_ones(stage: Stage) -> None:
    await stage.write("a")
    async with stage.consumer("pattern", metadata_max_age_ms=200) as consumer:
        await consumer.subscribe(re.compile(rf"({re.escape(stage.topic)}(-later)?|__.*)"))
        assert await values(consumer, 1) == ["a"]
        assert {tp.topic for tp in consumer.assignment} == {stage.topic}
        await consumer.commit()
        stage.create(f"{stage.topic}-later")
        await stage.write("b", topic=f"{stage.topic}-later")
        assert await values(consumer, 1) == ["b"]


@behaviour
async def another_subscription_replaces_the_first_one(stage: Stage) -> None:
    other = f"{stage.topic}-other"
    stage.create(other)
    await stage.write("a", "b")
    await stage.write("c", topic=other)
    async with stage.consumer("replaced", max_poll_records=1) as consumer:
        await consumer.subscribe([stage.topic])
        assert await values(consumer, 1) == ["a"]
        await consumer.subscribe([other])
        assert await values(consumer, 1) == ["c"]
        await consumer.unsubscribe()
        assert consumer.assignment == set()


@behaviour
async def a_listener_learns_of_assigned_and_revoked_partitions(stage: Stage) -> None:
    calls: list[tuple[str, set[TopicPartition]]] = []

    class Listener(RebalanceListener):
        async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            calls.append(("assigned", set(partitions)))
            consumer.seek(stage.first, 1)

        async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            calls.append(("revoked", set(partitions)))
            await consumer.commit()

    await stage.write("a", "b")
    async with stage.consumer("listener") as consumer:
        await consumer.subscribe([stage.topic], Listener())
        assert await values(consumer, 1) == ["b"]
    both = {stage.first, stage.second}
    assert calls == [("assigned", both), ("revoked", both)]
    async with stage.consumer("listener") as consumer:
        assert (await consumer.committed([stage.first]))[stage.first] == 2


@behaviour
async def two_members_share_the_partitions(stage: Stage) -> None:
    await stage.write("a")
    await stage.write("b", partition=1)
    async with stage.consumer("shared") as one, stage.consumer("shared") as other:
        await one.subscribe([stage.topic])
        await other.subscribe([stage.topic])
        async with asyncio.timeout(PATIENCE_S):
            while not (len(one.assignment) == len(other.assignment) == 1):
                await asyncio.gather(one.poll(100), other.poll(100))
        assert one.assignment | other.assignment == {stage.first, stage.second}


@behaviour
async def a_commit_does_not_wait_for_a_long_fetch(stage: Stage) -> None:
    async with stage.consumer("long", fetch_max_wait_ms=PATIENCE_S * 1_000) as consumer:
        await consumer.assign([stage.first])
        assert await consumer.poll(200) == []
        async with asyncio.timeout(PATIENCE_S / 2):
            await consumer.commit({stage.first: 0})


@behaviour
async def offsets_are_found_by_time(stage: Stage) -> None:
    async with stage.producer() as producer:
        for time_ms in (1_000, 2_000, 3_000):
            await producer.send(stage.topic, "x", partition=0, timestamp_ms=time_ms)
    async with stage.consumer() as consumer:
        for time_ms, expected in ((0, 0), (1_001, 1), (3_000, 2), (3_001, None)):
            (offset,) = (await consumer.offsets_for_times({stage.first: time_ms})).values()
            assert (None if offset is None else offset.offset) == expected, time_ms
        assert await consumer.beginning_offsets([stage.first]) == {stage.first: 0}
        assert await consumer.end_offsets([stage.first, stage.second]) == {stage.first: 3, stage.second: 0}


@behaviour
async def iteration_returns_records_one_by_one_and_loses_none(stage: Stage) -> None:
    await stage.write(*"abcd")
    async with stage.consumer() as consumer:
        await consumer.assign([stage.first])
        seen = []
        async for record in consumer:
            seen.append(record.value)
            if len(seen) == 2:
                break
        async for record in consumer:
            seen.append(record.value)
            if len(seen) == 4:
                break
    assert seen == [b"a", b"b", b"c", b"d"]


@behaviour
async def a_session_timeout_that_the_broker_refuses_is_an_error(stage: Stage) -> None:
    async with stage.consumer("session", session_timeout_ms=3_600_001 * 10) as consumer:
        await consumer.subscribe([stage.topic])
        error = await error_of(consumer.poll(PATIENCE_S * 1_000))
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.INVALID_SESSION_TIMEOUT


# Transactions


@behaviour
async def committed_records_are_read_and_aborted_ones_are_not(stage: Stage) -> None:
    async with stage.producer(transactional_id=f"{stage.topic}-a") as producer:
        for name, is_commit in (("a", True), ("b", False), ("c", True)):
            await producer.begin_transaction()
            await (await producer.send(stage.topic, name, partition=0))
            await (producer.commit_transaction() if is_commit else producer.abort_transaction())
    for isolation, expected in (("read_committed", "ac"), ("read_uncommitted", "abc")):
        async with stage.consumer(isolation_level=isolation) as consumer:
            await consumer.assign([stage.first])
            assert await values(consumer, len(expected)) == [*expected], isolation


@behaviour
async def a_log_of_control_records_alone_is_read_to_its_end(stage: Stage) -> None:
    async with stage.producer(transactional_id=f"{stage.topic}-b") as producer:
        await producer.begin_transaction()
        await (await producer.send(stage.topic, "x", partition=0))
        await producer.abort_transaction()
    async with stage.consumer(isolation_level="read_committed") as consumer:
        await consumer.assign([stage.first])
        async with asyncio.timeout(PATIENCE_S):
            while consumer.position(stage.first) < 2:
                assert await consumer.poll(100) == []


@behaviour
async def transactions_of_two_producers_in_one_partition_do_not_mix(stage: Stage) -> None:
    async with (
        stage.producer(transactional_id=f"{stage.topic}-c") as one,
        stage.producer(transactional_id=f"{stage.topic}-d") as other,
    ):
        await one.begin_transaction()
        await other.begin_transaction()
        for number in range(4):
            await (await (one, other)[number % 2].send(stage.topic, str(number), partition=0))
        await other.abort_transaction()
        await one.commit_transaction()
    async with stage.consumer(isolation_level="read_committed") as consumer:
        await consumer.assign([stage.first])
        assert await values(consumer, 2) == ["0", "2"]


@behaviour
async def an_empty_transaction_ends(stage: Stage) -> None:
    async with stage.producer(transactional_id=f"{stage.topic}-e") as producer:
        for end in (producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            await end()


@behaviour
async def a_second_producer_of_a_transactional_id_fences_the_first(stage: Stage) -> None:
    async with stage.producer(transactional_id=f"{stage.topic}-f") as first:
        await first.begin_transaction()
        await (await first.send(stage.topic, "x", partition=0))
        async with stage.producer(transactional_id=f"{stage.topic}-f") as second:
            error = await error_of(first.commit_transaction())
            assert isinstance(error, ApiError)
            assert error.code in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
            async with second.transaction():
                await second.send(stage.topic, "y", partition=0)
    async with stage.consumer(isolation_level="read_committed") as consumer:
        await consumer.assign([stage.first])
        assert await values(consumer, 1) == ["y"]


@behaviour
async def offsets_of_a_transaction_are_committed_with_it(stage: Stage) -> None:
    group = f"{stage.topic}-offsets"
    async with stage.producer(transactional_id=f"{stage.topic}-g") as producer, stage.consumer("offsets") as consumer:
        for is_commit in (False, True):
            await producer.begin_transaction()
            await producer.send(stage.topic, "x")
            await producer.send_offsets(group, {stage.first: 5})
            await (producer.commit_transaction() if is_commit else producer.abort_transaction())
            assert await consumer.committed([stage.first]) == ({stage.first: 5} if is_commit else {})


@behaviour
async def calls_outside_of_a_transaction_are_refused(stage: Stage) -> None:
    async with stage.producer(transactional_id=f"{stage.topic}-h") as producer:
        for call in (
            lambda: producer.send(stage.topic, "x"),
            lambda: producer.send_offsets("group", {stage.first: 5}),
            producer.commit_transaction,
            producer.abort_transaction,
        ):
            assert isinstance(await error_of(call()), UsageError)
        await producer.begin_transaction()
        assert isinstance(await error_of(producer.begin_transaction()), UsageError)
        await producer.abort_transaction()
    async with stage.producer() as producer:
        assert isinstance(await error_of(producer.begin_transaction()), UsageError)


def test_behaviours(bootstrap: str) -> None:
    async def play(number: int, check: Behaviour) -> None:
        stage = Stage(bootstrap, f"behaviour-{number}-{RUN}")
        stage.create(stage.topic)
        async with asyncio.timeout(2 * PATIENCE_S):
            await check(stage)

    async def play_all() -> list[str]:
        errors = []
        for number, check in enumerate(BEHAVIOURS):
            try:
                await play(number, check)
            except Exception as error:
                errors.append(f"{check.__name__}: {type(error).__name__}: {error}")
        return errors

    assert asyncio.run(play_all()) == []

"""Our share consumers (KIP-932) on Apache Kafka 4 and on our broker, beside Java's, with a member that is killed."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kctl.admin.groups.offsets import alter_share_offsets
from kctl.client import (
    AcknowledgeType,
    AsyncProducer,
    AsyncShareConsumer,
    Consumer,
    ConsumerConfig,
    ProducerConfig,
    ShareConsumer,
    ShareConsumerConfig,
    ShareRecord,
    TopicPartition,
    WokenUp,
)
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.integration.cli.conftest import KAFKA_4, WITH_NEWER_GROUPS
from tests.peers.apache_kafka import NEWEST_BROKER, java_command

pytestmark = [
    pytest.mark.parametrize("bootstrap", [KAFKA_4, WITH_NEWER_GROUPS], indirect=True),
    pytest.mark.timeout(300),
]

WAIT_S = 60
GROUP = 32
"""The type of a group among the resources of configurations."""
KILLED = """
import sys
from kctl.client import ShareConsumer, ShareConsumerConfig
bootstrap, topic = sys.argv[1:]
with ShareConsumer(ShareConsumerConfig(bootstrap_servers=bootstrap, group_id=topic, max_poll_records=20)) as consumer:
    consumer.subscribe([topic])
    while not (records := consumer.poll()):
        pass
    print(*(f"{record.partition}-{record.offset}" for record in records), flush=True)
    sys.stdin.read()
"""


def config(bootstrap: str, group: str, **settings: Any) -> ShareConsumerConfig:
    return ShareConsumerConfig(bootstrap_servers=bootstrap, group_id=group, **settings)


async def begin_at_the_first_record(bootstrap: str, group: str, **others: str) -> None:
    """Sets properties of the group, among them share.auto.offset.reset."""
    properties = {"share.auto.offset.reset": "earliest", **others}
    configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in properties.items()]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    async with ClusterClient(config(bootstrap, group).client_settings(), AsyncioTransport()) as client:
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        response = await (await client.any_broker()).send(request, IncrementalAlterConfigsResponse)
    assert [one.error_code for one in response.responses] == [0]


async def write(bootstrap: str, topic: str, values: range, *, partition: int | None = None) -> None:
    async with AsyncProducer(ProducerConfig(bootstrap_servers=bootstrap)) as producer:
        for number in values:
            await producer.send(topic, b"%d" % number, partition=number % 3 if partition is None else partition)


async def some_of(consumer: AsyncShareConsumer, count: int) -> list[ShareRecord]:
    """The first records, so many; those before the last list were accepted."""
    found: list[ShareRecord] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            found += await consumer.poll(200)
    return found


async def until(claim: Callable[[], bool], *consumers: AsyncShareConsumer) -> list[ShareRecord]:
    found: list[ShareRecord] = []
    async with asyncio.timeout(WAIT_S):
        while not claim():
            for consumer in consumers:
                found += await consumer.poll(50)
    return found


def test_records_are_shared_with_java_and_those_of_a_killed_member_are_handed_out_again(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    async def run() -> None:
        await begin_at_the_first_record(bootstrap, topic)
        await write(bootstrap, topic, range(60))
        taken = await asyncio.to_thread(read_by_a_member_that_is_killed, bootstrap, topic)
        assert taken
        log = tmp_path / "java.log"
        found: dict[str, list[int]] = {}
        settings = config(bootstrap, topic, max_poll_records=10)
        with java_member(bootstrap, topic, log):
            async with AsyncShareConsumer(settings) as first, AsyncShareConsumer(settings) as second:
                await first.subscribe([topic])
                await second.subscribe([topic])
                written = 60
                async with asyncio.timeout(WAIT_S):
                    while len(found) + len(java_read(log)) < written:
                        if not java_read(log) or len(found) < 60:
                            await write(bootstrap, topic, range(written, written + 30))
                            written += 30
                        for consumer in (first, second):
                            for record in await consumer.poll(50):
                                counts = found.setdefault(f"{record.partition}-{record.offset}", [])
                                counts.append(record.delivery_count)
        assert not found.keys() & java_read(log)
        assert all(len(counts) == 1 for counts in found.values()), "each is handed out to one member"
        assert all(found[name][0] >= 2 for name in taken if name in found), "they were handed out before"

    asyncio.run(run())


def read_by_a_member_that_is_killed(bootstrap: str, topic: str) -> list[str]:
    """The records that it held, as PARTITION-OFFSET."""
    command = [sys.executable, "-c", KILLED, bootstrap, topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as member:
        assert member.stdout is not None
        taken = member.stdout.readline().decode().split()
        member.kill()
    return taken


@contextlib.contextmanager
def java_member(bootstrap: str, topic: str, log: Path) -> Iterator[None]:
    """Java's ConsoleShareConsumer, whose output is in the log."""
    tool = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    printing = ["--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true"]
    words = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", topic, *printing]
    with log.open("wb") as output:
        command = java_command(NEWEST_BROKER, tool, words)
        with subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL) as member:
            try:
                yield
            finally:
                member.kill()


def java_read(log: Path) -> set[str]:
    """The records in the output of ConsoleShareConsumer, as PARTITION-OFFSET."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    found = set()
    for line in lines:
        words = dict(word.split(":", 1) for word in line.split("\t") if ":" in word)
        if "Partition" in words and "Offset" in words:
            found.add(f"{words['Partition']}-{words['Offset']}")
    return found


def test_records_are_accepted_released_rejected_and_renewed(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        await begin_at_the_first_record(bootstrap, topic)
        await write(bootstrap, topic, range(4), partition=0)
        outcomes: list[tuple[TopicPartition, tuple[int, ...], ApiError | None]] = []
        explicit = config(bootstrap, topic, share_acknowledgement_mode="explicit")
        async with AsyncShareConsumer(explicit, on_acknowledged=lambda *all: outcomes.append(all)) as consumer:
            await consumer.subscribe([topic])
            records = await some_of(consumer, 4)
            with pytest.raises(UsageError, match="4 records of the last poll not acknowledged"):
                await consumer.poll()
            for record, kind in zip(records, AcknowledgeType, strict=True):
                consumer.acknowledge(record, kind)
            with pytest.raises(UsageError, match="not held"):
                consumer.acknowledge(records[0])
            assert await consumer.commit() == {TopicPartition(topic, 0): None}
            (released,) = await some_of(consumer, 1)
            assert (released.offset, released.delivery_count, consumer.acquisition_lock_timeout_ms) == (1, 2, 30_000)
            consumer.acknowledge(released)
            consumer.acknowledge(records[3])  # Its lock was renewed.
            assert await consumer.commit() == {TopicPartition(topic, 0): None}
        assert sorted(offset for _, offsets, error in outcomes for offset in offsets if error is None) == [
            *(0, 1, 1, 2, 3, 3),
        ]
        await write(bootstrap, topic, range(2), partition=0)
        failed = AsyncShareConsumer(config(bootstrap, topic))
        await failed.subscribe([topic])
        await some_of(failed, 2)
        await failed.__aexit__(ZeroDivisionError)
        async with AsyncShareConsumer(config(bootstrap, topic)) as implicit:
            await implicit.subscribe([topic])
            again = await some_of(implicit, 2)
            assert [(record.offset, record.delivery_count) for record in again] == [(4, 2), (5, 2)]
            with pytest.raises(UsageError, match="share_acknowledgement_mode='explicit'"):
                implicit.acknowledge(again[0])
        async with AsyncShareConsumer(config(bootstrap, topic, share_acquire_mode="record_limit")) as last:
            await last.subscribe([topic])
            await until(lambda: len(last.assignment) == 3, last)
            assert await last.poll(500) == [], "the end of the block has accepted all"
            last.wakeup()
            with pytest.raises(WokenUp):
                await last.poll(60_000)

    asyncio.run(run())


def test_members_begin_again_where_an_administrator_sets_the_offset(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        await begin_at_the_first_record(bootstrap, topic)
        await write(bootstrap, topic, range(6), partition=0)
        async with AsyncShareConsumer(config(bootstrap, topic)) as consumer:
            await consumer.subscribe([topic])
            assert [record.offset for record in await some_of(consumer, 6)] == [*range(6)]
            assert await consumer.commit() == {TopicPartition(topic, 0): None}
        async with ClusterClient(config(bootstrap, topic).client_settings(), AsyncioTransport()) as client:
            await alter_share_offsets(client, topic, {TopicPartition(topic, 0): 4})
        async with AsyncShareConsumer(config(bootstrap, topic)) as consumer:
            await consumer.subscribe([topic])
            again = await some_of(consumer, 2)
            assert [(record.offset, record.delivery_count) for record in again] == [(4, 1), (5, 1)]

    asyncio.run(run())


def test_records_of_aborted_transactions_are_not_handed_out(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        await begin_at_the_first_record(bootstrap, topic, **{"share.isolation.level": "read_committed"})
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
        producer.init_transactions(WAIT_S)
        for number in range(6):
            producer.begin_transaction()
            producer.produce(topic, b"%d" % number, partition=0)
            producer.flush(WAIT_S)
            if number % 2:
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)
        async with AsyncShareConsumer(config(bootstrap, topic)) as consumer:
            await consumer.subscribe([topic])
            assert [record.value for record in await some_of(consumer, 3)] == [b"0", b"2", b"4"]
            assert await consumer.commit() == {TopicPartition(topic, 0): None}
            producer.begin_transaction()
            producer.produce(topic, b"open", partition=0)
            producer.flush(WAIT_S)
            assert await consumer.poll(500) == []
            producer.commit_transaction(WAIT_S)
            assert [record.value for record in await some_of(consumer, 1)] == [b"open"]

    asyncio.run(run())


def test_a_cancelled_poll_loses_no_record(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        await begin_at_the_first_record(bootstrap, topic)
        await write(bootstrap, topic, range(200))
        seen: Counter[bytes] = Counter()
        async with AsyncShareConsumer(config(bootstrap, topic, max_poll_records=5)) as consumer:
            await consumer.subscribe([topic])
            delay_s = 0.0
            async with asyncio.timeout(WAIT_S):
                while len(seen) < 200:
                    polling = asyncio.create_task(consumer.poll(1_000))
                    await asyncio.wait([polling], timeout=delay_s)
                    polling.cancel()
                    await asyncio.wait([polling])
                    if not polling.cancelled():
                        seen.update(record.value for record in polling.result())
                    delay_s = (delay_s + 0.0007) % 0.02
        assert set(seen.values()) == {1}

    asyncio.run(run())


def test_group_of_consumers_is_refused(bootstrap: str, topic: str) -> None:
    with ShareConsumer(config(bootstrap, topic)) as consumer:
        consumer.subscribe(["none-such"])
        assert consumer.poll(50) == []
        assert consumer.assignment == set()
    classic = ConsumerConfig(bootstrap_servers=bootstrap, group_id=f"{topic}-classic", group_protocol="consumer")
    with Consumer(classic) as holder, ShareConsumer(config(bootstrap, f"{topic}-classic")) as other:
        holder.subscribe([topic])
        while not holder.assignment:
            holder.poll(100)
        other.subscribe([topic])
        with pytest.raises(ApiError, match="not a share group") as refused:
            other.poll(10_000)
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND

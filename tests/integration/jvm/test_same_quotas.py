"""Quotas are enforced as Apache Kafka 2.8.2 enforces them, with the same requests and windows in the same run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from kctl.client.connections.asyncio_transport import AsyncioConnection, AsyncioTransport
from kctl.errors import ErrorCode
from kctl.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kctl.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.integration.jvm.side_by_side import APACHE, OURS, SideBySide, side_by_side
from tests.peers import apache_kafka, probe
from tests.peers.forked_kctl import run_kctl

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

WINDOWS = {
    "quota.window.num": "2",
    "quota.window.size.seconds": "1",
    "controller.quota.window.num": "2",
    "controller.quota.window.size.seconds": "1",
}
"""A rate is that of one whole second and a part of the next, and the bucket holds tokens for two seconds."""
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
TOPIC = "quotas"

T = TypeVar("T")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    with side_by_side(tmp_path_factory.mktemp("quotas"), properties=WINDOWS) as both:
        for who in both.bootstraps:
            asyncio.run(on(both, who, "creator", create_topic))
        yield both


async def create_topic(connection: AsyncioConnection) -> None:
    await create(connection, 7, TOPIC)


async def create(connection: AsyncioConnection, version: int, *names: str, partitions: int = 1) -> CreateTopicsResponse:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=30_000)
    return await connection.send(request, CreateTopicsResponse, version=version)


async def on(both: SideBySide, who: str, client_id: str, work: Callable[[AsyncioConnection], Awaitable[T]]) -> T:
    async with connected(both, who, client_id) as connection:
        return await work(connection)


@contextlib.asynccontextmanager
async def connected(both: SideBySide, who: str, client_id: str) -> AsyncIterator[AsyncioConnection]:
    host, port = probe.address(both.bootstraps[who])
    connection = await AsyncioTransport().connect(
        host, port, client_id=client_id, connect_timeout_ms=30_000, timeout_ms=60_000
    )
    try:
        yield connection
    finally:
        await connection.close()


async def set_quota(connection: AsyncioConnection, client_id: str, key: str, value: float) -> None:
    entity = [RequestEntityData(entity_type="client-id", entity_name=client_id)]
    request = AlterClientQuotasRequest(
        entries=[RequestEntryData(entity=entity, ops=[OpData(key=key, value=value, remove=False)])],
        validate_only=False,
    )
    response = await connection.send(request, AlterClientQuotasResponse)
    assert [entry.error_code for entry in response.entries] == [0]


async def produce(connection: AsyncioConnection, size: int) -> int:
    """Appends one batch of about so many bytes; returns the throttle time."""
    batch = memoryview(bytearray(build_batch([Record(0, 1_600_000_000_000, None, bytes(size), ())])))
    topics = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])]
    response = await connection.send(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics), ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == 0
    return response.throttle_time_ms


async def fetch(connection: AsyncioConnection) -> tuple[int, int]:
    """Reads the topic from its start; returns the number of topics in the response and the throttle time."""
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=TOPIC, partitions=partitions)],
    )
    response = await connection.send(request, FetchResponse, version=11)
    return len(response.responses), response.throttle_time_ms


async def until_limited(both: SideBySide, who: str, client_id: str, key: str, value: float) -> None:
    """Sets a quota, and a request quota of 0 with it, whose effect shows that the broker has read both."""
    async with connected(both, who, "administrator") as administrator:
        await set_quota(administrator, client_id, key, value)
        marker = f"{client_id}-marker"
        await set_quota(administrator, marker, "request_percentage", 1e-9)
        async with connected(both, who, marker) as marked, asyncio.timeout(60):
            while not (await marked.send(ListGroupsRequest(), ListGroupsResponse, version=2)).throttle_time_ms:  # noqa: ASYNC110 - polled
                await asyncio.sleep(0.05)


def on_both(
    both: SideBySide, client_id: str, key: str, value: float, work: Callable[[AsyncioConnection], Awaitable[T]]
) -> tuple[T, T]:
    """The responses of Apache Kafka and of our broker to a client with a quota."""

    async def main(who: str) -> T:
        await until_limited(both, who, client_id, key, value)
        return await on(both, who, client_id, work)

    return asyncio.run(main(APACHE)), asyncio.run(main(OURS))


def test_produce_is_throttled_for_the_same_time(brokers: SideBySide) -> None:
    """30 KB in a window of a second, at 10 KB/s: two seconds, and nothing is read for as long."""

    async def work(connection: AsyncioConnection) -> tuple[int, int]:
        first = await produce(connection, 30_000)
        return first, await produce(connection, 100)

    apache, ours = on_both(brokers, "producer", "producer_byte_rate", 10_000, work)
    for throttle_ms, later_ms in (apache, ours):
        assert 2_000 <= throttle_ms <= 2_050
        assert later_ms == 0
    assert abs(apache[0] - ours[0]) <= 5


def test_a_throttled_fetch_is_empty_and_throttled_for_the_same_time(brokers: SideBySide) -> None:
    async def fill(connection: AsyncioConnection) -> None:
        for _ in range(3):
            await produce(connection, 4_000)

    async def work(connection: AsyncioConnection) -> list[tuple[int, int]]:
        return [await fetch(connection) for _ in range(2)]

    for who in (APACHE, OURS):
        asyncio.run(on(brokers, who, "filler", fill))
    apache, ours = on_both(brokers, "consumer", "consumer_byte_rate", 60_000, work)
    # The topic has more than 42 KB.
    for served, throttled in (apache, ours):
        assert served == (1, 0)
        assert throttled[0] == 0
        assert 0 < throttled[1] <= 1_000


def test_creations_of_topics_beyond_the_quota_are_refused_since_version_6(brokers: SideBySide) -> None:
    """One token per second and room for two: the first topic with five partitions overdraws the bucket by three."""

    async def work(connection: AsyncioConnection) -> tuple[list[ErrorCode], int]:
        response = await create(connection, 6, "strict-a", "strict-b", "strict-c", partitions=5)
        return sorted(ErrorCode(topic.error_code) for topic in response.topics), response.throttle_time_ms

    apache, ours = on_both(brokers, "strict", "controller_mutation_rate", 1, work)
    for codes, throttle_ms in (apache, ours):
        assert codes == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert 0 < throttle_ms <= 3_000


def test_creations_of_topics_beyond_the_quota_are_made_before_version_6(brokers: SideBySide) -> None:
    async def work(connection: AsyncioConnection) -> tuple[list[int], int]:
        response = await create(connection, 5, "permissive-a", "permissive-b", partitions=50)
        return [topic.error_code for topic in response.topics], response.throttle_time_ms

    apache, ours = on_both(brokers, "permissive", "controller_mutation_rate", 1, work)
    for codes, throttle_ms in (apache, ours):
        assert codes == [0, 0]
        # 98 s, less the time in which the topics got their leaders.
        assert 38_000 < throttle_ms <= 98_000


def test_configs_of_clients_are_printed_as_by_kafka_configs(brokers: SideBySide) -> None:
    """The tool makes all changes before it describes them; ours then makes the same changes again."""
    ours = [words for words in COMPARED.values() if words]
    theirs = apache_tool(brokers.bootstraps[OURS], list(COMPARED))
    expected = [text for text, words in zip(theirs, COMPARED.values(), strict=True) if words]
    assert [kctl_configs(brokers.bootstraps[OURS], words) for words in ours] == expected
    assert any("SCRAM-SHA-512=iterations=4096" in text for text in expected)


COMPARED = {
    "--alter --entity-type users --entity-name alice --add-config producer_byte_rate=1000,request_percentage=12.5": (
        "alter user alice --set producer_byte_rate=1000 --set request_percentage=12.5"
    ),
    "--alter --entity-type users --entity-default --add-config consumer_byte_rate=20000000": (
        "alter user <default> --set consumer_byte_rate=20000000"
    ),
    "--alter --entity-type users --entity-name bob --entity-type clients --entity-name app"
    " --add-config controller_mutation_rate=0.5": "alter user bob --client app --set controller_mutation_rate=0.5",
    "--alter --entity-type users --entity-name bob --entity-type clients --entity-default"
    " --add-config controller_mutation_rate=1.5": (
        "alter user bob --client <default> --set controller_mutation_rate=1.5"
    ),
    "--alter --entity-type ips --entity-name 127.0.0.9 --add-config connection_creation_rate=5": (
        "alter ip 127.0.0.9 --set connection_creation_rate=5"
    ),
    "--alter --entity-type users --entity-name carol --add-config"
    " SCRAM-SHA-256=[iterations=5000,password=x],SCRAM-SHA-512=[password=y]": "",
    "--describe --entity-type users": "describe user",
    "--describe --entity-type users --entity-name alice": "describe user alice",
    "--describe --entity-type users --entity-default": "describe user <default>",
    "--describe --entity-type users --entity-type clients": "describe user --client *",
    "--describe --entity-type users --entity-name bob --entity-type clients": "describe user bob --client *",
    "--describe --entity-type clients": "describe client",
    "--describe --entity-type ips": "describe ip",
}
"""Arguments of the tool, and the words of `kctl configs` for the same; empty for what only the tool can do."""


def apache_tool(bootstrap: str, lines: list[str]) -> list[str]:
    """What kafka-configs prints for each line, all in one JVM."""
    commands = [[CONFIG_COMMAND, "--bootstrap-server", bootstrap, *line.split()] for line in lines]
    return [out for out, _ in apache_kafka.run_broker_tools(apache_kafka.OLDEST_JUDGE, commands)]


def kctl_configs(bootstrap: str, words: str) -> str:
    ran = run_kctl("configs", *words.split(), "--compat", "kafka-2.8", "--bootstrap-server", bootstrap)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout

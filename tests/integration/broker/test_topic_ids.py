"""Records are written and read by topic ids, and those of a topic that was deleted stand for nothing.  KIP-516."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kctl.client.connections.asyncio_transport import AsyncioConnection
from kctl.errors import ErrorCode
from kctl.model import ZERO_UUID
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.integration.broker.test_every_version import on_connection
from tests.peers.kctl_broker import KctlBroker

TOPIC, OTHER = "topic-with-id", "other-topic-with-id"
BATCH = build_batch([Record(0, 1_600_000_000_000, b"k", b"v")])
PRODUCE_VERSION, FETCH_VERSION = 13, 18


async def create(connection: AsyncioConnection, name: str = TOPIC) -> UUID:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    response: Any = await connection.send(request, CreateTopicsResponse, version=7)
    assert response.topics[0].error_code == ErrorCode.NONE
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=response.topics[0].topic_id)])
    described: Any = await connection.send(by_id, MetadataResponse, version=13)
    assert [(topic.name, topic.error_code) for topic in described.topics] == [(name, ErrorCode.NONE)]
    topic_id: UUID = response.topics[0].topic_id
    return topic_id


async def produce(connection: AsyncioConnection, topic_id: UUID) -> tuple[int, int]:
    """The error and the base offset."""
    topic = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=BATCH)])
    request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
    response: Any = await connection.send(request, ProduceResponse, version=PRODUCE_VERSION)
    [topic_response] = response.responses
    assert topic_response.topic_id == topic_id
    [partition] = topic_response.partition_responses
    return partition.error_code, partition.base_offset


async def fetch(
    connection: AsyncioConnection, *topic_ids: UUID, session: tuple[int, int] = (0, 0), version: int = FETCH_VERSION
) -> FetchResponse:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [
        FetchTopic(topic_id=topic_id, topic=TOPIC if version < PRODUCE_VERSION else "", partitions=[partition])
        for topic_id in topic_ids
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics, session_id=session[0], session_epoch=session[1])
    response: FetchResponse = await connection.send(request, FetchResponse, version=version)
    return response


def errors_of(response: FetchResponse) -> dict[UUID, int]:
    return {topic.topic_id: partition.error_code for topic in response.responses for partition in topic.partitions}


async def delete(connection: AsyncioConnection, name: str = TOPIC) -> None:
    topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID)]
    request = DeleteTopicsRequest(topics=topics, timeout_ms=10_000)
    response: Any = await connection.send(request, DeleteTopicsResponse, version=6)
    assert response.responses[0].error_code == ErrorCode.NONE


def test_the_id_of_a_deleted_topic_neither_writes_nor_reads_the_topic_of_its_name(broker: KctlBroker) -> None:
    async def play(connection: AsyncioConnection) -> None:
        old = await create(connection)
        assert await produce(connection, old) == (ErrorCode.NONE, 0)
        assert await produce(connection, UUID(int=5)) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
        first = await fetch(connection, old, UUID(int=5))
        assert errors_of(first) == {old: ErrorCode.NONE, UUID(int=5): ErrorCode.UNKNOWN_TOPIC_ID}
        assert first.session_id != 0
        second = await fetch(connection, session=(first.session_id, 1))
        assert (second.error_code, errors_of(second)) == (ErrorCode.NONE, errors_of(first))

        await delete(connection)
        new = await create(connection)
        assert new != old
        assert await produce(connection, old) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
        third = await fetch(connection, session=(first.session_id, 2))
        assert (third.error_code, third.responses) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, [])
        assert errors_of(await fetch(connection, old, new)) == {
            old: ErrorCode.UNKNOWN_TOPIC_ID,
            new: ErrorCode.NONE,
        }
        assert await produce(connection, new) == (ErrorCode.NONE, 0)

        by_name = await fetch(connection, ZERO_UUID, version=12)
        mixed = await fetch(connection, session=(by_name.session_id, 1))
        assert mixed.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        await delete(connection)

    on_connection(broker, play)


def test_the_last_topic_of_a_fetch_that_waits_may_have_no_partitions(broker: KctlBroker) -> None:
    async def play(connection: AsyncioConnection) -> None:
        ids = [await create(connection, name) for name in (TOPIC, OTHER)]
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        topics = [
            FetchTopic(topic_id=topic_id, topic="", partitions=partitions)
            for topic_id, partitions in zip(ids, ([partition], []), strict=True)
        ]
        request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=topics, session_id=0, session_epoch=-1)
        response: FetchResponse = await connection.send(request, FetchResponse, version=FETCH_VERSION)
        assert (response.error_code, errors_of(response)) == (ErrorCode.NONE, {ids[0]: ErrorCode.NONE})
        await delete(connection)
        await delete(connection, OTHER)

    on_connection(broker, play)

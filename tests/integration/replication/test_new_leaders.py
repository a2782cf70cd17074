"""A broker that does not lead a partition names the leader and its address to clients of Kafka 3.7 (KIP-951)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kctl.client.connections.asyncio_transport import AsyncioConnection
from kctl.errors import ErrorCode
from kctl.protocol.apis import fetch, metadata, produce
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.integration.broker.test_every_version import on_connection
from tests.integration.replication.conftest import RACKS, Racks
from tests.peers import probe

pytestmark = pytest.mark.long

TOPIC = "new-leaders"
LEADER, FOLLOWER, OTHER = 0, 1, 2
BATCH = build_batch([Record(0, 1_600_000_000_000, b"k", b"v")])
ENDED_EPOCH = -2
"""Less than any leader epoch, and not that of a request without one."""


async def topic_id(connection: AsyncioConnection) -> UUID:
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)])
    response: Any = await connection.send(request, metadata.MetadataResponse, version=12)
    found: UUID = response.topics[0].topic_id
    return found


async def produced(connection: AsyncioConnection, version: int) -> tuple[Any, list[Any]]:
    data = produce.PartitionProduceData(index=0, records=BATCH)
    topic = produce.TopicProduceData(name=TOPIC, topic_id=await topic_id(connection), partition_data=[data])
    request = produce.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
    response: Any = await connection.send(request, produce.ProduceResponse, version=version)
    return response.responses[0].partition_responses[0], response.node_endpoints


async def fetched(connection: AsyncioConnection, version: int, leader_epoch: int = -1) -> tuple[Any, list[Any]]:
    partition = fetch.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1_000, current_leader_epoch=leader_epoch
    )
    topic = fetch.FetchTopic(topic=TOPIC, topic_id=await topic_id(connection), partitions=[partition])
    request = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1_000, topics=[topic], forgotten_topics_data=[])
    response: Any = await connection.send(request, fetch.FetchResponse, version=version)
    return response.responses[0].partitions[0], response.node_endpoints


def test_the_leader_is_named_with_its_address(racks: Racks) -> None:
    racks.create(TOPIC, LEADER, FOLLOWER)
    address = (LEADER, *probe.address(racks.brokers[LEADER].bootstrap), RACKS[LEADER])

    def check(response: tuple[Any, list[Any]], error: ErrorCode, *, is_named: bool) -> None:
        result, endpoints = response
        named = result.current_leader
        assert ErrorCode.of(result.error_code) is error
        assert (named is not None and (named.leader_id, named.leader_epoch) == (LEADER, 0)) == is_named
        assert [(node.node_id, node.host, node.port, node.rack) for node in endpoints] == [address] * is_named

    async def play(connection: AsyncioConnection) -> None:
        moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
        for version, is_named in ((9, False), (10, True), (13, True)):
            check(await produced(connection, version), moved, is_named=is_named)

    async def play_without_replica(connection: AsyncioConnection) -> None:
        await play(connection)
        for version, is_named in ((15, False), (16, True), (18, True)):
            check(await fetched(connection, version), ErrorCode.NOT_LEADER_OR_FOLLOWER, is_named=is_named)

    async def play_at_leader(connection: AsyncioConnection) -> None:
        for version, is_named in ((15, False), (16, True), (18, True)):
            fenced = await fetched(connection, version, ENDED_EPOCH)
            check(fenced, ErrorCode.FENCED_LEADER_EPOCH, is_named=is_named)
        check(await produced(connection, 13), ErrorCode.NONE, is_named=False)

    on_connection(racks.brokers[FOLLOWER], play)
    on_connection(racks.brokers[OTHER], play_without_replica)
    on_connection(racks.brokers[LEADER], play_at_leader)

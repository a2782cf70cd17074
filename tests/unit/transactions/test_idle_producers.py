"""Expiry of idle producers on a whole broker in virtual time."""

from __future__ import annotations

import asyncio

from kctl.client.connections.transport import Connection
from kctl.errors import ErrorCode
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate

PROPERTIES = {"producer.id.expiration.ms": "100000"}
CHECK_INTERVAL_S = 600
IDLE, IN_TRANSACTION, WRITING = 1, 2, 3


def test_idle_producers_are_removed_unless_their_transaction_is_open() -> None:
    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, properties=PROPERTIES)
        await cluster.start(1)
        with cluster.network.on_host("client"):
            async with cluster.client() as client:
                connection = await client.any_broker()
                await _create_topic(connection)
                await _produce(connection, IDLE, loop)
                await _produce(connection, IN_TRANSACTION, loop, transactional_id="id")
                assert await _producers(connection) == {IDLE, IN_TRANSACTION}
                await asyncio.sleep(CHECK_INTERVAL_S - 60)
                await _produce(connection, WRITING, loop)
                await asyncio.sleep(120)
                assert await _producers(connection) == {IN_TRANSACTION, WRITING}
        await cluster.stop()

    simulate(main, seed=1)


async def _create_topic(connection: Connection) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    response = await connection.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse)
    assert response.topics[0].error_code == ErrorCode.NONE


async def _produce(
    connection: Connection, producer_id: int, loop: SimLoop, *, transactional_id: str | None = None
) -> None:
    batch = build_batch(
        [Record(0, int(loop.time() * 1000) + 1_600_000_000_000, b"k", b"v")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=transactional_id is not None,
    )
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=1_000, topic_data=[data])
    response = await connection.send(request, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def _producers(connection: Connection) -> set[int]:
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    response = await connection.send(request, DescribeProducersResponse)
    return {producer.producer_id for producer in response.topics[0].partitions[0].active_producers}

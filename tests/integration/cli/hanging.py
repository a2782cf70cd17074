"""Creates a hanging transaction: a transactional batch in a partition that is unknown to its coordinator."""

from __future__ import annotations

import time

from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.client.settings import client_settings
from kctl.model import TopicPartition
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.peers.probe import wait_until


def leave_hanging(bootstrap: str, topic: str, partition: int) -> int:
    """Writes one record of a transaction unknown to its coordinator to the leader; returns the producer's id."""
    settings = client_settings(
        bootstrap_servers=bootstrap, properties={}, timeout_ms=60_000, default_servers="", default_timeout_ms=60_000
    )

    made: list[InitProducerIdResponse] = []

    async def call() -> None:
        async with ClusterClient(settings, BlockingTransport()) as client:
            connection = await client.any_broker()
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            made.append(await connection.send(request, InitProducerIdResponse))

    def holds() -> bool:
        """A broker of Kafka that has just started has no producer ids yet."""
        run_blocking(call())
        return made[-1].error_code == 0

    wait_until(holds, what="a producer id", timeout_s=60)
    producer = made[-1]

    async def work() -> int:
        async with ClusterClient(settings, BlockingTransport()) as client:
            metadata = await client.metadata([topic])
            leader, _ = metadata.leader_of(TopicPartition(topic, partition))
            connection = await client.broker(leader)
            batch = build_batch(
                [Record(0, round(time.time() * 1000), None, b"hangs", ())],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
                is_transactional=True,
            )
            data = [PartitionProduceData(index=partition, records=memoryview(batch))]
            request = ProduceRequest(
                transactional_id="nobody",
                acks=-1,
                timeout_ms=60_000,
                topic_data=[TopicProduceData(name=topic, partition_data=data)],
            )
            response = await connection.send(request, ProduceResponse)
            assert response.responses[0].partition_responses[0].error_code == 0
            return producer.producer_id

    return run_blocking(work())

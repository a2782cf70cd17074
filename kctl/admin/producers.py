"""Producer state of partitions (KIP-664), and abort of a single transaction of a producer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kctl.admin.outcome import Outcome, outcome_of
from kctl.client.cluster import ClusterClient
from kctl.client.leaders import Outcomes, on_leaders
from kctl.client.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from kctl.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NO_TRANSACTION = -1


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """State of one producer in a partition; -1 for unknown, `txn_start_offset` -1 for no open transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    txn_start_offset: int

    @property
    def has_transaction(self) -> bool:
        """Whether a transaction is open in the partition."""
        return self.txn_start_offset != NO_TRANSACTION


@dataclass(frozen=True, slots=True)
class Marker:
    """An abort marker for a transaction in one partition."""

    tp: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


async def describe_producers(
    client: ClusterClient, partitions: Collection[TopicPartition], *, broker: int | None = None
) -> Outcomes[list[ActiveProducer]]:
    """The producers of each partition, from its leader or from `broker`, in the order of the response."""

    async def send_to(connection: Connection, tps: list[TopicPartition]) -> Outcomes[list[ActiveProducer]]:
        topics: dict[str, TopicRequest] = {}
        for tp in tps:
            topic = topics.setdefault(tp.topic, TopicRequest(name=tp.topic, partition_indexes=[]))
            topic.partition_indexes.append(tp.partition)
        request = DescribeProducersRequest(topics=list(topics.values()))
        response = await connection.send(request, DescribeProducersResponse)
        return {
            TopicPartition(topic.name, one.partition_index): _producers(one)
            for topic in response.topics
            for one in topic.partitions
        }

    if broker is None:
        return await on_leaders(client, partitions, send_to)
    return await send_to(await client.broker(broker), sorted(partitions))


async def write_abort_marker(client: ClusterClient, marker: Marker) -> Outcome:
    """Makes the partition leader abort the transaction, regardless of its coordinator."""
    tp = marker.tp

    async def send_to(connection: Connection, tps: list[TopicPartition]) -> Outcomes[Outcome]:
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    transaction_result=False,
                    topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
                    # A transaction that hangs before the first marker of its producer has no coordinator; as in
                    # Kafka's tool, 0 is not above the epoch of any.
                    coordinator_epoch=max(0, marker.coordinator_epoch),
                )
            ]
        )
        response = await connection.send(request, WriteTxnMarkersResponse)
        results = [one.error_code for result in response.markers for topic in result.topics for one in topic.partitions]
        if not results:
            text = "The broker's response does not contain this partition."
            return dict.fromkeys(tps, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text))
        outcome = outcome_of(str(tp), results[0])
        if not outcome.is_done:
            return dict.fromkeys(tps, ApiError(outcome.error, outcome.message))
        return dict.fromkeys(tps, outcome)

    reply = (await on_leaders(client, [tp], send_to))[tp]
    return Outcome(str(tp), reply.code, str(reply)) if isinstance(reply, ApiError) else reply


def _producers(partition: PartitionResponse) -> list[ActiveProducer] | ApiError:
    if partition.error_code:
        return ApiError(ErrorCode.of(partition.error_code), partition.error_message)
    return [_producer(one) for one in partition.active_producers]


def _producer(one: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        one.producer_id,
        one.producer_epoch,
        one.coordinator_epoch,
        one.last_sequence,
        one.last_timestamp,
        one.current_txn_start_offset,
    )

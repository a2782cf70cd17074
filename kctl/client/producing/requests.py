"""The requests of a producer, and what their responses mean.  No IO."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.client.connections.transport import Connection
from kctl.client.producing.batches import Batch
from kctl.errors import ApiError, ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE


def produce_request(
    batches: Sequence[tuple[TopicPartition, Batch]],
    *,
    acks: int,
    codec: Codec,
    level: int | None,
    timeout_ms: int,
    transactional_id: str | None,
) -> ProduceRequest:
    """Return the request that writes these batches, at most one of each partition."""
    by_topic: dict[str, list[PartitionProduceData]] = {}
    for tp, batch in batches:
        producer = batch.producer
        data = build_batch(
            batch.records,
            codec=codec,
            level=level,
            producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.epoch,
            base_sequence=NO_SEQUENCE if producer is None else batch.base_sequence,
            is_transactional=transactional_id is not None,
        )
        by_topic.setdefault(tp.topic, []).append(PartitionProduceData(index=tp.partition, records=data))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in by_topic.items()],
    )


def results_of(response: ProduceResponse) -> dict[TopicPartition, tuple[int, int] | ApiError]:
    """Return (base offset, append time) or the error of each partition.

    A batch that the broker has already is written.
    """
    results: dict[TopicPartition, tuple[int, int] | ApiError] = {}
    for topic in response.responses:
        for result in topic.partition_responses:
            code = ErrorCode.of(result.error_code)
            is_written = code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            results[TopicPartition(topic.name, result.index)] = (
                (result.base_offset, result.log_append_time_ms) if is_written else ApiError(code, refusal(result))
            )
    return results


def refusal(result: PartitionProduceResponse) -> str | None:
    """Return the message of the broker, with that about the first invalid record (KIP-467) if it has none (before
    3.9).
    """
    details = [text for invalid in result.record_errors if (text := invalid.batch_index_error_message)]
    message = result.error_message or ""
    if not details or details[0] in message:
        return result.error_message
    more = f" and {len(details) - 1} more" if len(details) > 1 else ""
    return f"{message} ({details[0].rstrip('.')}{more})".strip()


async def initialise_producer_id(connection: Connection) -> ProducerIdAndEpoch:
    """Return a producer id for idempotence without transactions.  Raises ApiError."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    response = await connection.send(request, InitProducerIdResponse)
    if response.error_code:
        code = ErrorCode.of(response.error_code)
        raise ApiError(code, f"{code.description} No producer id for idempotence; with acks=1 none is needed.")
    return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

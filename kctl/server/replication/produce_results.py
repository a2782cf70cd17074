"""The results of Produce requests: errors of partitions, what is counted of them, and the response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kctl.errors import ApiError, ErrorCode, UnansweredRequestFailed
from kctl.model import TopicPartition
from kctl.protocol.apis.produce import BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse
from kctl.records.validate import RecordsRejected
from kctl.server.replication.produce_waits import DelayedProduce, R, UncommittedAppend
from kctl.server.replication.throttles import TopicTraffic
from kctl.server.requests.purgatory import Purgatory

FIRST_VERSION_THAT_ADDS_PARTITIONS = 12
"""The version of Produce from which on clients do not add partitions to transactions (KIP-890)."""
ALL_IN_SYNC = -1
_EXPECTED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors that are not counted as failed requests, as in Kafka's ReplicaManager.appendToLocalLog."""


def note_failure(traffic: TopicTraffic, error: ApiError, records: object) -> None:
    """Count a refused batch for metrics.  Kafka does not count expected errors as failed requests."""
    match error.code:
        case ErrorCode.CORRUPT_MESSAGE:
            traffic.invalid_checksums += 1
        case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            traffic.invalid_sequences += 1
        case ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            traffic.invalid_magic_numbers += 1
        case ErrorCode.INVALID_RECORD if isinstance(error, RecordsRejected):
            traffic.keyless_in_compacted += len(error.record_errors)
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            traffic.bytes_rejected += len(records) if isinstance(records, (bytearray, memoryview)) else 0
    if error.code not in _EXPECTED:
        traffic.failed_produce_requests += 1


def refuse(partition_result: PartitionProduceResponse, error: ApiError) -> None:
    """Set the error of a partition."""
    rejected = error.record_errors if isinstance(error, RecordsRejected) else ()
    partition_result.error_code = error.code
    partition_result.error_message = error.message
    partition_result.record_errors = [
        BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=text)
        for batch_index, text in rejected
    ]


def respond_or_wait(
    respond: Callable[[], R],
    waiting: list[UncommittedAppend],
    timeout_ms: int,
    purgatory: Purgatory[TopicPartition],
    create_future: Callable[[], asyncio.Future[R]],
) -> R | asyncio.Future[R]:
    """Return the response, or a future of it if one of `waiting` is not settled."""
    if not waiting:
        return respond()
    operation = DelayedProduce(respond, waiting)
    keys = [append.partition.topic_partition for append in waiting]
    if operation.try_complete(keys):
        return respond()
    operation.future = create_future()
    purgatory.watch(operation, keys, timeout_ms)
    return operation.future


def raise_failures(response: ProduceResponse) -> None:
    """Raise UnansweredRequestFailed if the response, which is not sent, has an error."""
    failures = [
        f"{topic.name}-{partition_result.index}: {ErrorCode.of(partition_result.error_code).name}"
        for topic in response.responses
        for partition_result in topic.partition_responses
        if partition_result.error_code
    ]
    if failures:
        raise UnansweredRequestFailed(f"Produce with acks=0: {', '.join(failures)}")

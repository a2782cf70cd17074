"""AddPartitionsToTxn (key 24, versions 0-3): a producer is about to write to these partitions in its transaction.

The response is sent when the partitions are in the coordinator's log: any other partition would get no marker.  All or
none: if one partition cannot be added it has its error, and the others get OPERATION_NOT_ATTEMPTED.  Internal topics
get TOPIC_AUTHORIZATION_FAILED; offsets of groups are added by AddOffsetsToTxn.

Version notes: 2 PRODUCER_FENCED, which older versions replace by INVALID_PRODUCER_EPOCH (KIP-588); 3 flexible.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kctl.errors import ErrorCode
from kctl.model import INTERNAL_TOPICS, ProducerIdAndEpoch, TopicPartition
from kctl.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.ports import TopicExistence
from kctl.server.coordination.replies import result_of
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.coordination.transactions.ports import known_to
from kctl.server.loop.slices import Slices, started
from kctl.server.requests.context import RequestContext

FIRST_VERSION_WITH_PRODUCER_FENCED = 2


class AddPartitionsToTxnHandler:
    """Serves AddPartitionsToTxn requests.  Owner: event loop."""

    def __init__(self, coordinator: TransactionCoordinator, topics: TopicExistence) -> None:
        self._coordinator = coordinator
        self._topics = topics

    def handle(
        self, request: AddPartitionsToTxnRequest, context: RequestContext
    ) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        return started(self._respond(request, context))

    async def _respond(self, request: AddPartitionsToTxnRequest, context: RequestContext) -> AddPartitionsToTxnResponse:
        slices = Slices()
        if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return await _response(request, lambda _: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, slices)
        denied = context.denied(Operation.WRITE, ResourceType.TOPIC, (topic.name for topic in request.topics))
        partitions: list[TopicPartition] = []
        refused: dict[TopicPartition, ErrorCode] = {}
        for topic in request.topics:
            async for index in slices.of(topic.partitions):
                partition = TopicPartition(topic.name, index)
                partitions.append(partition)
                if (refusal := self._refusal(partition, denied)) is not ErrorCode.NONE:
                    refused[partition] = refusal
        if refused:
            return await _response(
                request, lambda partition: refused.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED), slices
            )
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        error = await result_of(self._coordinator.add_partitions(request.transactional_id, producer, partitions))
        known_error = known_to(context.api_version, error, fenced_since=FIRST_VERSION_WITH_PRODUCER_FENCED)
        return await _response(request, lambda _: known_error, slices)

    def _refusal(self, partition: TopicPartition, denied: frozenset[str]) -> ErrorCode:
        if partition.topic in INTERNAL_TOPICS or partition.topic in denied:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not self._topics.has_partition(*partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE


async def _response(
    request: AddPartitionsToTxnRequest, error_of: Callable[[TopicPartition], ErrorCode], slices: Slices
) -> AddPartitionsToTxnResponse:
    response = AddPartitionsToTxnResponse(results=[])
    for topic in request.topics:
        results: list[AddPartitionsToTxnPartitionResult] = []
        response.results.append(AddPartitionsToTxnTopicResult(name=topic.name, results=results))
        async for index in slices.of(topic.partitions):
            error = error_of(TopicPartition(topic.name, index))
            results.append(AddPartitionsToTxnPartitionResult(partition_index=index, error_code=error))
    return response

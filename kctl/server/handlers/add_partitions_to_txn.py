"""AddPartitionsToTxn (key 24, versions 0-5): a producer is about to write to these partitions in its transaction.

The response is sent when the partitions are in the coordinator's log: any other partition would get no marker.  All or
none: if one partition cannot be added it has its error, and the others get OPERATION_NOT_ATTEMPTED.  Internal topics
get TOPIC_AUTHORIZATION_FAILED, except from brokers; clients add offsets of groups by AddOffsetsToTxn.

Version notes: 2 PRODUCER_FENCED, which older versions replace by INVALID_PRODUCER_EPOCH (KIP-588); 3 flexible; 4 is
sent by brokers, and needs the permission for cluster actions: several transactions, and `verify_only`, which says of
each partition whether it is in the transaction (KIP-890); 5 TRANSACTION_ABORTABLE if it is not, before
INVALID_TXN_STATE.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kctl.errors import ErrorCode
from kctl.model import INTERNAL_TOPICS, ProducerIdAndEpoch, TopicPartition
from kctl.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.ports import TopicExistence
from kctl.server.coordination.replies import result_of
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.coordination.transactions.ports import known_to
from kctl.server.loop.slices import Slices, started
from kctl.server.requests.context import RequestContext

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_OF_BROKERS = 4
FIRST_VERSION_WITH_ABORTABLE = 5

ErrorOf = Callable[[TopicPartition], ErrorCode]


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
        version = context.api_version
        if version < FIRST_VERSION_OF_BROKERS:
            only = AddPartitionsToTxnTransaction(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                topics=request.topics,
            )
            if context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
                error_of = await self._add(only, context, slices)
            else:
                error_of = _same_for_all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return AddPartitionsToTxnResponse(results=await _results(only, error_of, slices))
        if not context.allows_on_cluster(Operation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        response = AddPartitionsToTxnResponse()
        async for transaction in slices.of(request.transactions):
            if transaction.verify_only:
                error_of = await self._verify(transaction, version, slices)
            else:
                error_of = await self._add(transaction, context, slices)
            results = await _results(transaction, error_of, slices)
            response.results_by_transaction.append(
                AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=results)
            )
        return response

    async def _add(
        self, transaction: AddPartitionsToTxnTransaction, context: RequestContext, slices: Slices
    ) -> ErrorOf:
        denied: frozenset[str] = frozenset()
        if context.api_version < FIRST_VERSION_OF_BROKERS:
            denied = context.denied(Operation.WRITE, ResourceType.TOPIC, (topic.name for topic in transaction.topics))
        partitions: list[TopicPartition] = []
        refused: dict[TopicPartition, ErrorCode] = {}
        for topic in transaction.topics:
            async for index in slices.of(topic.partitions):
                partition = TopicPartition(topic.name, index)
                partitions.append(partition)
                is_from_client = context.api_version < FIRST_VERSION_OF_BROKERS
                if (refusal := self._refusal(partition, denied, is_from_client)) is not ErrorCode.NONE:
                    refused[partition] = refusal
        if refused:
            return lambda partition: refused.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED)
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        added = self._coordinator.add_partitions(
            transaction.transactional_id,
            producer,
            partitions,
            is_for_client=context.api_version >= FIRST_VERSION_OF_BROKERS,
        )
        error = await result_of(added)
        return _same_for_all(known_to(context.api_version, error, fenced_since=FIRST_VERSION_WITH_PRODUCER_FENCED))

    async def _verify(self, transaction: AddPartitionsToTxnTransaction, version: int, slices: Slices) -> ErrorOf:
        partitions: list[TopicPartition] = []
        for topic in transaction.topics:
            partitions += [TopicPartition(topic.name, index) async for index in slices.of(topic.partitions)]
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        error, missing = self._coordinator.verify_partitions(transaction.transactional_id, producer, partitions)
        if error is not ErrorCode.NONE:
            return _same_for_all(error)
        has_code = version >= FIRST_VERSION_WITH_ABORTABLE
        absent = ErrorCode.TRANSACTION_ABORTABLE if has_code else ErrorCode.INVALID_TXN_STATE
        return lambda partition: absent if partition in missing else ErrorCode.NONE

    def _refusal(self, partition: TopicPartition, denied: frozenset[str], is_from_client: bool) -> ErrorCode:
        if partition.topic in denied or (is_from_client and partition.topic in INTERNAL_TOPICS):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not self._topics.has_partition(*partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE


def _same_for_all(error: ErrorCode) -> ErrorOf:
    return lambda _: error


async def _results(
    transaction: AddPartitionsToTxnTransaction, error_of: ErrorOf, slices: Slices
) -> list[AddPartitionsToTxnTopicResult]:
    topics: list[AddPartitionsToTxnTopicResult] = []
    for topic in transaction.topics:
        results: list[AddPartitionsToTxnPartitionResult] = []
        topics.append(AddPartitionsToTxnTopicResult(name=topic.name, results=results))
        async for index in slices.of(topic.partitions):
            error = error_of(TopicPartition(topic.name, index))
            results.append(AddPartitionsToTxnPartitionResult(partition_index=index, error_code=error))
    return topics

"""TxnOffsetCommit (key 28, versions 0-5): a producer commits offsets of a group in its transaction.

Sent to the group's coordinator.  The commits become visible with the transaction's commit marker, or never; meanwhile
OffsetFetch with require_stable gets UNSTABLE_OFFSET_COMMIT.  A partition that does not exist, or whose metadata is too
large, does not affect the others.

Version notes: 0-1 get COORDINATOR_NOT_AVAILABLE instead of COORDINATOR_LOAD_IN_PROGRESS, which such clients treat as
fatal (KAFKA-7296); 2 leader epochs; 3 flexible, member and generation, which are checked if present (KIP-447); 4
TRANSACTION_ABORTABLE if the partition of `__consumer_offsets` is not in the transaction, before INVALID_TXN_STATE; 5
adds it, so that clients do not send AddOffsetsToTxn (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from kctl.errors import ErrorCode
from kctl.model import GROUP_METADATA_TOPIC, ProducerIdAndEpoch, TopicPartition, partition_for_key
from kctl.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.groups.actions import CommitOutcome
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.groups.events import TransactionalCommit
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.groups.offsets_writer import Offsets, commit_sliced
from kctl.server.coordination.ports import TopicExistence
from kctl.server.coordination.replies import Reply
from kctl.server.coordination.transactions.verification import (
    FIRST_COMMIT_THAT_ADDS,
    Question,
    TransactionVerifier,
    error_of_offsets,
)
from kctl.server.loop.slices import Slices, started
from kctl.server.requests.context import RequestContext
from kctl.system.environment import Clock

FIRST_VERSION_THAT_KNOWS_LOADING = 2


class TxnOffsetCommitHandler:
    """Serves TxnOffsetCommit requests.  Owner: event loop."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        topics: TopicExistence,
        clock: Clock,
        verifier: TransactionVerifier | None = None,
        offsets_partition_count: Callable[[], int] = lambda: 1,
    ) -> None:
        self._verifier = verifier
        self._offsets_partition_count = offsets_partition_count
        self._coordinator = coordinator
        self._topics = topics
        self._clock = clock

    def handle(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        return started(self._respond(request, context))

    async def _respond(self, request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
        slices = Slices()
        version = context.api_version
        if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return await _response(request, {}, version, slices, missing=error)
        if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return await _response(request, {}, version, slices, missing=error)
        denied = context.denied(Operation.READ, ResourceType.TOPIC, (topic.name for topic in request.topics))
        refused: dict[TopicPartition, ErrorCode] = {}
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        now_ms = self._clock.now_ms()
        for topic in request.topics:
            async for partition in slices.of(topic.partitions):
                tp = TopicPartition(topic.name, partition.partition_index)
                if topic.name in denied:
                    refused[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif self._topics.has_partition(*tp):
                    offsets[tp] = OffsetAndMetadata(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.committed_metadata or "",
                        commit_timestamp_ms=now_ms,
                    )
        if not offsets:
            return await _response(request, refused, version, slices)
        event = TransactionalCommit(
            producer=ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation=request.generation_id,
            offsets=offsets,
        )

        def commit(some: Offsets) -> Reply[CommitOutcome]:
            return self._coordinator.commit_in_transaction(request.group_id, replace(event, offsets=some))

        question = self._question(request, version)
        if question is None or self._verifier is None:
            errors = await commit_sliced(offsets, commit)
            return await _response(request, {**errors, **refused}, version, slices)
        verification = await self._verifier.verify(question)
        try:
            error = error_of_offsets(verification, version)
            errors = await commit_sliced(offsets, commit) if error is ErrorCode.NONE else dict.fromkeys(offsets, error)
        finally:
            self._verifier.done(verification)
        return await _response(request, {**errors, **refused}, version, slices)

    def _question(self, request: TxnOffsetCommitRequest, version: int) -> Question | None:
        """Return what to ask the transaction coordinator about the group's partition of `__consumer_offsets`."""
        adds = version >= FIRST_COMMIT_THAT_ADDS
        if self._verifier is None or not self._verifier.is_needed(adds=adds):
            return None
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        index = partition_for_key(request.group_id, self._offsets_partition_count())
        partition = TopicPartition(GROUP_METADATA_TOPIC, index)
        if not self._verifier.may_begin(partition, producer):
            return None
        return Question(request.transactional_id, producer, (partition,), adds)


async def _response(
    request: TxnOffsetCommitRequest,
    errors: Mapping[TopicPartition, ErrorCode],
    version: int,
    slices: Slices,
    *,
    missing: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> TxnOffsetCommitResponse:
    """Return the response in request order; partitions without a result get `missing`."""

    def error_of(topic: str, index: int) -> ErrorCode:
        error = errors.get(TopicPartition(topic, index), missing)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_VERSION_THAT_KNOWS_LOADING:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return error

    response = TxnOffsetCommitResponse(topics=[])
    for topic in request.topics:
        results: list[TxnOffsetCommitResponsePartition] = []
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=results))
        async for partition in slices.of(topic.partitions):
            index = partition.partition_index
            error = error_of(topic.name, index)
            results.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=error))
    return response

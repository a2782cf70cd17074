"""ReadShareGroupStateSummary (key 87, versions 0-1): start offsets and epochs of share-partitions (KIP-932).

Served with `share` in group.coordinator.rebalance.protocols, for brokers: it needs CLUSTER_ACTION.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.read_share_group_state_summary import (
    PartitionSummary,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    SummaryPartition,
    TopicSummary,
)
from kctl.security.acls import Operation
from kctl.server.coordination.share_state.coordinator import ShareCoordinator
from kctl.server.loop.slices import Slices
from kctl.server.requests.context import RequestContext
from kctl.server.share_partitions.values import NO_OFFSET, ShareKey

_PER_SLICE = 100
"""Share-partitions of a request that are processed without a pause."""


class ReadShareGroupStateSummaryHandler:
    """Serves ReadShareGroupStateSummary requests.  Owner: event loop."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(
        self, request: ReadShareGroupStateSummaryRequest, context: RequestContext
    ) -> ReadShareGroupStateSummaryResponse:
        """Serve one request and return the response."""
        slices = Slices(_PER_SLICE)
        is_allowed = context.allows_on_cluster(Operation.CLUSTER_ACTION)
        results = []
        async for topic in slices.of(request.topics):
            partitions = []
            async for partition in slices.of(topic.partitions):
                key = ShareKey(request.group_id, topic.topic_id, partition.partition)
                try:
                    if not is_allowed:
                        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                    partitions.append(await self._process(key, partition))
                except ApiError as error:
                    partitions.append(_refusal(partition.partition, error))
            results.append(TopicSummary(topic_id=topic.topic_id, partitions=partitions))
        return ReadShareGroupStateSummaryResponse(results=results)

    async def _process(self, key: ShareKey, partition: SummaryPartition) -> PartitionSummary:
        state = self._coordinator.summary(key, partition.leader_epoch)
        if state is None:
            return PartitionSummary(
                partition=key.partition,
                error_code=ErrorCode.NONE,
                state_epoch=0,
                leader_epoch=0,
                start_offset=NO_OFFSET,
            )
        return PartitionSummary(
            partition=key.partition,
            error_code=ErrorCode.NONE,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )


def _refusal(partition: int, error: ApiError) -> PartitionSummary:
    return PartitionSummary(
        partition=partition,
        error_code=error.code,
        error_message=error.message or error.code.description,
        state_epoch=0,
        leader_epoch=0,
        start_offset=0,
    )

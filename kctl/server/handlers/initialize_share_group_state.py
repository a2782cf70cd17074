"""InitializeShareGroupState (key 83, version 0): begins the state of share-partitions (KIP-932).

Served with `share` in group.coordinator.rebalance.protocols, for brokers: it needs CLUSTER_ACTION.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.initialize_share_group_state import (
    InitializedPartition,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    PartitionResult,
    TopicResult,
)
from kctl.security.acls import Operation
from kctl.server.coordination.share_state.coordinator import ShareCoordinator
from kctl.server.coordination.share_state.state import Initialize
from kctl.server.loop.slices import Slices
from kctl.server.requests.context import RequestContext
from kctl.server.share_partitions.values import ShareKey

_PER_SLICE = 100
"""Share-partitions of a request that are processed without a pause."""


class InitializeShareGroupStateHandler:
    """Serves InitializeShareGroupState requests.  Owner: event loop."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(
        self, request: InitializeShareGroupStateRequest, context: RequestContext
    ) -> InitializeShareGroupStateResponse:
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
            results.append(TopicResult(topic_id=topic.topic_id, partitions=partitions))
        return InitializeShareGroupStateResponse(results=results)

    async def _process(self, key: ShareKey, partition: InitializedPartition) -> PartitionResult:
        await self._coordinator.process(key, Initialize(partition.state_epoch, partition.start_offset))
        return PartitionResult(partition=key.partition, error_code=ErrorCode.NONE)


def _refusal(partition: int, error: ApiError) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        error_code=error.code,
        error_message=error.message or error.code.description,
    )

"""DeleteShareGroupState (key 86, version 0): deletes the state of share-partitions (KIP-932).

Served with `share` in group.coordinator.rebalance.protocols, for brokers: it needs CLUSTER_ACTION.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.delete_share_group_state import (
    DeletedPartition,
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    PartitionResult,
    TopicResult,
)
from kctl.security.acls import Operation
from kctl.server.coordination.share_state.coordinator import ShareCoordinator
from kctl.server.coordination.share_state.state import Delete
from kctl.server.loop.slices import Slices
from kctl.server.requests.context import RequestContext
from kctl.server.share_partitions.values import ShareKey

_PER_SLICE = 100
"""Share-partitions of a request that are processed without a pause."""


class DeleteShareGroupStateHandler:
    """Serves DeleteShareGroupState requests.  Owner: event loop."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(
        self, request: DeleteShareGroupStateRequest, context: RequestContext
    ) -> DeleteShareGroupStateResponse:
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
        return DeleteShareGroupStateResponse(results=results)

    async def _process(self, key: ShareKey, partition: DeletedPartition) -> PartitionResult:
        await self._coordinator.process(key, Delete())
        return PartitionResult(partition=key.partition, error_code=ErrorCode.NONE)


def _refusal(partition: int, error: ApiError) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        error_code=error.code,
        error_message=error.message or error.code.description,
    )

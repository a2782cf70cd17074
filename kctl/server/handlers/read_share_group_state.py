"""ReadShareGroupState (key 84, version 0): the whole state of share-partitions (KIP-932).

Served with `share` in group.coordinator.rebalance.protocols, for brokers: it needs CLUSTER_ACTION.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.read_share_group_state import (
    PartitionState,
    ReadPartition,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    TopicState,
)
from kctl.security.acls import Operation
from kctl.server.coordination.share_state.client import sent_batches
from kctl.server.coordination.share_state.coordinator import ShareCoordinator
from kctl.server.coordination.share_state.state import Read
from kctl.server.loop.slices import Slices
from kctl.server.requests.context import RequestContext
from kctl.server.share_partitions.values import ShareKey

_PER_SLICE = 100
"""Share-partitions of a request that are processed without a pause."""


class ReadShareGroupStateHandler:
    """Serves ReadShareGroupState requests.  Owner: event loop."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, request: ReadShareGroupStateRequest, context: RequestContext) -> ReadShareGroupStateResponse:
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
            results.append(TopicState(topic_id=topic.topic_id, partitions=partitions))
        return ReadShareGroupStateResponse(results=results)

    async def _process(self, key: ShareKey, partition: ReadPartition) -> PartitionState:
        state = await self._coordinator.process(key, Read(partition.leader_epoch))
        assert state is not None
        return PartitionState(
            partition=key.partition,
            error_code=ErrorCode.NONE,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=sent_batches(state.batches),
        )


def _refusal(partition: int, error: ApiError) -> PartitionState:
    return PartitionState(
        partition=partition,
        error_code=error.code,
        error_message=error.message or error.code.description,
        state_epoch=0,
        start_offset=0,
        state_batches=[],
    )

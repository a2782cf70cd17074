"""OffsetForLeaderEpoch (key 23, versions 0-4): the end offset of a leader epoch in this leader's log.

Followers truncate their logs to it after a leader change; consumers use it to detect that records they read were lost.
KIP-101, KIP-279, KIP-320.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kctl.errors import ApiError, ErrorCode
from kctl.limits import SLICE_OBJECTS
from kctl.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kctl.security.acls import CLUSTER_NAME, Operation, ResourceType
from kctl.server.loop.slices import Slices, started
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import RequestContext


class OffsetForLeaderEpochHandler:
    """Serves OffsetForLeaderEpoch requests.  Owner: event loop."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def handle(
        self, request: OffsetForLeaderEpochRequest, context: RequestContext
    ) -> OffsetForLeaderEpochResponse | Awaitable[OffsetForLeaderEpochResponse]:
        """Serve one request: return the response, or an awaitable of a long one."""
        return started(self._respond(request, context))

    async def _respond(
        self, request: OffsetForLeaderEpochRequest, context: RequestContext
    ) -> OffsetForLeaderEpochResponse:
        slices = Slices(SLICE_OBJECTS)
        # Consumers use this API as well (KIP-320).
        is_broker = not context.denied(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, (CLUSTER_NAME,), is_logged=False)
        denied: dict[str, bool] = {}
        results: list[OffsetForLeaderTopicResult] = []
        async for topic in slices.of(request.topics):
            name = topic.topic
            if name not in denied:
                denied[name] = not is_broker and not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)
            partitions: list[EpochEndOffset] = []
            results.append(OffsetForLeaderTopicResult(topic=name, partitions=partitions))
            async for requested in slices.of(topic.partitions):
                if denied[name]:
                    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    partitions.append(EpochEndOffset(error_code=code, partition=requested.partition))
                else:
                    partitions.append(self._result(name, requested))
        return OffsetForLeaderEpochResponse(topics=results)

    def _result(self, topic: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition = self._replicas.partition(topic, requested.partition)
            partition.check_leader(requested.current_leader_epoch)
        except ApiError as error:
            return EpochEndOffset(error_code=error.code, partition=requested.partition)
        epoch, end_offset = partition.log.end_offset_for_epoch(requested.leader_epoch)
        return EpochEndOffset(
            error_code=ErrorCode.NONE, partition=requested.partition, leader_epoch=epoch, end_offset=end_offset
        )

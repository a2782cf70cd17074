"""OffsetForLeaderEpoch (key 23, versions 0-4): the end offset of a leader epoch in this leader's log.

Followers truncate their logs to it after a leader change; consumers use it to detect that records they read were lost.
KIP-101, KIP-279, KIP-320.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kctl.security.acls import CLUSTER_NAME, Operation, ResourceType
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import RequestContext


class OffsetForLeaderEpochHandler:
    """Serves OffsetForLeaderEpoch requests.  Owner: event loop."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def handle(self, request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
        """Serves one request and returns the response."""
        cluster = (CLUSTER_NAME,)
        denied: frozenset[str] = frozenset()
        if context.denied(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, cluster, is_logged=False):
            # Consumers use this API as well (KIP-320).
            denied = context.denied(Operation.DESCRIBE, ResourceType.TOPIC, (topic.topic for topic in request.topics))
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[
                        EpochEndOffset(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=requested.partition)
                        if topic.topic in denied
                        else self._result(topic.topic, requested)
                        for requested in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

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

"""AlterPartitionReassignments (key 45, versions 0-1): moves replicas to other brokers, or cancels that.  KIP-455.

Only the active controller serves it.  The response is sent when the reassignment is written to ZooKeeper, before any
records are copied.

Version notes: 1 INVALID_REPLICATION_FACTOR for a change of the number of replicas, unless it is allowed (KIP-860).
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kctl.security.acls import Operation
from kctl.server.cluster.controller.rules import reassignments
from kctl.server.cluster.controller.runner import ControllerRunner
from kctl.server.loop.slices import Slices
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import CLUSTER_DENIED


class AlterPartitionReassignmentsHandler:
    """Serves AlterPartitionReassignments requests.  Owner: event loop."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller

    async def handle(
        self, request: AlterPartitionReassignmentsRequest, context: RequestContext
    ) -> AlterPartitionReassignmentsResponse:
        """Serve one request and return the response."""
        if not context.allows_on_cluster(Operation.ALTER):
            return AlterPartitionReassignmentsResponse(
                error_code=CLUSTER_DENIED.code, error_message=CLUSTER_DENIED.message, responses=_denied(request)
            )
        if not self._controller.state.is_active:
            return AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, responses=[])
        slices = Slices()
        requested: dict[TopicPartition, tuple[int, ...] | None] = {}
        refused: dict[TopicPartition, ApiError] = {}
        for topic in request.topics:
            async for partition in slices.of(topic.partitions):
                # If a partition is listed twice, the last entry counts, as in Kafka.
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                requested[topic_partition] = None if partition.replicas is None else tuple(partition.replicas)
        async for topic_partition, replicas in slices.of(requested.items()):
            # The controller checks again when it processes the event; this check gives the client a message.
            refusal = reassignments.reason_to_refuse(self._controller.state, topic_partition, replicas)
            if refusal is None and not request.allow_replication_factor_change:
                refusal = reassignments.changed_replication_factor(self._controller.state, topic_partition, replicas)
            if refusal is not None:
                refused[topic_partition] = refusal
        outcome = await self._controller.reassign(
            {tp: replicas for tp, replicas in requested.items() if tp not in refused}
        )
        topics: dict[str, list[ReassignablePartitionResponse]] = {}
        async for topic_partition in slices.of(requested):
            # No result: the controller resigned before it processed the event.
            error = refused.get(topic_partition) or ApiError(outcome.get(topic_partition, ErrorCode.NOT_CONTROLLER))
            topics.setdefault(topic_partition.topic, []).append(
                ReassignablePartitionResponse(
                    partition_index=topic_partition.partition,
                    error_code=error.code,
                    error_message=None if error.code is ErrorCode.NONE else str(error),
                )
            )
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=ErrorCode.NONE,
            responses=[ReassignableTopicResponse(name=topic, partitions=results) for topic, results in topics.items()],
        )


def _denied(request: AlterPartitionReassignmentsRequest) -> list[ReassignableTopicResponse]:
    return [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=partition.partition_index,
                    error_code=CLUSTER_DENIED.code,
                    error_message=CLUSTER_DENIED.message,
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]

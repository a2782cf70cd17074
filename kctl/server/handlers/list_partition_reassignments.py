"""ListPartitionReassignments (key 46, version 0): the reassignments in progress, all or of the given partitions.

Only the active controller serves it.  KIP-455.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kctl.security.acls import Operation
from kctl.server.cluster.controller.rules.reassignments import reassigning
from kctl.server.cluster.controller.runner import ControllerRunner
from kctl.server.requests.context import RequestContext


class ListPartitionReassignmentsHandler:
    """Serves ListPartitionReassignments requests.  Owner: event loop."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller

    def handle(
        self, request: ListPartitionReassignmentsRequest, context: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        """Serve one request and return the response."""
        if not context.allows_on_cluster(Operation.DESCRIBE):
            return ListPartitionReassignmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[])
        state = self._controller.state
        if not state.is_active:
            return ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, topics=[])
        requested = None
        if request.topics is not None:
            requested = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
        topics: dict[str, list[OngoingPartitionReassignment]] = {}
        named = None if requested is None else {topic for topic, _ in requested}
        for topic, partition in reassigning(state, named):
            if requested is not None and (topic, partition) not in requested:
                continue
            assignment = state.topics[topic]
            topics.setdefault(topic, []).append(
                OngoingPartitionReassignment(
                    partition_index=partition,
                    replicas=list(assignment.replicas[partition]),
                    adding_replicas=list(assignment.adding_replicas.get(partition, ())),
                    removing_replicas=list(assignment.removing_replicas.get(partition, ())),
                )
            )
        return ListPartitionReassignmentsResponse(
            error_code=ErrorCode.NONE,
            topics=[OngoingTopicReassignment(name=topic, partitions=moves) for topic, moves in topics.items()],
        )

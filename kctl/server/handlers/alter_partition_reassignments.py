"""AlterPartitionReassignments (key 45, version 0): moves replicas to other brokers, or cancels that.  KIP-455.

Only the active controller answers.  It answers when the wish is in the books; the move goes on after that.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kctl.server.controller.runner import ControllerRunner
from kctl.server.requests.context import RequestContext


class AlterPartitionReassignmentsHandler:
    """Owner: event loop."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller

    async def handle(
        self, request: AlterPartitionReassignmentsRequest, _context: RequestContext
    ) -> AlterPartitionReassignmentsResponse:
        if not self._controller.state.is_active:
            return AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, responses=[])
        wanted = {
            TopicPartition(topic.name, each.partition_index): None if each.replicas is None else tuple(each.replicas)
            for topic in request.topics
            for each in topic.partitions
        }
        outcome = await self._controller.reassign(wanted)
        topics: dict[str, list[ReassignablePartitionResponse]] = {}
        for topic_partition in wanted:
            # Without an answer the office was lost in the middle.
            code = outcome.get(topic_partition, ErrorCode.NOT_CONTROLLER)
            topics.setdefault(topic_partition.topic, []).append(
                ReassignablePartitionResponse(
                    partition_index=topic_partition.partition,
                    error_code=code,
                    error_message=None if code is ErrorCode.NONE else code.description,
                )
            )
        return AlterPartitionReassignmentsResponse(
            error_code=ErrorCode.NONE,
            responses=[ReassignableTopicResponse(name=topic, partitions=each) for topic, each in topics.items()],
        )

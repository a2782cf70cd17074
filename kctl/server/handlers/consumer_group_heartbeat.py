"""ConsumerGroupHeartbeat (key 68, versions 0-1): a member of a group of the consumer protocol (KIP-848).

Served with `consumer` in group.coordinator.rebalance.protocols.  The response waits until what the heartbeat changes is
replicated.  A client needs to be allowed to describe each topic to which it subscribes; a regular expression matches
only topics that it may describe.

Version notes: 0 the coordinator generates ids of new members; 1 regular expressions, and clients generate ids
(KIP-1082).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from kctl.errors import ErrorCode
from kctl.protocol.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.consumer_groups.requests import HeartbeatOutcome, HeartbeatRequest
from kctl.server.coordination.consumer_groups.state import Partitions
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.replies import then
from kctl.server.requests.context import RequestContext


class ConsumerGroupHeartbeatHandler:
    """Serves ConsumerGroupHeartbeat requests.  Owner: event loop."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def handle(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
            return _response(HeartbeatOutcome(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        names = request.subscribed_topic_names
        if names and context.denied(Operation.DESCRIBE, ResourceType.TOPIC, names):
            return _response(HeartbeatOutcome(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))

        def denied(topics: Iterable[str]) -> frozenset[str]:
            return frozenset(context.denied(Operation.DESCRIBE, ResourceType.TOPIC, topics, is_logged=False))

        event = HeartbeatRequest(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topic_names=None if names is None else tuple(names),
            topic_regex=request.subscribed_topic_regex,
            server_assignor=request.server_assignor,
            owned=None if request.topic_partitions is None else _owned(request.topic_partitions),
            client_id=context.client_id,
            client_host=context.client_host,
            denied=denied,
        )
        return then(self._coordinator.consumer_heartbeat(request.group_id, event, context.api_version), _response)


def _owned(topics: Iterable[TopicPartitions]) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def _response(outcome: HeartbeatOutcome) -> ConsumerGroupHeartbeatResponse:
    if outcome.error is not ErrorCode.NONE:
        message = outcome.message or outcome.error.description
        return ConsumerGroupHeartbeatResponse(error_code=outcome.error, error_message=message)
    response = ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=outcome.member_id,
        member_epoch=outcome.member_epoch,
        heartbeat_interval_ms=outcome.heartbeat_interval_ms,
    )
    if outcome.assignment is not None:
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in outcome.assignment.items()
            ]
        )
    return response

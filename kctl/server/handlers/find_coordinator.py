"""FindCoordinator (key 10, versions 0-3): the broker that coordinates a group or a transactional id.

That is the leader of one partition of an internal topic, selected by the key.  If the topic does not exist it is
created, and the response is COORDINATOR_NOT_AVAILABLE, as when the partition has no leader; clients retry.

Version notes: 0 supports groups only; 1 has a key type (0 group, 1 transactional id, others INVALID_REQUEST) and an
error message.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.model import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, partition_for_key
from kctl.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kctl.security.acls import AUTHORIZATION_ERRORS, Operation, ResourceType
from kctl.server.coordinators.ports import CoordinatorNode, InternalTopics
from kctl.server.requests.context import RequestContext

TOPIC_OF_KEY_TYPE = {0: GROUP_METADATA_TOPIC, 1: TRANSACTION_STATE_TOPIC}
RESOURCE_OF_KEY_TYPE = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
NO_NODE = CoordinatorNode(node_id=-1, host="", port=-1)


class FindCoordinatorHandler:
    """Serves FindCoordinator requests.  Owner: event loop."""

    def __init__(self, topics: InternalTopics) -> None:
        self._topics = topics

    def handle(self, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
        """Serves one request and returns the response."""
        topic = TOPIC_OF_KEY_TYPE.get(request.key_type)
        if topic is None:
            return _refusal(ErrorCode.INVALID_REQUEST)
        kind = RESOURCE_OF_KEY_TYPE[request.key_type]
        if not context.allows(Operation.DESCRIBE, kind, request.key):
            return _refusal(AUTHORIZATION_ERRORS[kind])
        count = self._topics.partition_count(topic)
        if count is None:
            self._topics.ensure_topic(topic, context.account)
            return _refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        node = self._topics.leader_of(topic, partition_for_key(request.key, count), context.listener)
        return _refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE) if node is None else _response(node, ErrorCode.NONE, None)


def _refusal(error: ErrorCode) -> FindCoordinatorResponse:
    return _response(NO_NODE, error, error.description)


def _response(node: CoordinatorNode, error: ErrorCode, message: str | None) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=error, error_message=message, node_id=node.node_id, host=node.host, port=node.port
    )

"""FindCoordinator (key 10, versions 0-3): the broker that coordinates a group or a transactional id.

That is the leader of one partition of an internal topic, selected by the key.  If the topic does not exist it is
created, and the response is COORDINATOR_NOT_AVAILABLE, as when the partition has no leader; clients retry.

Version notes: 0 supports groups only; 1 has a key type (0 group, 1 transactional id, others INVALID_REQUEST) and an
error message.

A client with `group.protocol=consumer` (KIP-848), which is not served, has no request for its group here: librdkafka
looks up the coordinator several times, then waits without an error.  A log line names it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kctl.errors import ErrorCode
from kctl.limits import Subject, bound
from kctl.model import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, partition_for_key
from kctl.output.log_lines import by_peer
from kctl.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kctl.security.acls import AUTHORIZATION_ERRORS, Operation, ResourceType
from kctl.server.coordination.ports import CoordinatorNode, InternalTopics
from kctl.server.requests.context import RequestContext
from kctl.system.environment import Timer

LOOKUP_CLIENTS_MAX = bound(
    Subject.COORDINATION,
    "clients and groups whose lookups of a coordinator are counted, for the log line about the consumer group protocol",
    1_000,
    "pairs",
    on_excess="the oldest pair is forgotten, and counted from zero",
)


log = logging.getLogger(__name__)

TOPIC_OF_KEY_TYPE = {0: GROUP_METADATA_TOPIC, 1: TRANSACTION_STATE_TOPIC}
RESOURCE_OF_KEY_TYPE = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
HINT = "the consumer group protocol (KIP-848) is not served; set group.protocol=classic in the client"
NO_NODE = CoordinatorNode(node_id=-1, host="", port=-1)
LOOKUPS_WITHOUT_GROUP = 4
"""Members of other groups look up the coordinator once or twice before their first request to it."""
LOOKUPS_MS = 30_000
WAIT_FOR_GROUP_MS = 10_000
"""On a busy machine a client looks up the coordinator more often until it is connected to it."""


class UselessLookups:
    """Clients that look up the coordinator of a group again and again, and do not use it.  Pure."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], list[int]] = {}

    def note(self, client_id: str, group: str, now_ms: int) -> bool:
        """Count a successful lookup of a group that does not exist; return True once for a client and group."""
        times = self._seen.setdefault((client_id, group), [])
        if len(times) >= LOOKUPS_WITHOUT_GROUP:
            return False
        times[:] = [*(ms for ms in times if ms > now_ms - LOOKUPS_MS), now_ms]
        if len(self._seen) > LOOKUP_CLIENTS_MAX:
            del self._seen[next(iter(self._seen))]
        return len(times) >= LOOKUPS_WITHOUT_GROUP


class FindCoordinatorHandler:
    """Serves FindCoordinator requests.  Owner: event loop."""

    def __init__(
        self,
        topics: InternalTopics,
        *,
        is_unknown_here: Callable[[str], bool],
        now_ms: Callable[[], int],
        timer: Timer,
    ) -> None:
        """`is_unknown_here` tells whether this broker is the coordinator of a group and has no such group."""
        self._topics = topics
        self._is_unknown_here = is_unknown_here
        self._now_ms = now_ms
        self._timer = timer
        self._useless = UselessLookups()

    def handle(self, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
        """Serve one request and return the response."""
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
        if topic == GROUP_METADATA_TOPIC and node is not None and self._is_unknown_here(request.key):
            self._note_lookup(request.key, context)
        return _refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE) if node is None else _response(node, ErrorCode.NONE, None)

    def _note_lookup(self, group: str, context: RequestContext) -> None:
        if not self._useless.note(context.client_id, group, self._now_ms()):
            return
        client_id, host, listener = context.client_id, context.client_host, context.listener

        def warn_if_unused() -> None:
            if self._is_unknown_here(group):
                message = (
                    "client looks up the coordinator of a group but does not join it client=%s group=%s peer=%s hint=%s"
                )
                log.warning(message, client_id, group, host, HINT, extra=by_peer(listener))

        self._timer.schedule(WAIT_FOR_GROUP_MS, warn_if_unused)


def _refusal(error: ErrorCode) -> FindCoordinatorResponse:
    return _response(NO_NODE, error, error.description)


def _response(node: CoordinatorNode, error: ErrorCode, message: str | None) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=error, error_message=message, node_id=node.node_id, host=node.host, port=node.port
    )

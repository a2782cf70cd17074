"""FindCoordinator (key 10, versions 0-6): the broker that coordinates a group, a
transactional id or a share-partition.

That is the leader of one partition of an internal topic, selected by the key.  If the topic does not exist it is
created, and the response is COORDINATOR_NOT_AVAILABLE, as when the partition has no leader; clients retry.

Version notes: 0 supports groups only; 1 has a key type (0 group, 1 transactional id, others INVALID_REQUEST) and an
error message; 4 several keys; 6 share-partitions (key type 2), for brokers.

A client with `group.protocol=consumer` (KIP-848), which is not served, has no request for its group here: librdkafka
looks up the coordinator several times, then waits without an error.  A log line names it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from kctl.errors import ErrorCode
from kctl.limits import Subject, bound
from kctl.model import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC, partition_for_key
from kctl.output.log_lines import by_peer
from kctl.protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kctl.security.acls import AUTHORIZATION_ERRORS, Operation, ResourceType
from kctl.server.coordination.ports import CoordinatorNode, InternalTopics
from kctl.server.loop.slices import size_of_id, sliced, started
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
SHARE_PARTITION = 2
FIRST_VERSION_WITH_KEYS = 4
FIRST_VERSION_WITH_SHARE_PARTITIONS = 6
_KEY_PARTS = 3
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

    def handle(
        self, request: FindCoordinatorRequest, context: RequestContext
    ) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
        """Serve one request: return the response, or an awaitable if it has several keys."""
        if context.api_version < FIRST_VERSION_WITH_KEYS:
            return self._find(request.key_type, request.key, context)
        return started(self._find_all(request, context))

    async def _find_all(self, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
        coordinators = []
        async for key in sliced(dict.fromkeys(request.coordinator_keys), size_of=size_of_id):
            lookup = self._find(request.key_type, key, context)
            coordinators.append(
                Coordinator(
                    key=key,
                    node_id=lookup.node_id,
                    host=lookup.host,
                    port=lookup.port,
                    error_code=lookup.error_code,
                    error_message=lookup.error_message,
                )
            )
        return FindCoordinatorResponse(coordinators=coordinators)

    def _find(self, key_type: int, key: str, context: RequestContext) -> FindCoordinatorResponse:
        if key_type == SHARE_PARTITION and context.api_version >= FIRST_VERSION_WITH_SHARE_PARTITIONS:
            return self._find_share_coordinator(key, context)
        topic = TOPIC_OF_KEY_TYPE.get(key_type)
        if topic is None:
            return _refusal(ErrorCode.INVALID_REQUEST)
        kind = RESOURCE_OF_KEY_TYPE[key_type]
        if not context.allows(Operation.DESCRIBE, kind, key):
            return _refusal(AUTHORIZATION_ERRORS[kind])
        node = self._node(topic, key, context)
        if topic == GROUP_METADATA_TOPIC and node is not None and self._is_unknown_here(key):
            self._note_lookup(key, context)
        return _refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE) if node is None else _response(node, ErrorCode.NONE, None)

    def _find_share_coordinator(self, key: str, context: RequestContext) -> FindCoordinatorResponse:
        if not context.allows_on_cluster(Operation.CLUSTER_ACTION):
            return _refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if len(key.rsplit(":", _KEY_PARTS - 1)) < _KEY_PARTS:
            return _refusal(ErrorCode.INVALID_REQUEST)
        node = self._node(SHARE_GROUP_STATE_TOPIC, key, context)
        return _refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE) if node is None else _response(node, ErrorCode.NONE, None)

    def _node(self, topic: str, key: str, context: RequestContext) -> CoordinatorNode | None:
        """Return the leader of the key's partition; None without a topic, which is then created, or leader."""
        count = self._topics.partition_count(topic)
        if count is None:
            self._topics.ensure_topic(topic, context.account)
            return None
        return self._topics.leader_of(topic, partition_for_key(key, count), context.listener)

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

"""Deletions of topics that are not done, for requests that create a topic of the same name.

The response to DeleteTopics is sent when the topic is gone from the metadata; its replicas and znodes are deleted
afterwards.  A creation that comes meanwhile waits, as a test that deletes and creates a topic expects.  (Kafka's
controllers with ZooKeeper refuse it; those of KRaft have deleted the topic when they respond.)

Only the controller creates topics for requests, so what its state says of deletions is complete, but for a deletion
that was requested before it has read the request.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.server.cluster.control.metadata_waits import MetadataWaits
from kctl.server.cluster.controller.rules.topic_deletion import deletion_obstacle
from kctl.server.cluster.controller.state import ControllerState
from kctl.server.peers.metadata import MetadataCache
from kctl.zookeeper import paths
from kctl.zookeeper.operations import ZooKeeper

CREATIONS_AWAITING_DELETION_MAX = bound(
    Subject.PARTITIONS,
    "creations that wait until a topic of the same name is deleted",
    1000,
    "topics",
    on_excess="TOPIC_ALREADY_EXISTS, as when the time of the request is over",
)


class TopicDeletions:
    """Call `pending` with the names of new topics, and `wait` for those that it returns."""

    def __init__(
        self, zookeeper: ZooKeeper, state: ControllerState, metadata: MetadataCache, waits: MetadataWaits
    ) -> None:
        """Prepare the deletions; `waits` is told of metadata that changes, and when the controller ends deletions."""
        self._zookeeper = zookeeper
        self._state = state
        self._metadata = metadata
        self._waits = waits
        self._waiting = 0

    async def pending(self, names: Iterable[str]) -> frozenset[str]:
        """Return the topics among these whose deletion is requested and not done.  Raises ZooKeeperError.

        At most one request to ZooKeeper, and none if no topic exists.
        """
        requested = frozenset(names)
        deleting = requested & self._state.deleting
        existing = {name for name in requested - deleting if name in self._metadata.topics}
        if existing and self._state.allows_topic_deletion:
            deleting |= existing.intersection(await self._zookeeper.children(paths.DELETE_TOPICS))
        return deleting

    async def wait(self, name: str, timeout_ms: int) -> None:
        """Return when the topic is deleted.

        Raises ApiError: TOPIC_ALREADY_EXISTS when that takes longer or too many requests wait, NOT_CONTROLLER when
        another broker continues the deletion.
        """
        if timeout_ms <= 0 or self._waiting >= CREATIONS_AWAITING_DELETION_MAX:
            raise self.refusal(name)
        self._waiting += 1
        try:
            is_over = await self._waits.until(name, lambda: self._is_over(name), timeout_ms)
        finally:
            self._waiting -= 1
        if not self._state.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        if not is_over:
            raise self.refusal(name)

    def refusal(self, name: str) -> ApiError:
        """Return the error for a creation that does not wait any longer; its message names what the deletion waits
        for.
        """
        obstacle = deletion_obstacle(self._state, name)
        waits_for = "" if obstacle is None else f", which waits for {obstacle}"
        return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion{waits_for}.")

    def _is_over(self, name: str) -> bool:
        is_pending = name in self._state.deleting or name in self._metadata.topics
        return not is_pending or not self._state.is_active

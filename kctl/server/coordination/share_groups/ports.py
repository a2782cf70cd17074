"""The share coordinators for group coordinators, and the share-partitions of a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.share_groups.requests import StateOfTopics
from kctl.server.coordination.share_state.state import ShareState
from kctl.server.share_partitions.values import ShareKey


class GroupShareStates(Protocol):
    """The share coordinators of the cluster."""

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Begin the state of a share-partition, or set its start anew.  Raises ApiError."""
        ...

    async def delete(self, key: ShareKey) -> None:
        """Delete the state.  Raises ApiError."""
        ...

    async def summary(self, key: ShareKey) -> ShareState | None:
        """Return epochs, start offset and count of what is stored; None without state.  Raises ApiError."""
        ...


class NoShareStates:
    """GroupShareStates of a broker that does not serve share groups."""

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Raise ApiError(COORDINATOR_NOT_AVAILABLE)."""
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def delete(self, key: ShareKey) -> None:
        """Raise ApiError(COORDINATOR_NOT_AVAILABLE)."""
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def summary(self, key: ShareKey) -> ShareState | None:
        """Raise ApiError(COORDINATOR_NOT_AVAILABLE)."""
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def share_keys(group_id: str, topics: StateOfTopics) -> Iterator[tuple[ShareKey, str]]:
    """Yield the share-partitions of a group with the names of their topics."""
    for topic_id, (name, numbers) in topics.items():
        for number in sorted(numbers):
            yield ShareKey(group_id, topic_id, number), name

"""Interfaces to the rest of the broker that only the handlers of groups use."""

from __future__ import annotations

from typing import Protocol


class ConsumerOffsetsInZooKeeper(Protocol):
    """Offsets of consumers older than 0.9: /consumers/GROUP/offsets/TOPIC/PARTITION."""

    async def get(self, group_id: str, topic: str, partition: int) -> int | None:
        """The offset; None if nothing is committed.  Raises ZooKeeperError, ApiError(INVALID_GROUP_ID)."""
        ...

    async def set(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Writes the offset; creates missing nodes.  Raises ZooKeeperError, ApiError(INVALID_GROUP_ID)."""
        ...

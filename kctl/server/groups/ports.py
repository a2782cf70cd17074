"""What the handlers of groups, and only they, need of the rest of the broker."""

from __future__ import annotations

from typing import Protocol


class ConsumerOffsetsInZooKeeper(Protocol):
    """Offsets of consumers of before 0.9: /consumers/GROUP/offsets/TOPIC/PARTITION."""

    async def get(self, group_id: str, topic: str, partition: int) -> int | None:
        """None when nothing is committed.  Raises ZooKeeperError, ApiError(INVALID_GROUP_ID)."""
        ...

    async def set(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Creates the node and its parents when missing.  Raises ZooKeeperError, ApiError(INVALID_GROUP_ID)."""
        ...

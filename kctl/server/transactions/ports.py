"""Interfaces to the rest of the broker for the transaction coordinator and its markers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from kctl.client.transport import Connection
from kctl.model import TopicPartition
from kctl.server.coordinators.ports import AppendOutcome
from kctl.server.peers import Purpose


class FreshProducerIds(Protocol):
    """Producer ids that are unique in the cluster."""

    async def next(self) -> int:
        """A producer id that was never used before.  Raises ZooKeeperError."""
        ...


class PartitionLeaders(Protocol):
    """The partition leaders in this broker's metadata."""

    def leader_of(self, partition: TopicPartition) -> int | None:
        """The leader's broker id, -1 if there is no leader, None if the partition does not exist."""
        ...

    @property
    def is_informed(self) -> bool:
        """True once a controller has sent the metadata of the cluster's partitions."""
        ...


class Peers(Protocol):
    """The other brokers."""

    async def connect(self, broker_id: int, purpose: Purpose) -> Connection:
        """Opens a connection.  Raises ConnectionLost."""
        ...


class PartitionAppends(Protocol):
    """Appends of a coordinator to the partitions that this broker leads."""

    def is_hosted(self, partition: TopicPartition) -> bool:
        """True if this broker has a replica, as leader or follower."""
        ...

    def append(
        self, partition: TopicPartition, batch: bytes, *, required_acks: int, timeout_ms: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        """As CoordinatorLog.append, for any partition."""
        ...


class GroupOffsets(Protocol):
    """The group coordinator of this broker."""

    def transaction_completed(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """The producer's marker is in this partition of `__consumer_offsets`: commits or aborts its offsets there."""
        ...


class DeletedPartitions(Protocol):
    """A component that is notified of deleted partitions."""

    def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions were deleted from the cluster."""
        ...

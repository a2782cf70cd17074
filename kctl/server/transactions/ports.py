"""What the transaction coordinator and its markers need of the rest of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from kctl.client.transport import Connection
from kctl.model import TopicPartition
from kctl.server.coordinators.ports import AppendOutcome


class FreshProducerIds(Protocol):
    """Producer ids, unique in the cluster."""

    async def next(self) -> int:
        """An id that nobody had before.  Raises ZooKeeperError."""
        ...


class PartitionLeaders(Protocol):
    """What this broker knows of who leads what."""

    def leader_of(self, partition: TopicPartition) -> int | None:
        """The broker that leads it, -1 when none does now, None when the cluster has no such partition."""
        ...

    @property
    def is_informed(self) -> bool:
        """Whether a controller has told of the cluster's partitions."""
        ...


class Peers(Protocol):
    """The other brokers."""

    async def connect(self, broker_id: int, purpose: str) -> Connection:
        """A new connection.  Raises ConnectionLost."""
        ...


class PartitionAppends(Protocol):
    """The partitions that this broker leads, as a coordinator writes to them."""

    def is_hosted(self, partition: TopicPartition) -> bool:
        """Whether there is a replica here, leader or not."""
        ...

    def append(
        self, partition: TopicPartition, batch: bytes, *, required_acks: int, timeout_ms: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        """As CoordinatorLog.append, for any partition."""
        ...


class GroupOffsets(Protocol):
    """The group coordinator of this broker."""

    def transaction_completed(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """The producer's marker lies in this partition of `__consumer_offsets`: its commits there are decided."""
        ...


class DeletedPartitions(Protocol):
    """Who wants to hear of partitions that the cluster deleted."""

    def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None: ...

"""Interfaces to the rest of the broker for the transaction coordinator and its markers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kctl.client.connections.transport import Connection
from kctl.config.broker import BrokerConfig
from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.coordination.ports import AppendOutcome
from kctl.server.peers.connections import Purpose


class FreshProducerIds(Protocol):
    """Producer ids that are unique in the cluster."""

    async def next(self) -> int:
        """Return a producer id that was never used before.  Raises ZooKeeperError."""
        ...


class PartitionLeaders(Protocol):
    """The partition leaders in this broker's metadata."""

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the leader's broker id, -1 if there is no leader, None if the partition does not exist."""
        ...

    @property
    def is_informed(self) -> bool:
        """True once a controller has sent the metadata of the cluster's partitions."""
        ...


class Peers(Protocol):
    """The other brokers."""

    async def connect(self, broker_id: int, purpose: Purpose) -> Connection:
        """Open a connection.  Raises ConnectionLost."""
        ...


class PartitionAppends(Protocol):
    """Appends of a coordinator to the partitions that this broker leads."""

    def is_hosted(self, partition: TopicPartition) -> bool:
        """Return whether this broker has a replica, as leader or follower."""
        ...

    def is_open(self, partition: TopicPartition, producer: ProducerIdAndEpoch) -> bool:
        """Return whether the partition has records of an open transaction of this id and epoch."""
        ...

    def append(
        self, partition: TopicPartition, batch: bytes, *, required_acks: int, timeout_ms: int
    ) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        """As CoordinatorLog.append, for any partition."""
        ...


class TransactionsInPartitions(Protocol):
    """The transactions in the partitions that this broker leads."""

    def may_begin(self, partition: TopicPartition, producer: ProducerIdAndEpoch) -> bool:
        """Return whether the next records of this id and epoch begin a transaction in the partition."""
        ...


class GroupOffsets(Protocol):
    """The group coordinator of this broker."""

    def transaction_completed(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """Commit or abort the offsets of a transaction whose marker is in this partition of `__consumer_offsets`."""
        ...


class DeletedPartitions(Protocol):
    """A component that is notified of deleted partitions."""

    def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Note that these partitions were deleted from the cluster."""
        ...


# The broker properties of the transaction coordinator, as one snapshot.


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Each field is the Kafka property given beside it."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""
    abort_check_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    expiration_check_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionConfig:
        """Return the settings in the broker's configuration."""
        return cls(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            abort_check_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiration_check_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )


# Errors that are not defined in versions before KIP-588.


def known_to(version: int, error: ErrorCode, *, fenced_since: int) -> ErrorCode:
    """Map PRODUCER_FENCED to INVALID_PRODUCER_EPOCH for versions before `fenced_since`."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error

"""Immutable views of a transaction: its record in `__transaction_state`, and its description for clients."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.transactions.states import TransactionState

NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSnapshot:
    """The stored part of a transaction.  Timestamps are in ms since the epoch."""

    producer: ProducerIdAndEpoch
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...] = ()
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP
    """When the first partition was added; kept after the end, -1 before."""


@dataclass(frozen=True, slots=True)
class TransactionOverview:
    """One entry of ListTransactions."""

    transactional_id: str
    producer_id: int
    state: TransactionState

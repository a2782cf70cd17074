"""Events that `step` processes for a transactional id.

A token identifies one parked request; it is returned in exactly one `Respond` and is opaque to the transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition

Token: TypeAlias = object


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """A producer starts or restarts."""

    token: Token
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    """The id and epoch that the producer sent, to continue after an error (KIP-360)."""
    fresh_producer_id: int | None = None
    """An id that was never used before; None unless one was needed and allocated."""


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """The producer is about to write to these partitions."""

    token: Token
    producer: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """The producer commits or aborts."""

    token: Token
    producer: ProducerIdAndEpoch
    committed: bool


@dataclass(frozen=True, slots=True)
class AppendDone:
    """The result of the last Persist action."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """These partitions have their marker, or are deleted and need none."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CompletionDue:
    """Retry of writing the Complete record, which the log refused."""


@dataclass(frozen=True, slots=True)
class CheckTimeout:
    """The periodic check for transactions that exceed their timeout."""


@dataclass(frozen=True, slots=True)
class CheckExpiry:
    """The periodic check for transactional ids that were unused for `id_expiration_ms`."""

    id_expiration_ms: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """The transaction was loaded from the log."""


@dataclass(frozen=True, slots=True)
class Unload:
    """Another broker coordinates the transactional id now."""


Event: TypeAlias = (
    InitProducer
    | AddPartitions
    | EndTransaction
    | AppendDone
    | MarkersWritten
    | CompletionDue
    | CheckTimeout
    | CheckExpiry
    | Loaded
    | Unload
)

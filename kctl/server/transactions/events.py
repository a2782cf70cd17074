"""What can happen to a transactional id: the vocabulary that `step` takes.

A token stands for one parked call; it comes back in exactly one `Answer` and is never looked into.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition

Token: TypeAlias = object


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """A producer starts, or starts over."""

    token: Token
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    """What the producer says that it has; it wants to go on after an error (KIP-360)."""
    fresh_producer_id: int | None = None
    """An id that nobody had before; None until one turned out to be needed."""


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """The producer is going to write to these."""

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
    """The log took, or refused, what the last Persist action handed it."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """These partitions have their marker, or are gone and need none."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CompletionDue:
    """The log refused to note that all markers are written; it is asked again."""


@dataclass(frozen=True, slots=True)
class LookForTimeout:
    """The regular look for transactions that take too long."""


@dataclass(frozen=True, slots=True)
class LookForExpiry:
    """The regular look for transactional ids that nobody has used for so long."""

    id_expiration_ms: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """The transaction was just read back from the log."""


@dataclass(frozen=True, slots=True)
class Unload:
    """Another broker coordinates the transactional id from now on."""


Event: TypeAlias = (
    InitProducer
    | AddPartitions
    | EndTransaction
    | AppendDone
    | MarkersWritten
    | CompletionDue
    | LookForTimeout
    | LookForExpiry
    | Loaded
    | Unload
)

"""Actions that `step` returns for a transaction, to be performed in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.transactions.events import InitProducer, Token
from kctl.server.transactions.snapshot import TransactionSnapshot

NO_PRODUCER = ProducerIdAndEpoch(-1, -1)


@dataclass(frozen=True, slots=True)
class InitOutcome:
    """The result of an InitProducerId."""

    error: ErrorCode
    producer: ProducerIdAndEpoch = NO_PRODUCER


Outcome: TypeAlias = InitOutcome | ErrorCode


@dataclass(frozen=True, slots=True)
class Respond:
    """Complete the parked request of `token`."""

    token: Token
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class AllocateProducerId:
    """Allocate a producer id and process `event` again with it."""

    event: InitProducer


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the record to the log, or a tombstone for None.  Results in AppendDone."""

    snapshot: TransactionSnapshot | None


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Have the leaders of these partitions write the markers of the transaction.  Results in MarkersWritten for each.

    Replaces all markers that are still pending.
    """

    producer: ProducerIdAndEpoch
    committed: bool
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ScheduleCompletion:
    """Process CompletionDue after a short delay."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove the transactional id and its pending markers."""


Action: TypeAlias = Respond | AllocateProducerId | Persist | SendMarkers | ScheduleCompletion | Discard

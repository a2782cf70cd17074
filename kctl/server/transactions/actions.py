"""What a transaction decides: the vocabulary that `step` gives back, to be performed in order."""

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
    """The answer to InitProducerId."""

    error: ErrorCode
    producer: ProducerIdAndEpoch = NO_PRODUCER


Outcome: TypeAlias = InitOutcome | ErrorCode


@dataclass(frozen=True, slots=True)
class Answer:
    """The parked call of `token` ends with this."""

    token: Token
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class AllocateProducerId:
    """Get a fresh producer id and let `event` happen again with it."""

    event: InitProducer


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the record to the log, then say AppendDone.  None writes a tombstone."""

    snapshot: TransactionSnapshot | None


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Have the leaders of these partitions write how the transaction ended; say MarkersWritten for each that has.

    None that was sent before is owed any more.
    """

    producer: ProducerIdAndEpoch
    committed: bool
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ScheduleCompletion:
    """Say CompletionDue in a moment."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Forget the transactional id, and whatever markers are still on their way for it."""


Action: TypeAlias = Answer | AllocateProducerId | Persist | SendMarkers | ScheduleCompletion | Discard

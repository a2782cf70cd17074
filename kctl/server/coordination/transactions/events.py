"""Events that `step` processes for a transactional id, the actions that it returns, and their data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition

# The states of a transaction and the table of valid transitions.


class TransactionState(Enum):
    """The value is the number in `__transaction_state`; `label` is the name in responses."""

    EMPTY = 0
    """The producer has its id and epoch, and no transaction yet."""
    ONGOING = 1
    """Partitions were added; the producer may write to them."""
    PREPARE_COMMIT = 2
    """Commit is decided.  Markers are being written."""
    PREPARE_ABORT = 3
    """Abort is decided.  Markers are being written."""
    COMPLETE_COMMIT = 4
    """Every partition has its commit marker."""
    COMPLETE_ABORT = 5
    """Every partition has its abort marker."""
    DEAD = 6
    """Expired; never stored, since the last record is then a tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """Kafka's state while a fencing abort is being decided.  Not used here, except as a filter of ListTransactions."""

    @property
    def label(self) -> str:
        """The name in responses, for example PrepareCommit."""
        return self.name.title().replace("_", "")

    @property
    def is_decided(self) -> bool:
        """True if markers have to be written."""
        return self in _DECIDED

    @property
    def is_over(self) -> bool:
        """True if no markers are pending: a new transaction may begin, and an idle id may be removed."""
        return self in _OVER


_DECIDED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
_OVER = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})

PREVIOUS_STATES: Mapping[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _OVER,
    TransactionState.ONGOING: _OVER | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: _OVER | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: _OVER,
}
"""For each state, its possible previous states.  Only clients of version 2 abort what has no partitions."""

BY_LABEL: Mapping[str, TransactionState] = {state.label: state for state in TransactionState}
RECORDED: Mapping[int, TransactionState] = {
    state.value: state for state in PREVIOUS_STATES if state is not TransactionState.DEAD
}
"""The states that a record may have, by number."""


# Immutable views of a transaction: its record in `__transaction_state`, and its description for clients.


NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
VERSION_WITH_RAISED_EPOCHS = 2
"""The level of transaction.version from which on each end of a transaction raises the epoch (KIP-890)."""


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
    client_version: int = 0
    """VERSION_WITH_RAISED_EPOCHS if the end of the transaction raises the epoch, else 0."""
    next_producer_id: int = NO_PRODUCER_ID
    """The id that replaces that of the producer, whose epochs are exhausted, when the markers are written."""
    replaced_producer_id: int = NO_PRODUCER_ID
    """The id before the change that led to this state, if it was another one."""


@dataclass(frozen=True, slots=True)
class TransactionOverview:
    """One entry of ListTransactions."""

    transactional_id: str
    producer_id: int
    state: TransactionState


# Events that `step` processes for a transactional id.
#
# A token identifies one parked request; it is returned in exactly one `Respond` and is opaque to the transaction.


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
    client_version: int = 0
    """See TransactionSnapshot."""


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """The producer commits or aborts."""

    token: Token
    producer: ProducerIdAndEpoch
    committed: bool
    raises_epoch: bool = False
    """Whether the producer gets another epoch for its next transaction (KIP-890); the outcome is a ProducerOutcome."""
    fresh_producer_id: int | None = None
    """As in InitProducer."""


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

    is_over_for_all: bool = False
    """Whether the timeout of every transaction counts as exceeded."""


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


# Actions that `step` returns for a transaction, to be performed in order.


NO_PRODUCER = ProducerIdAndEpoch(-1, -1)


@dataclass(frozen=True, slots=True)
class ProducerOutcome:
    """The result of an InitProducerId, or of an EndTxn that raises the epoch: the producer's id and epoch."""

    error: ErrorCode
    producer: ProducerIdAndEpoch = NO_PRODUCER


Outcome: TypeAlias = ProducerOutcome | ErrorCode


@dataclass(frozen=True, slots=True)
class Respond:
    """Complete the parked request of `token`."""

    token: Token
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class AllocateProducerId:
    """Allocate a producer id and process `event` again with it."""

    event: InitProducer | EndTransaction


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
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class ScheduleCompletion:
    """Process CompletionDue after a short delay."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove the transactional id and its pending markers."""


Action: TypeAlias = Respond | AllocateProducerId | Persist | SendMarkers | ScheduleCompletion | Discard

"""The states of a transaction and the table of valid transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


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
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.ONGOING}),
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: _OVER,
}
"""For each state, its possible previous states."""

BY_LABEL: Mapping[str, TransactionState] = {state.label: state for state in TransactionState}
RECORDED: Mapping[int, TransactionState] = {
    state.value: state for state in PREVIOUS_STATES if state is not TransactionState.DEAD
}
"""The states that a record may have, by number."""

"""The states of a transaction and the table of moves between them; every move is looked up here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class TransactionState(Enum):
    """The value is the number in `__transaction_state`; `label` is the name that clients get to see."""

    EMPTY = 0
    """The producer has its id and epoch, and no transaction since."""
    ONGOING = 1
    """Partitions were added; the producer may write to them."""
    PREPARE_COMMIT = 2
    """Decided: commit.  Markers are being written."""
    PREPARE_ABORT = 3
    """Decided: abort.  Markers are being written."""
    COMPLETE_COMMIT = 4
    """Every partition has its commit marker."""
    COMPLETE_ABORT = 5
    """Every partition has its abort marker."""
    DEAD = 6
    """Expired; never on record, whose last word then is a tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """Kafka's name for the moment when a fencing abort is decided.  Here it is only a name to filter by."""

    @property
    def label(self) -> str:
        return self.name.title().replace("_", "")

    @property
    def is_decided(self) -> bool:
        """Whether markers are owed."""
        return self in _DECIDED

    @property
    def is_over(self) -> bool:
        """Whether nothing is owed: the producer may start anew, and an idle id may be forgotten."""
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
"""For each state, where a transaction may come from."""

BY_LABEL: Mapping[str, TransactionState] = {state.label: state for state in TransactionState}
RECORDED: Mapping[int, TransactionState] = {
    state.value: state for state in PREVIOUS_STATES if state is not TransactionState.DEAD
}
"""By number, the states that a record may say."""

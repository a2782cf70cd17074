"""One transactional id with an implementation of what `step` needs: a log, markers, producer ids, responses.

It implements the runner without an event loop: unit tests, scenarios and property tests drive transactions with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.coordination.transactions.events import (
    Action,
    AddPartitions,
    AllocateProducerId,
    AppendDone,
    CheckExpiry,
    CheckTimeout,
    CompletionDue,
    Discard,
    EndTransaction,
    Event,
    InitProducer,
    Loaded,
    MarkersWritten,
    Outcome,
    Persist,
    ProducerOutcome,
    Respond,
    ScheduleCompletion,
    SendMarkers,
    TransactionSnapshot,
    Unload,
)
from kctl.server.coordination.transactions.step import step
from kctl.server.coordination.transactions.transaction import Transaction

START_MS = 1_600_000_000_000
TIMEOUT_MS = 60_000
EXPIRATION_MS = 604_800_000
FIRST_PRODUCER_ID = 1000

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)


@dataclass
class Token:
    """A parked request; compares by identity."""

    name: str
    responses: list[Outcome] = field(default_factory=list)
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class TransactionWorld:
    """Stores responses by token; the log is a list of records; markers are written when a test calls for it."""

    def __init__(self, transaction: Transaction | None = None) -> None:
        self.transaction = transaction if transaction is not None else Transaction("id")
        self.requested: list[Token] = []
        self.log: list[TransactionSnapshot | None] = []
        """The records in the log, without refused ones; None is a tombstone."""
        self.holds_appends = False
        self.append_error = ErrorCode.NONE
        self.held: list[TransactionSnapshot | None] = []
        self.sent: list[SendMarkers] = []
        self.holds_markers = False
        self.holds_allocations = False
        self.allocations: list[InitProducer | EndTransaction] = []
        self.completions_due = 0
        self.is_discarded = False
        self.elapsed_ms = 0
        self._next_producer_id = FIRST_PRODUCER_ID

    @property
    def now_ms(self) -> int:
        return START_MS + self.elapsed_ms

    @property
    def owed(self) -> tuple[TopicPartition, ...]:
        """The partitions that wait for their marker."""
        return self.transaction.pending_markers

    def do(self, event: Event) -> None:
        """Feeds the event to the transaction and performs the resulting actions."""
        for action in step(self.transaction, event, self.now_ms):
            self._perform(action)

    def init(
        self, expected: ProducerIdAndEpoch | None = None, *, timeout_ms: int = TIMEOUT_MS, name: str = "init"
    ) -> Token:
        token = self._token(name)
        self.do(InitProducer(token=token, timeout_ms=timeout_ms, expected=expected))
        return token

    def add(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition, name: str = "add") -> Token:
        token = self._token(name)
        self.do(AddPartitions(token, producer, partitions))
        return token

    def end(self, producer: ProducerIdAndEpoch, *, committed: bool, name: str = "end") -> Token:
        token = self._token(name)
        self.do(EndTransaction(token, producer, committed))
        return token

    def end_and_raise(self, producer: ProducerIdAndEpoch, *, committed: bool, name: str = "end") -> Token:
        """The end of a client of version 2."""
        token = self._token(name)
        self.do(EndTransaction(token, producer, committed, raises_epoch=True))
        return token

    def look_for_timeout(self) -> None:
        self.do(CheckTimeout())

    def look_for_expiry(self, expiration_ms: int = EXPIRATION_MS) -> None:
        self.do(CheckExpiry(expiration_ms))

    def finish_append(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Completes the held append.  One that timed out is in the log nevertheless."""
        snapshot = self.held.pop(0)
        if error in {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}:
            self.log.append(snapshot)
        self.do(AppendDone(error))

    def write_markers(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """The leaders of these partitions, or of all that need one, write their markers."""
        self.do(MarkersWritten(self.owed if partitions is None else tuple(partitions)))

    def allocate(self) -> None:
        """Completes a held allocation."""
        event = self.allocations.pop(0)
        self._next_producer_id += 1
        self.do(replace(event, fresh_producer_id=self._next_producer_id - 1))

    def try_completion_again(self) -> None:
        self.completions_due -= 1
        self.do(CompletionDue())

    def restart(self) -> TransactionWorld:
        """A new coordinator with only the log; pending requests and responses are lost."""
        self.do(Unload())
        last = self.log[-1] if self.log else None
        restored = Transaction("id") if last is None else Transaction.restored("id", last)
        world = TransactionWorld(restored)
        world.log = list(self.log)
        world.elapsed_ms = self.elapsed_ms
        world.holds_markers = self.holds_markers
        world._next_producer_id = self._next_producer_id
        world.do(Loaded())
        return world

    def producer(self) -> ProducerIdAndEpoch:
        """The producer id and epoch of a new instance, which must be assigned at once."""
        return granted(self.init())

    def ongoing(self, *partitions: TopicPartition) -> ProducerIdAndEpoch:
        """A producer with an open transaction in these partitions."""
        producer = self.producer()
        assert response(self.add(producer, *partitions)) is ErrorCode.NONE
        return producer

    def _perform(self, action: Action) -> None:
        match action:
            case Respond(token, outcome):
                assert isinstance(token, Token)
                assert not token.responses, f"{token.name} was answered twice"
                token.responses.append(outcome)
            case AllocateProducerId(event):
                self.allocations.append(event)
                if not self.holds_allocations:
                    self.allocate()
            case Persist(snapshot):
                self.held.append(snapshot)
                if not self.holds_appends:
                    self.finish_append(self.append_error)
            case SendMarkers():
                self.sent.append(action)
                if not self.holds_markers:
                    self.write_markers(action.partitions)
            case ScheduleCompletion():
                self.completions_due += 1
            case Discard():
                self.is_discarded = True
                self.held.clear()

    def _token(self, name: str) -> Token:
        token = Token(name)
        self.requested.append(token)
        return token


def response(token: Token) -> Outcome | None:
    """The outcome of the request, None while it waits."""
    return token.responses[0] if token.responses else None


def granted(token: Token) -> ProducerIdAndEpoch:
    """The producer id and epoch in the response of an InitProducerId."""
    outcome = response(token)
    assert isinstance(outcome, ProducerOutcome)
    assert outcome.error is ErrorCode.NONE, outcome
    return outcome.producer


def refused(token: Token) -> ErrorCode:
    """The error of a refused InitProducerId."""
    outcome = response(token)
    assert isinstance(outcome, ProducerOutcome)
    assert outcome.producer == ProducerIdAndEpoch(-1, -1)
    return outcome.error

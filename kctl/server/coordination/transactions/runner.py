"""Runs transactions: passes events to `step` and performs its actions: responses, appends, markers.

Each event is a step of the transaction's state machine; an immediate result of an action (an append that is complete)
is processed before any other event of the transaction, and a later result is an event of its own, ignored if the
transaction is removed by then.  A partition's leader epoch is the coordinator epoch in its markers, by which partitions
fence an old coordinator.

Invariants: a transaction changes only here, by `step`; a removed one gets no events and has no pending markers; a
refused request creates no transactional id.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import assert_never, cast

from kctl.model import TRANSACTION_STATE_TOPIC, TopicPartition
from kctl.records.build import build_batch
from kctl.server.coordination.hosted import HostedObjects, Turns, taken
from kctl.server.coordination.partitions import LedPartition, play_back
from kctl.server.coordination.ports import ALL_IN_SYNC, AppendOutcome, CoordinatorLog, outcome_of
from kctl.server.coordination.replies import ParkedCall, append_or_refuse
from kctl.server.coordination.transactions.events import (
    Action,
    AllocateProducerId,
    AppendDone,
    CompletionDue,
    Discard,
    EndTransaction,
    Event,
    InitProducer,
    Loaded,
    MarkersWritten,
    Persist,
    Respond,
    ScheduleCompletion,
    SendMarkers,
    TransactionState,
    Unload,
)
from kctl.server.coordination.transactions.markers import MarkerJob, MarkerSender
from kctl.server.coordination.transactions.records import TransactionPlayback, transaction_record
from kctl.server.coordination.transactions.step import step
from kctl.server.coordination.transactions.transaction import Transaction
from kctl.system.environment import Clock, Timer

log = logging.getLogger(__name__)

TOMBSTONE_TIMEOUT_MS = 30_000
COMPLETION_RETRY_MS = 100
IDS_PER_TURN = 1_000
"""The number of ids to restore, or to check for timeout or expiry, before requests are served again."""
_PARTITIONS_PER_ID = 20
"""The number of partitions of a transaction that are restored in the time of an id."""
_STEP = IDS_PER_TURN // 15
"""The number of ids that are checked as fast as one writes a record, or markers and the record after them."""


class HostedTransaction:
    """A transactional id, its partition, and its pending markers."""

    __slots__ = ("is_gone", "job", "partition", "transaction")

    def __init__(self, transaction: Transaction, partition: LedPartition[HostedTransaction]) -> None:
        self.transaction = transaction
        self.partition = partition
        self.job: MarkerJob | None = None
        self.is_gone = False

    def __repr__(self) -> str:
        return repr(self.transaction.transactional_id)


class TransactionRunner:
    """coordinators.partitions.HostedState: the transactional ids of the partitions that this broker leads."""

    kind = "transactional_ids"

    def __init__(
        self,
        broker_id: int,
        *,
        state_log: CoordinatorLog,
        allocate: Callable[[str, InitProducer | EndTransaction], None],
        markers: MarkerSender,
        clock: Clock,
        timer: Timer,
        record_version: Callable[[], int] = lambda: 0,
    ) -> None:
        """`record_version` returns the version of new records."""
        self._record_version = record_version
        self._turns = Turns(timer, IDS_PER_TURN)
        self.hosted: HostedObjects[HostedTransaction] = HostedObjects(self._turns, self._unload)
        self._decided: dict[LedPartition[HostedTransaction], deque[HostedTransaction]] = {}
        """Of partitions that are loading: the transactions whose markers are to be sent afterwards."""
        self.waiting_completions = 0
        """Transactions whose end the log has refused, and which is written again after COMPLETION_RETRY_MS."""
        self._broker_id = broker_id
        self._log = state_log
        self._allocate = allocate
        self._markers = markers
        self._clock = clock
        self._timer = timer

    def run(self, hosted: HostedTransaction, event: Event) -> int:
        """Process the event and all that follows from it at once; return the number of actions."""
        transaction = hosted.transaction
        inbox: deque[Event] = deque((event,))
        actions = 0
        while inbox:
            before = transaction.state
            for action in step(transaction, inbox.popleft(), self._clock.now_ms()):
                self._perform(hosted, action, inbox)
                actions += 1
            if transaction.state is not before:
                self._log_change(transaction, before)
        return actions

    def run_new(self, transactional_id: str, partition: LedPartition[HostedTransaction], event: Event) -> None:
        """Create an id with its first event.

        If it has no producer afterwards, it is removed: refused requests use no memory.
        """
        hosted = HostedTransaction(Transaction(transactional_id), partition)
        self.hosted.add(transactional_id, hosted)
        self.run(hosted, event)
        if hosted.transaction.is_vacant and not hosted.is_gone:
            self._discard(hosted)

    def run_all(self, event: Event) -> None:
        """Process the event for every id that exists now, some ids per loop turn."""
        self._run_in_turns(self.hosted.present(), event)

    async def load_all(self, partition: LedPartition[HostedTransaction]) -> None:
        """Read the partition and add its transactions."""
        playback = TransactionPlayback()
        await play_back(self._log, TopicPartition(TRANSACTION_STATE_TOPIC, partition.index), playback)
        decided = self._decided[partition] = deque()
        size = 0
        for transaction in playback.transactions():
            hosted = HostedTransaction(transaction, partition)
            self.hosted.add(transaction.transactional_id, hosted)
            if transaction.state.is_decided:
                decided.append(hosted)
            size += 1 + len(transaction.partitions) // _PARTITIONS_PER_ID
            if size >= IDS_PER_TURN:
                size = 0
                await asyncio.sleep(0)

    def serve_all(self, partition: LedPartition[HostedTransaction]) -> None:
        """Start serving the transactions of a loaded partition, and send the markers of decided ones."""
        self.hosted.serve(partition)
        self._run_in_turns(taken(self._decided.pop(partition)), Loaded())

    def remove_all(self, partition: LedPartition[HostedTransaction]) -> int:
        """Remove the transactions of a partition; return how many there were."""
        self._decided.pop(partition, None)
        return self.hosted.leave(partition)

    async def stop(self) -> None:
        """Return when the parked requests of all transactions that are removed have been completed."""
        await self.hosted.left()

    def _run_in_turns(self, waiting: Iterator[HostedTransaction], event: Event) -> None:
        self._turns.visit(waiting, lambda hosted: self._process(hosted, event))

    def _unload(self, hosted: HostedTransaction) -> int:
        # First: the remaining markers are those of the new coordinator.
        self._discard(hosted)
        self.run(hosted, Unload())
        return 1

    def _perform(self, hosted: HostedTransaction, action: Action, inbox: deque[Event]) -> None:
        match action:
            case Respond():
                cast("ParkedCall[object]", action.token).complete(action.outcome)
            case AllocateProducerId():
                self._allocate(hosted.transaction.transactional_id, action.event)
            case Persist():
                self._append(hosted, action, inbox)
            case SendMarkers():
                self._send_markers(hosted, action)
            case ScheduleCompletion():
                self.waiting_completions += 1
                self._timer.schedule(COMPLETION_RETRY_MS, partial(self._complete_again, hosted))
            case Discard():
                self._discard(hosted)
            case _:
                assert_never(action)

    def _complete_again(self, hosted: HostedTransaction) -> None:
        self.waiting_completions -= 1
        self._process(hosted, CompletionDue())

    def _process(self, hosted: HostedTransaction, event: Event) -> int:
        """Process a later event, unless this broker no longer coordinates the id; return how long that takes.

        The unit is the time of an event that changes nothing.
        """
        is_gone = hosted.is_gone or not hosted.partition.is_served
        return 1 if is_gone else 1 + _STEP * self.run(hosted, event)

    def _append(self, hosted: HostedTransaction, action: Persist, inbox: deque[Event]) -> None:
        transactional_id, partition = hosted.transaction.transactional_id, hosted.partition.index
        timeout_ms = TOMBSTONE_TIMEOUT_MS if action.snapshot is None else action.snapshot.timeout_ms

        def append() -> AppendOutcome | asyncio.Future[AppendOutcome]:
            record = transaction_record(transactional_id, action.snapshot, self._clock.now_ms(), self._record_version())
            return self._log.append(partition, build_batch([record]), required_acks=ALL_IN_SYNC, timeout_ms=timeout_ms)

        outcome = append_or_refuse(append, f"transactional_id={transactional_id!r} partition={partition}")
        if isinstance(outcome, asyncio.Future):
            outcome.add_done_callback(partial(self._appended, hosted))
        else:
            inbox.append(AppendDone(outcome.error))

    def _appended(self, hosted: HostedTransaction, future: asyncio.Future[AppendOutcome]) -> None:
        self._process(hosted, AppendDone(outcome_of(future).error))

    def _send_markers(self, hosted: HostedTransaction, action: SendMarkers) -> None:
        hosted.job = MarkerJob(
            hosted.transaction.transactional_id,
            action.producer,
            committed=action.committed,
            coordinator_epoch=hosted.partition.epoch,
            partitions=action.partitions,
            on_written=partial(self._markers_written, hosted),
            client_version=action.client_version,
        )
        self._markers.send(hosted.job)

    def _markers_written(self, hosted: HostedTransaction, partitions: tuple[TopicPartition, ...]) -> None:
        self._process(hosted, MarkersWritten(partitions))

    def _discard(self, hosted: HostedTransaction) -> None:
        hosted.is_gone = True
        if hosted.job is not None:
            self._markers.cancel(hosted.job)
        self.hosted.remove(hosted.transaction.transactional_id, hosted)

    def _log_change(self, transaction: Transaction, before: TransactionState) -> None:
        log.debug(
            "transaction state changed broker=%d transactional_id=%s from=%s to=%s producer=%s",
            self._broker_id,
            transaction.transactional_id,
            before.label,
            transaction.state.label,
            transaction.producer,
        )

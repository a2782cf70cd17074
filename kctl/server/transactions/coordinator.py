"""The transaction coordinator of a broker: hosts the ids of the `__transaction_state` partitions that it leads.

Calls are checked (id, coordinator active, partition loading, partition ours), become events for the transaction's state
machine, and the machine's actions are performed here: answers, appends, markers.  A partition's leader epoch is the
coordinator epoch in its markers, by which partitions tell a coordinator from its successor.

While a partition loads, its ids answer COORDINATOR_LOAD_IN_PROGRESS and those of other partitions go on.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import assert_never, cast

from kctl.environment import Clock, Timer, TimerTask
from kctl.errors import ErrorCode, KctlError, ZooKeeperError
from kctl.model import ProducerIdAndEpoch, TopicPartition, partition_for_key
from kctl.records.build import build_batch
from kctl.server.coordinators.ports import ALL_IN_SYNC, AppendOutcome, CoordinatorLog, outcome_of
from kctl.server.coordinators.replay import PartitionReplay
from kctl.server.coordinators.replies import ParkedCall, Reply
from kctl.server.transactions.actions import (
    Action,
    AllocateProducerId,
    Answer,
    Discard,
    InitOutcome,
    Persist,
    ScheduleCompletion,
    SendMarkers,
)
from kctl.server.transactions.config import TransactionConfig
from kctl.server.transactions.events import (
    AddPartitions,
    AppendDone,
    CompletionDue,
    EndTransaction,
    Event,
    InitProducer,
    Loaded,
    LookForExpiry,
    LookForTimeout,
    MarkersWritten,
    Unload,
)
from kctl.server.transactions.loading import TransactionPlayback
from kctl.server.transactions.markers import MarkerJob, MarkerSender
from kctl.server.transactions.ports import FreshProducerIds
from kctl.server.transactions.records import transaction_record
from kctl.server.transactions.snapshot import TransactionOverview, TransactionSnapshot
from kctl.server.transactions.states import BY_LABEL, TransactionState
from kctl.server.transactions.step import step
from kctl.server.transactions.transaction import Transaction

log = logging.getLogger(__name__)

TOMBSTONE_TIMEOUT_MS = 30_000
COMPLETION_RETRY_MS = 100
RECORDS_PER_TURN = 1_000
"""How many records a load takes in before it lets requests for other ids through."""
IDS_PER_TURN = 1_000
"""How many ids are restored, or looked at for time-outs or expiry, before requests are let through."""


class _Hosted:
    """A transactional id, the partition that it is kept in, and the markers that are on their way for it."""

    __slots__ = ("is_gone", "job", "partition", "transaction")

    def __init__(self, transaction: Transaction, partition: int) -> None:
        self.transaction = transaction
        self.partition = partition
        self.job: MarkerJob | None = None
        self.is_gone = False


class _Partition:
    """A partition of `__transaction_state` that this broker leads."""

    __slots__ = ("epoch", "is_loading", "task")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.is_loading = True
        self.task: asyncio.Task[None] | None = None


class TransactionCoordinator:
    """All transactional ids of one broker."""

    def __init__(
        self,
        *,
        broker_id: int,
        config: TransactionConfig,
        state_log: CoordinatorLog,
        producer_ids: FreshProducerIds,
        markers: MarkerSender,
        clock: Clock,
        timer: Timer,
    ) -> None:
        self._broker_id = broker_id
        self._config = config
        self._log = state_log
        self._producer_ids = producer_ids
        self._markers = markers
        self._clock = clock
        self._timer = timer
        self._is_active = False
        self._partitions: dict[int, _Partition] = {}
        self._hosted: dict[str, _Hosted] = {}
        self._rounds: dict[str, TimerTask] = {}
        self._allocations: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Calls are served from now on; until then they answer COORDINATOR_NOT_AVAILABLE."""
        self._is_active = True
        self._schedule_round("time-outs", self._config.abort_check_interval_ms, self.abort_timed_out)
        self._schedule_round("expiry", self._config.expiration_check_interval_ms, self.expire)

    async def stop(self) -> None:
        """Everything parked answers NOT_COORDINATOR; markers are left to the next coordinator."""
        self._is_active = False
        for task in self._rounds.values():
            task.cancel()
        tasks = [owned.task for owned in self._partitions.values() if owned.task is not None]
        for partition in list(self._partitions):
            self.on_resign(partition)
        for allocation in self._allocations:
            allocation.cancel()
        await asyncio.gather(*tasks, *self._allocations, return_exceptions=True)
        await self._markers.close()

    async def loaded(self) -> None:
        """When every load that has begun is done."""
        tasks = [owned.task for owned in self._partitions.values() if owned.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_leader(self, partition: int, epoch: int) -> None:
        """This broker leads the partition in `epoch`: load it, unless that is done or news of an older leadership.

        If the epoch is the next one nobody else led in between, so what is in memory stands.
        """
        owned = self._partitions.get(partition)
        if owned is not None and epoch <= owned.epoch + 1:
            owned.epoch = max(owned.epoch, epoch)
            return
        self._unload(partition)
        owned = self._partitions[partition] = _Partition(epoch)
        name = f"load-transactions-{partition}"
        owned.task = asyncio.get_running_loop().create_task(self._load(partition, owned), name=name)

    def on_resign(self, partition: int, epoch: int | None = None) -> None:
        """This broker does not lead the partition any more; its transactions are somebody else's."""
        owned = self._partitions.get(partition)
        if owned is None or (epoch is not None and epoch < owned.epoch):
            return
        del self._partitions[partition]
        if owned.task is not None:
            owned.task.cancel()
        self._unload(partition)

    def init_producer(
        self, transactional_id: str, *, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> Reply[InitOutcome]:
        """InitProducerId: answered when the new epoch is in the log, or refused at once."""
        error = ErrorCode.NONE if transactional_id else ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE and not 0 < timeout_ms <= self._config.max_timeout_ms:
            error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        error = error or self._status(transactional_id)
        if error is not ErrorCode.NONE:
            return InitOutcome(error)
        call: ParkedCall[InitOutcome] = ParkedCall()
        self._run_or_create(transactional_id, InitProducer(token=call, timeout_ms=timeout_ms, expected=expected))
        return call.reply()

    def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> Reply[ErrorCode]:
        """AddPartitionsToTxn and AddOffsetsToTxn: answered when the partitions are in the log, or refused at once."""
        call: ParkedCall[ErrorCode] = ParkedCall()
        return self._ask(transactional_id, call, AddPartitions(call, producer, tuple(dict.fromkeys(partitions))))

    def end(self, transactional_id: str, producer: ProducerIdAndEpoch, *, committed: bool) -> Reply[ErrorCode]:
        """EndTxn: answered when the decision is in the log, or refused at once; the markers follow."""
        call: ParkedCall[ErrorCode] = ParkedCall()
        return self._ask(transactional_id, call, EndTransaction(call, producer, committed))

    def describe(self, transactional_id: str) -> tuple[ErrorCode, TransactionSnapshot | None]:
        """DescribeTransactions, for one id."""
        error = self._status(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            return error, None
        hosted = self._hosted.get(transactional_id)
        if hosted is None or hosted.transaction.is_new:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        return ErrorCode.NONE, hosted.transaction.describe()

    def transactions(
        self, states: Collection[str] = (), producer_ids: Collection[int] = ()
    ) -> tuple[ErrorCode, list[str], list[TransactionOverview]]:
        """ListTransactions: an error, the state names that do not exist, and the ids that pass the filters, if any."""
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, [], []
        if any(owned.is_loading for owned in self._partitions.values()):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], []
        unknown = [name for name in states if name not in BY_LABEL]
        wanted = {BY_LABEL[name] for name in states if name in BY_LABEL}
        overviews = [hosted.transaction.overview() for hosted in self._hosted.values() if not hosted.transaction.is_new]
        return (
            ErrorCode.NONE,
            unknown,
            [
                each
                for each in overviews
                if (not states or each.state in wanted) and (not producer_ids or each.producer_id in producer_ids)
            ],
        )

    def abort_timed_out(self) -> None:
        """Looks for transactions that take too long now; start() makes that regular."""
        self._look(LookForTimeout(), iter(list(self._hosted.values())))

    def expire(self) -> None:
        """Looks for unused ids now; start() makes that regular."""
        self._look(LookForExpiry(self._config.id_expiration_ms), iter(list(self._hosted.values())))

    def _status(self, transactional_id: str) -> ErrorCode:
        """Whether the id may be served here."""
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if transactional_id in self._hosted:
            return ErrorCode.NONE
        partition = self._partition_of(transactional_id)
        owned = None if partition is None else self._partitions.get(partition)
        if owned is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if owned.is_loading else ErrorCode.NONE

    def _partition_of(self, transactional_id: str) -> int | None:
        count = self._log.partition_count()
        return None if count is None else partition_for_key(transactional_id, count)

    def _ask(
        self, transactional_id: str, call: ParkedCall[ErrorCode], event: AddPartitions | EndTransaction
    ) -> Reply[ErrorCode]:
        error = self._status(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        hosted = self._hosted.get(transactional_id)
        if error is not ErrorCode.NONE or hosted is None:
            return error or ErrorCode.INVALID_PRODUCER_ID_MAPPING
        self._run(hosted, event)
        return call.reply()

    def _run_or_create(self, transactional_id: str, event: Event) -> None:
        """An id that the event left without a producer is forgotten again: refused requests cost no memory."""
        hosted = self._hosted.get(transactional_id)
        if hosted is None:
            partition = self._partition_of(transactional_id)
            assert partition is not None
            hosted = self._hosted[transactional_id] = _Hosted(Transaction(transactional_id), partition)
        self._run(hosted, event)
        if hosted.transaction.is_vacant and not hosted.is_gone:
            self._discard(hosted)

    def _run(self, hosted: _Hosted, event: Event) -> None:
        """Lets the event happen, and whatever follows from it at once."""
        transaction = hosted.transaction
        inbox: deque[Event] = deque((event,))
        while inbox:
            before = transaction.state
            for action in step(transaction, inbox.popleft(), self._clock.now_ms()):
                self._perform(hosted, action, inbox)
            if transaction.state is not before:
                self._log_change(transaction, before)

    def _perform(self, hosted: _Hosted, action: Action, inbox: deque[Event]) -> None:
        match action:
            case Answer():
                cast("ParkedCall[object]", action.token).answer(action.outcome)
            case AllocateProducerId():
                self._allocate(hosted.transaction.transactional_id, action.event)
            case Persist():
                self._append(hosted, action, inbox)
            case SendMarkers():
                self._send_markers(hosted, action)
            case ScheduleCompletion():
                self._timer.schedule(COMPLETION_RETRY_MS, partial(self._tell, hosted, CompletionDue()))
            case Discard():
                self._discard(hosted)
            case _:
                assert_never(action)

    def _tell(self, hosted: _Hosted, event: Event) -> None:
        """Something that was asked for earlier happens, unless the id is no longer ours."""
        if not hosted.is_gone:
            self._run(hosted, event)

    def _append(self, hosted: _Hosted, action: Persist, inbox: deque[Event]) -> None:
        record = transaction_record(hosted.transaction.transactional_id, action.snapshot, self._clock.now_ms())
        timeout_ms = TOMBSTONE_TIMEOUT_MS if action.snapshot is None else action.snapshot.timeout_ms
        outcome = self._log.append(
            hosted.partition, build_batch([record]), required_acks=ALL_IN_SYNC, timeout_ms=timeout_ms
        )
        if isinstance(outcome, asyncio.Future):
            outcome.add_done_callback(partial(self._appended, hosted))
        else:
            inbox.append(AppendDone(outcome.error))

    def _appended(self, hosted: _Hosted, future: asyncio.Future[AppendOutcome]) -> None:
        self._tell(hosted, AppendDone(outcome_of(future).error))

    def _send_markers(self, hosted: _Hosted, action: SendMarkers) -> None:
        owned = self._partitions[hosted.partition]
        hosted.job = MarkerJob(
            hosted.transaction.transactional_id,
            action.producer,
            committed=action.committed,
            coordinator_epoch=owned.epoch,
            partitions=action.partitions,
            on_written=lambda partitions: self._tell(hosted, MarkersWritten(partitions)),
        )
        self._markers.send(hosted.job)

    def _allocate(self, transactional_id: str, event: InitProducer) -> None:
        task = asyncio.get_running_loop().create_task(
            self._init_with_fresh_id(transactional_id, event), name="allocate-producer-id"
        )
        self._allocations.add(task)
        task.add_done_callback(self._allocations.discard)

    async def _init_with_fresh_id(self, transactional_id: str, event: InitProducer) -> None:
        """The world may have changed meanwhile, so the event happens anew, now with an id at hand."""
        call = cast("ParkedCall[InitOutcome]", event.token)
        error = ErrorCode.NOT_COORDINATOR
        try:
            producer_id = await self._producer_ids.next()
            error = self._status(transactional_id)
            if error is ErrorCode.NONE:
                self._run_or_create(transactional_id, replace(event, fresh_producer_id=producer_id))
        except ZooKeeperError as reason:
            log.warning("no producer id could be had: %s", reason)
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        finally:
            if error is not ErrorCode.NONE:
                call.answer(InitOutcome(error))

    def _discard(self, hosted: _Hosted) -> None:
        hosted.is_gone = True
        if hosted.job is not None:
            self._markers.cancel(hosted.job)
        if self._hosted.get(hosted.transaction.transactional_id) is hosted:
            del self._hosted[hosted.transaction.transactional_id]

    def _unload(self, partition: int) -> None:
        leaving = [hosted for hosted in self._hosted.values() if hosted.partition == partition]
        for hosted in leaving:
            self._run(hosted, Unload())
        if leaving:
            log.info("broker=%d unloaded partition=%d transactional_ids=%d", self._broker_id, partition, len(leaving))

    async def _load(self, partition: int, owned: _Partition) -> None:
        """Replays the partition; if that fails its ids stay refused, so that nothing is decided twice."""
        started_ms = self._clock.monotonic_ms()
        playback = TransactionPlayback()
        replay = PartitionReplay(playback)
        try:
            async for chunk in self._log.read_all(partition):
                await _take_in(replay, chunk)
        except KctlError as error:
            log.error("broker=%d cannot load partition=%d reason=%s", self._broker_id, partition, error)
            if self._partitions.get(partition) is owned:
                del self._partitions[partition]
            return
        for skipped in replay.skipped:
            log.warning(
                "topic=__transaction_state partition=%d skipped offset=%d key=%r reason=%s",
                partition,
                skipped.offset,
                skipped.key,
                skipped.reason,
            )
        restored: dict[str, _Hosted] = {}
        for transaction in playback.transactions():
            restored[transaction.transactional_id] = _Hosted(transaction, partition)
            if len(restored) % IDS_PER_TURN == 0:
                await asyncio.sleep(0)
        # No await from here on: the transactions appear all at once.
        if self._partitions.get(partition) is not owned:
            return
        self._hosted.update(restored)
        owned.is_loading = False
        for hosted in restored.values():
            if hosted.transaction.state.is_decided:
                self._run(hosted, Loaded())
        elapsed_ms = self._clock.monotonic_ms() - started_ms
        # Most partitions have no transactions, and a broker leads dozens of them.
        level = logging.INFO if restored else logging.DEBUG
        message = "broker=%d loaded partition=%d transactional_ids=%d ms=%d"
        log.log(level, message, self._broker_id, partition, len(restored), elapsed_ms)

    def _schedule_round(self, name: str, interval_ms: int, look: Callable[[], None]) -> None:
        def due() -> None:
            look()
            self._schedule_round(name, interval_ms, look)

        self._rounds[name] = self._timer.schedule(interval_ms, due)

    def _look(self, event: LookForTimeout | LookForExpiry, waiting: Iterator[_Hosted]) -> None:
        some = list(islice(waiting, IDS_PER_TURN))
        for hosted in some:
            self._tell(hosted, event)
        if len(some) == IDS_PER_TURN:
            self._timer.schedule(0, partial(self._look, event, waiting))

    def _log_change(self, transaction: Transaction, before: TransactionState) -> None:
        log.debug(
            "broker=%d transactional_id=%s %s -> %s producer=%s",
            self._broker_id,
            transaction.transactional_id,
            before.label,
            transaction.state.label,
            transaction.producer,
        )


async def _take_in(replay: PartitionReplay, chunk: bytes) -> None:
    records = 0
    for count in replay.batches(chunk):
        records += count
        if records >= RECORDS_PER_TURN:
            records = 0
            await asyncio.sleep(0)

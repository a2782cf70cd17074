"""The transaction coordinator of a broker: the API that request handlers use.

Calls are checked (id, coordinator active, partition loading, partition led here) and become events for the transaction,
which the runner processes; each call gets one result, now or later.

While a partition loads, its ids get COORDINATOR_LOAD_IN_PROGRESS and those of other partitions are served.

Owner: event loop.  Kafka: TransactionCoordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from kctl.errors import ErrorCode
from kctl.limits import SLICE_OBJECTS, Subject, bound
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.coordination.hosted import HostedObjects, PeriodicChecks
from kctl.server.coordination.partitions import CoordinatorPartitions
from kctl.server.coordination.ports import CoordinatorLog
from kctl.server.coordination.replies import ParkedCall, Reply
from kctl.server.coordination.transactions.events import (
    BY_LABEL,
    VERSION_WITH_RAISED_EPOCHS,
    AddPartitions,
    CheckExpiry,
    CheckTimeout,
    EndTransaction,
    InitProducer,
    ProducerOutcome,
    TransactionOverview,
    TransactionSnapshot,
)
from kctl.server.coordination.transactions.markers import MarkerSender
from kctl.server.coordination.transactions.ports import FreshProducerIds, TransactionConfig
from kctl.server.coordination.transactions.producer_ids import ProducerIdAllocations
from kctl.server.coordination.transactions.runner import HostedTransaction, TransactionRunner
from kctl.server.coordination.transactions.transaction import Transaction
from kctl.server.loop.slices import pause, sliced
from kctl.system.environment import Clock, Timer

TRANSACTIONAL_IDS_MAX = bound(
    Subject.COORDINATION,
    "transactional ids of one coordinator",
    500_000,
    "ids",
    on_excess="COORDINATOR_NOT_AVAILABLE for new ids",
)


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
        level: Callable[[], int] = lambda: 0,
    ) -> None:
        """`level` returns the present level of transaction.version."""
        self._level = level
        self._config = config
        self._clock = clock
        self._is_active = False
        self._markers = markers
        self._allocations = ProducerIdAllocations(producer_ids, self._run_again)
        self._runner = TransactionRunner(
            broker_id,
            state_log=state_log,
            allocate=self._allocations.begin,
            markers=markers,
            clock=clock,
            timer=timer,
            record_version=lambda: min(level(), 1),
        )
        self._hosted: HostedObjects[HostedTransaction] = self._runner.hosted
        self.partitions = CoordinatorPartitions(broker_id, state_log, self._runner, clock)
        """The partitions of `__transaction_state` that this broker leads; notified of changes of leadership."""
        self._checks = PeriodicChecks(timer)

    @property
    def hosted(self) -> HostedObjects[HostedTransaction]:
        """The transactional ids of the partitions that this broker leads."""
        return self._hosted

    @property
    def waiting_markers(self) -> int:
        """Transactions with markers that no leader takes at the moment."""
        return self._markers.waiting

    @property
    def waiting_completions(self) -> int:
        """Transactions whose end the log has refused, and which is written again."""
        return self._runner.waiting_completions

    def start(self) -> None:
        """Start serving calls; before that they get COORDINATOR_NOT_AVAILABLE."""
        self._is_active = True
        self._checks.every(self._config.abort_check_interval_ms, self.abort_timed_out)
        self._checks.every(self._config.expiration_check_interval_ms, self.expire)

    async def stop(self) -> None:
        """Stop; all parked requests get NOT_COORDINATOR, and pending markers are left to the next coordinator."""
        self._is_active = False
        self._checks.cancel()
        await self._allocations.close()
        await self.partitions.close()
        await self._runner.stop()
        await self._markers.close()

    def init_producer(
        self, transactional_id: str, *, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> Reply[ProducerOutcome]:
        """InitProducerId: completes when the new epoch is in the log, or at once with an error."""
        error = ErrorCode.NONE if transactional_id else ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE and not 0 < timeout_ms <= self._config.max_timeout_ms:
            error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        error = error or self._status(transactional_id)
        if (
            error is ErrorCode.NONE
            and transactional_id not in self._hosted
            and len(self._hosted) >= TRANSACTIONAL_IDS_MAX
        ):
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error is not ErrorCode.NONE:
            return ProducerOutcome(error)
        call: ParkedCall[ProducerOutcome] = ParkedCall()
        self._run_or_create(transactional_id, InitProducer(token=call, timeout_ms=timeout_ms, expected=expected))
        return call.reply()

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        *,
        is_for_client: bool = False,
    ) -> Reply[ErrorCode]:
        """AddPartitionsToTxn and AddOffsetsToTxn: completes when the partitions are in the log, or at once.

        `is_for_client`: a broker adds the partition that a client of version 2 has written to (KIP-890).
        """
        call: ParkedCall[ErrorCode] = ParkedCall()
        is_of_version_2 = is_for_client and self._level() >= VERSION_WITH_RAISED_EPOCHS
        client_version = VERSION_WITH_RAISED_EPOCHS if is_of_version_2 else 0
        event = AddPartitions(call, producer, tuple(dict.fromkeys(partitions)), client_version)
        return self._request(transactional_id, call, event)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> tuple[ErrorCode, frozenset[TopicPartition]]:
        """AddPartitionsToTxn that only verifies: an error, or the partitions that are not in the transaction.

        Leaders ask before they append the first records of a transaction (KIP-890).  A record that is being written
        does not count: leaders check again when they append.  Kafka: handleVerifyPartitionsInTransaction.
        """
        error = self._status(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            return error, frozenset()
        hosted = self._hosted.get(transactional_id)
        transaction = None if hosted is None else hosted.transaction
        if transaction is None or transaction.producer.producer_id != producer.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, frozenset()
        if transaction.producer.epoch != producer.epoch:
            return ErrorCode.PRODUCER_FENCED, frozenset()
        if transaction.state.is_decided:
            return ErrorCode.CONCURRENT_TRANSACTIONS, frozenset()
        return ErrorCode.NONE, frozenset(tp for tp in partitions if tp not in transaction.partitions)

    def end(self, transactional_id: str, producer: ProducerIdAndEpoch, *, committed: bool) -> Reply[ErrorCode]:
        """EndTxn: completes when the decision is in the log, or at once with an error; markers are sent afterwards."""
        call: ParkedCall[ErrorCode] = ParkedCall()
        return self._request(transactional_id, call, EndTransaction(call, producer, committed))

    def raises_epoch(self, transactional_id: str) -> bool:
        """Return whether the end of a transaction of a client of version 2 raises the epoch.

        It does from level 2 of transaction.version on, or if the transaction began at that level.
        """
        hosted = self._hosted.get(transactional_id)
        is_of_version_2 = hosted is not None and hosted.transaction.client_version == VERSION_WITH_RAISED_EPOCHS
        return self._level() >= VERSION_WITH_RAISED_EPOCHS or is_of_version_2

    def end_and_raise(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, committed: bool
    ) -> Reply[ProducerOutcome]:
        """EndTxn of a client of version 2: as `end`, with the id and epoch for the next transaction (KIP-890)."""
        error = self._status(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        hosted = self._hosted.get(transactional_id)
        if error is not ErrorCode.NONE or hosted is None:
            return ProducerOutcome(error or ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        call: ParkedCall[ProducerOutcome] = ParkedCall()
        self._runner.run(hosted, EndTransaction(call, producer, committed, raises_epoch=True))
        return call.reply()

    def describe(self, transactional_id: str) -> tuple[ErrorCode, TransactionSnapshot | None]:
        """DescribeTransactions, for one id; None for an unknown id."""
        error = self._status(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            return error, None
        hosted = self._hosted.get(transactional_id)
        if hosted is None or hosted.transaction.is_new:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        return ErrorCode.NONE, hosted.transaction.describe()

    async def transactions(
        self, states: Collection[str] = (), producer_ids: Collection[int] = (), *, longer_than_ms: int = -1
    ) -> tuple[ErrorCode, list[str], list[TransactionOverview]]:
        """ListTransactions: an error, the unknown state names, and the ids that match the filters, if any.

        A transactional id without a transaction counts as one that has run for ever, as in Kafka.

        Examines the ids in slices.
        """
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, [], []
        if self.partitions.are_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], []
        unknown = [name for name in states if name not in BY_LABEL]
        requested = {BY_LABEL[name] for name in states if name in BY_LABEL}

        now_ms = self._clock.now_ms()

        def listed(transaction: Transaction) -> TransactionOverview | None:
            overview = transaction.overview()
            has_state = not states or overview.state in requested
            has_id = not producer_ids or overview.producer_id in producer_ids
            is_long = longer_than_ms < 0 or now_ms - transaction.start_ms > longer_than_ms
            return overview if has_state and has_id and is_long and not transaction.is_new else None

        if len(self._hosted) > SLICE_OBJECTS:
            # Requests that arrive together begin one after the other.
            await pause()
        overviews = (listed(hosted.transaction) for hosted in self._hosted.present())
        found = [overview async for overview in sliced(overviews, SLICE_OBJECTS) if overview is not None]
        return ErrorCode.NONE, unknown, found

    def abort_timed_out(self) -> None:
        """Abort transactions that exceed their timeout; `start` makes this periodic."""
        self._runner.run_all(CheckTimeout())

    def abort_ongoing(self) -> None:
        """Abort all ongoing transactions as if they exceeded their timeout."""
        self._runner.run_all(CheckTimeout(is_over_for_all=True))

    def expire(self) -> None:
        """Remove unused ids; `start` makes this periodic."""
        self._runner.run_all(CheckExpiry(self._config.id_expiration_ms))

    def _status(self, transactional_id: str) -> ErrorCode:
        """Return the error if the id cannot be served here."""
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        is_hosted = transactional_id in self._hosted
        return ErrorCode.NONE if is_hosted else self.partitions.status(transactional_id)

    def _request(
        self, transactional_id: str, call: ParkedCall[ErrorCode], event: AddPartitions | EndTransaction
    ) -> Reply[ErrorCode]:
        error = self._status(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        hosted = self._hosted.get(transactional_id)
        if error is not ErrorCode.NONE or hosted is None:
            return error or ErrorCode.INVALID_PRODUCER_ID_MAPPING
        self._runner.run(hosted, event)
        return call.reply()

    def _run_again(self, transactional_id: str, event: InitProducer | EndTransaction) -> ErrorCode:
        """Process the event with a fresh producer id, if this broker still coordinates the id."""
        error = self._status(transactional_id)
        if error is ErrorCode.NONE:
            self._run_or_create(transactional_id, event)
        return error

    def _run_or_create(self, transactional_id: str, event: InitProducer | EndTransaction) -> None:
        hosted = self._hosted.get(transactional_id)
        if hosted is not None:
            self._runner.run(hosted, event)
            return
        partition = self.partitions.of(transactional_id)
        assert partition is not None
        self._runner.run_new(transactional_id, partition, event)

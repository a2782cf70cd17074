"""The share coordinator of a broker: the share-partitions in the partitions of `__share_group_state` that it leads.

The requests of a share-partition are processed one after the other: each sees what the ones before it have stored, and
its response waits until its own record is replicated.  A record that the log refuses changes nothing.  If nobody knows
what becomes of a record, it counts as written, because it may be read later, and the request gets an error.

The log is cut before the oldest snapshot: updates would be lost by a compaction.  Share-partitions that have not
changed for share.coordinator.cold.partition.snapshot.interval.ms get a new snapshot, so that they do not prevent that.

Owner: event loop.  Kafka: ShareCoordinatorService.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from functools import partial

from kctl.config.broker import BrokerConfig
from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.model import SHARE_GROUP_STATE_TOPIC, TopicPartition
from kctl.records.build import build_batch
from kctl.server.coordination.hosted import HostedObjects, PeriodicChecks, Turns
from kctl.server.coordination.partitions import CoordinatorPartitions, LedPartition, play_back
from kctl.server.coordination.ports import ALL_IN_SYNC, AppendOutcome, PrunedLog, outcome_of
from kctl.server.coordination.replay import transaction_error
from kctl.server.coordination.replies import append_or_refuse
from kctl.server.coordination.share_state.records import SharePlayback, state_record
from kctl.server.coordination.share_state.state import (
    Change,
    Event,
    Refresh,
    ShareState,
    Snapshot,
    applied,
    check_reader,
    decide,
)
from kctl.server.share_partitions.values import ShareKey
from kctl.system.environment import Clock, Timer

SHARE_STATES_MAX = bound(
    Subject.COORDINATION,
    "share-partitions with state in one share coordinator",
    100_000,
    "partitions",
    on_excess="COORDINATOR_NOT_AVAILABLE for new ones",
)
_WAITING_MAX = bound(
    Subject.COORDINATION,
    "requests that wait for the state of one share-partition",
    100,
    "requests",
    on_excess="COORDINATOR_NOT_AVAILABLE",
)
STATES_PER_TURN = 200
_TIMED_OUT = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """Each field is the Kafka property given beside it."""

    updates_max: int = 500
    """share.coordinator.snapshot.update.records.per.snapshot"""
    write_timeout_ms: int = 5_000
    """share.coordinator.write.timeout.ms"""
    prune_interval_ms: int = 300_000
    """share.coordinator.state.topic.prune.interval.ms"""
    cold_interval_ms: int = 300_000
    """share.coordinator.cold.partition.snapshot.interval.ms"""

    @classmethod
    def of(cls, config: BrokerConfig) -> ShareCoordinatorConfig:
        """Return the settings in the broker's configuration."""
        return cls(
            updates_max=config.share_coordinator_snapshot_update_records_per_snapshot,
            write_timeout_ms=config.share_coordinator_write_timeout_ms,
            prune_interval_ms=config.share_coordinator_state_topic_prune_interval_ms,
            cold_interval_ms=config.share_coordinator_cold_partition_snapshot_interval_ms,
        )


class HostedState:
    """A share-partition, and the requests that wait for their turn."""

    __slots__ = ("is_busy", "key", "partition", "snapshot_offset", "state", "waiting")

    def __init__(self, key: ShareKey, partition: LedPartition[HostedState]) -> None:
        self.key = key
        self.partition = partition
        self.state: ShareState | None = None
        self.snapshot_offset = -1
        """The offset of the record of its last snapshot."""
        self.is_busy = False
        """A record is being written."""
        self.waiting: deque[tuple[Event, asyncio.Future[ShareState | None]]] = deque()

    def __repr__(self) -> str:
        return repr(self.key.text)


class ShareCoordinator:
    """coordinators.partitions.HostedState: all share-partitions that this broker coordinates."""

    kind = "share_partitions"

    def __init__(
        self, broker_id: int, *, config: ShareCoordinatorConfig, state_log: PrunedLog, clock: Clock, timer: Timer
    ) -> None:
        self._config = config
        self._log = state_log
        self._clock = clock
        self._is_active = False
        self._turns = Turns(timer, STATES_PER_TURN)
        self._checks = PeriodicChecks(timer)
        self.hosted: HostedObjects[HostedState] = HostedObjects(self._turns, self._unload)
        self.partitions = CoordinatorPartitions(broker_id, state_log, self, clock)
        """The partitions of `__share_group_state` that this broker leads; notified of changes of leadership."""

    def start(self) -> None:
        """Start serving requests; before that they get COORDINATOR_NOT_AVAILABLE."""
        self._is_active = True
        self._checks.every(self._config.cold_interval_ms, self.refresh)
        self._checks.every(self._config.prune_interval_ms, self.prune)

    async def stop(self) -> None:
        """Stop; requests that wait get NOT_COORDINATOR."""
        self._is_active = False
        self._checks.cancel()
        await self.partitions.close()
        await self.hosted.left()

    def summary(self, key: ShareKey, leader_epoch: int) -> ShareState | None:
        """Return what is stored of a share-partition, None without state.  Raises ApiError."""
        self._check(key)
        hosted = self.hosted.get(key.text)
        state = None if hosted is None else hosted.state
        check_reader(state, leader_epoch)
        return state

    async def process(self, key: ShareKey, event: Event) -> ShareState | None:
        """Process a request; return the state after it, when that is replicated.  Raises ApiError."""
        self._check(key)
        hosted = self.hosted.get(key.text)
        if hosted is None:
            partition = self.partitions.of(key.text)
            assert partition is not None
            hosted = HostedState(key, partition)
            # Refused requests use no memory.
            if self._decision(hosted, event) is None:
                return None
            if len(self.hosted) >= SHARE_STATES_MAX:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are too many share-partitions")
            self.hosted.add(key.text, hosted)
        if len(hosted.waiting) >= _WAITING_MAX:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many requests for a share-partition")
        done: asyncio.Future[ShareState | None] = asyncio.get_running_loop().create_future()
        hosted.waiting.append((event, done))
        self._go_on(hosted)
        return await done

    def refresh(self) -> None:
        """Write snapshots of share-partitions whose last one is old; `start` makes this periodic."""
        oldest_ms = self._clock.now_ms() - self._config.cold_interval_ms

        def visit(hosted: HostedState) -> int:
            is_old = hosted.state is not None and hosted.state.snapshot_ms <= oldest_ms
            if not (is_old and hosted.partition.is_served) or hosted.is_busy:
                return 1
            hosted.waiting.append((Refresh(), asyncio.get_running_loop().create_future()))
            self._go_on(hosted)
            return 10

        self._turns.visit(self.hosted.present(), visit)

    def prune(self) -> None:
        """Cut the log of each partition before its oldest snapshot; `start` makes this periodic."""
        for led in self.partitions.served():
            oldest = min((hosted.snapshot_offset for hosted in led.objects.values()), default=-1)
            if oldest > 0:
                self._log.cut(led.index, oldest)

    # HostedState of coordination.partitions.

    async def load_all(self, partition: LedPartition[HostedState]) -> None:
        """Read the partition and add its share-partitions."""
        playback = SharePlayback()
        await play_back(self._log, TopicPartition(SHARE_GROUP_STATE_TOPIC, partition.index), playback)
        for count, (key, loaded) in enumerate(playback.states(), 1):
            hosted = HostedState(key, partition)
            hosted.state, hosted.snapshot_offset = loaded
            self.hosted.add(key.text, hosted)
            if count % STATES_PER_TURN == 0:
                await asyncio.sleep(0)

    def serve_all(self, partition: LedPartition[HostedState]) -> None:
        """Start serving the share-partitions of a loaded partition."""
        self.hosted.serve(partition)

    def remove_all(self, partition: LedPartition[HostedState]) -> int:
        """Remove the share-partitions of a partition; return how many there were."""
        return self.hosted.leave(partition)

    def _unload(self, hosted: HostedState) -> int:
        waiting, hosted.waiting = hosted.waiting, deque()
        for _, done in waiting:
            _fail(done, ApiError(ErrorCode.NOT_COORDINATOR))
        return 1

    # Requests.

    def _check(self, key: ShareKey) -> None:
        if not self._is_active:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if key.text not in self.hosted:
            error = self.partitions.status(key.text)
            if error is not ErrorCode.NONE:
                raise ApiError(error)

    def _decision(self, hosted: HostedState, event: Event) -> Change | None:
        return decide(hosted.state, event, self._clock.now_ms(), updates_max=self._config.updates_max)

    def _go_on(self, hosted: HostedState) -> None:
        """Process requests up to the next one that needs a record."""
        while hosted.waiting and not hosted.is_busy:
            event, done = hosted.waiting.popleft()
            try:
                change = self._decision(hosted, event)
            except ApiError as error:
                _fail(done, error)
                continue
            if change is None:
                _succeed(done, hosted.state)
                continue
            outcome = self._append(hosted, change)
            if isinstance(outcome, asyncio.Future):
                hosted.is_busy = True
                outcome.add_done_callback(partial(self._later, hosted, change, done))
            else:
                self._appended(hosted, change, done, outcome)

    def _append(self, hosted: HostedState, change: Change) -> AppendOutcome | asyncio.Future[AppendOutcome]:
        index = hosted.partition.index

        def append() -> AppendOutcome | asyncio.Future[AppendOutcome]:
            batch = build_batch([state_record(hosted.key, change, self._clock.now_ms())])
            return self._log.append(index, batch, required_acks=ALL_IN_SYNC, timeout_ms=self._config.write_timeout_ms)

        return append_or_refuse(append, f"share_partition={hosted.key.text!r} partition={index}")

    def _later(
        self,
        hosted: HostedState,
        change: Change,
        done: asyncio.Future[ShareState | None],
        append: asyncio.Future[AppendOutcome],
    ) -> None:
        hosted.is_busy = False
        self._appended(hosted, change, done, outcome_of(append))
        if hosted.partition.is_served:
            self._go_on(hosted)

    def _appended(
        self, hosted: HostedState, change: Change, done: asyncio.Future[ShareState | None], outcome: AppendOutcome
    ) -> None:
        if outcome.error is ErrorCode.NONE or outcome.error in _TIMED_OUT:
            hosted.state = applied(hosted.state, change)
            if isinstance(change, Snapshot) and outcome.base_offset >= 0:
                hosted.snapshot_offset = outcome.base_offset
            elif isinstance(change, Snapshot):
                hosted.snapshot_offset = max(hosted.snapshot_offset, 0)
        if hosted.state is None and not hosted.waiting:
            self.hosted.remove(hosted.key.text, hosted)
        if outcome.error is not ErrorCode.NONE:
            _fail(done, ApiError(transaction_error(outcome.error)))
        elif not hosted.partition.is_served:
            _fail(done, ApiError(ErrorCode.NOT_COORDINATOR))
        else:
            _succeed(done, hosted.state)


def _succeed(done: asyncio.Future[ShareState | None], state: ShareState | None) -> None:
    if not done.done():
        done.set_result(state)


def _fail(done: asyncio.Future[ShareState | None], error: ApiError) -> None:
    if not done.done():
        done.set_exception(error)
        # The request may be gone, as that of a snapshot by `refresh`.
        done.exception()

"""The share-partitions of partitions that this broker leads: loads them, reads the log for them, writes their state.

A share-partition is loaded from the share coordinator when a member fetches it for the first time in a leader epoch,
with which former leaders are fenced.  It is dropped when the leadership ends, and when the share coordinator refuses
its epoch; then the next fetch loads it again.

Owner: event loop.  Kafka: SharePartitionManager, SharePartition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.limits import Subject, bound
from kctl.model import TopicPartition
from kctl.records.batch import iterate_batches
from kctl.records.header import CorruptBatch
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.share_partitions.acknowledging import Acknowledgement, acknowledge
from kctl.server.share_partitions.partition import AcquiredRange, LogBatch, ShareLimits, SharePartition, cut_ranges
from kctl.server.share_partitions.values import (
    NO_OFFSET,
    ShareKey,
    ShareStates,
    StateChange,
    StoredState,
)
from kctl.system.environment import Clock, Timer, TimerTask

SHARE_PARTITIONS_MAX = bound(
    Subject.FETCH_SESSIONS,
    "share-partitions of one broker: partitions, each counted for each share group that fetches it",
    10_000,
    "partitions",
    on_excess="one without acquired records is dropped until its next fetch; without any, SHARE_SESSION_LIMIT_REACHED",
)
READ_BYTES_MAX = bound(
    Subject.FETCH_SESSIONS,
    "records that a share group reads of one partition at a time; the first batch is read whole",
    1 << 20,
    "bytes",
    on_excess="the rest is read by the next request",
)
_WRITE_RETRY_MS = 1_000

log = logging.getLogger(__name__)

_FENCED = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The share coordinator has another state: that of a newer leader or a later group, or none."""


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """What the configuration of a group says about its share-partitions."""

    limits: ShareLimits = field(default_factory=ShareLimits)
    is_committed_only: bool = False
    """share.isolation.level=read_committed"""
    may_renew: bool = True
    """share.renew.acknowledge.enable"""
    offset_reset: str = "latest"
    """share.auto.offset.reset: earliest, latest or by_duration:DURATION"""
    reset_duration_ms: int | None = None
    """The duration of by_duration."""


class Acquisition(NamedTuple):
    """Records for a member, and which of them it has acquired."""

    records: memoryview
    ranges: Sequence[AcquiredRange]


NOTHING_ACQUIRED = Acquisition(memoryview(b""), ())


@dataclass(eq=False, slots=True)
class HostedSharePartition:
    """A share-partition with its write and its timer."""

    key: ShareKey
    led: Partition
    leader_epoch: int
    loading: asyncio.Task[None] | None = None
    partition: SharePartition | None = None
    """None while it is loaded."""
    error: ApiError | None = None
    """Why it could not be loaded, or is not valid any more."""
    staged: list[asyncio.Future[ErrorCode]] = field(default_factory=list)
    """Acknowledgements for the next write."""
    written: list[asyncio.Future[ErrorCode]] = field(default_factory=list)
    """Acknowledgements in the write that is under way."""
    write: asyncio.Task[None] | None = None
    timer: TimerTask | None = None
    timer_due_ms: int = 0
    is_leaving: bool = False
    """No member of the group has a session here: it is dropped when nothing would be lost."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return self.led.topic_partition

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost without it."""
        if self.partition is None or self.write is not None:
            return False
        return self.partition.next_deadline_ms() is None


class ShareManager:
    """All share-partitions of a broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        states: ShareStates,
        *,
        settings: Callable[[str], ShareSettings],
        changed: Callable[[TopicPartition], None],
        clock: Clock,
        timer: Timer,
    ) -> None:
        """Take `settings` of a group, and `changed`, which is called when records may have become available."""
        self._replicas = replicas
        self._states = states
        self.settings = settings
        self._changed = changed
        self._clock = clock
        self._timer = timer
        self._hosted: dict[tuple[str, TopicPartition], HostedSharePartition] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, group_id: str, topic_partition: TopicPartition) -> HostedSharePartition | None:
        """Return a share-partition that is valid, loaded or not."""
        hosted = self._hosted.get((group_id, topic_partition))
        if hosted is not None and not self._is_valid(hosted):
            self._drop(hosted, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return None
        return hosted

    async def get(self, key: ShareKey, topic: str) -> HostedSharePartition:
        """Return a share-partition, after it was loaded.  Raises ApiError."""
        topic_partition = TopicPartition(topic, key.partition)
        led = self._replicas.partition(*topic_partition)
        led.check_leader()
        hosted = self.find(key.group_id, topic_partition)
        if hosted is not None and hosted.key != key:
            self._drop(hosted, ApiError(ErrorCode.UNKNOWN_TOPIC_ID))
            hosted = None
        if hosted is None:
            self._make_room()
            hosted = HostedSharePartition(key, led, led.leader_epoch)
            self._hosted[key.group_id, topic_partition] = hosted
            hosted.loading = self._start(self._load(hosted))
        hosted.is_leaving = False
        if hosted.loading is not None:
            await asyncio.wait([hosted.loading])
        if hosted.error is not None:
            raise hosted.error
        return hosted

    def has_more(self, group_id: str, topic_partition: TopicPartition) -> bool:
        """Check cheaply whether a fetch could acquire records of the partition, or get an error."""
        hosted = self.find(group_id, topic_partition)
        if hosted is None or hosted.partition is None:
            return True
        settings = self.settings(group_id)
        offset = hosted.partition.next_offset(settings.limits)
        return offset is not None and offset < _upper_bound(hosted.led, settings)

    def acquire(
        self,
        hosted: HostedSharePartition,
        member_id: str,
        *,
        records_max: int,
        bytes_max: int,
        is_exact: bool,
        batch_size: int = 0,
    ) -> Acquisition:
        """Read the log and acquire what is available, in ranges of at least `batch_size` offsets.  Raises ApiError."""
        partition, led = hosted.partition, hosted.led
        assert partition is not None
        settings = self.settings(hosted.key.group_id)
        led.check_leader()
        partition.move_start(led.log.log_start_offset)
        offset = partition.next_offset(settings.limits)
        end = _upper_bound(led, settings)
        if offset is None or offset >= end or records_max <= 0:
            return NOTHING_ACQUIRED
        try:
            data, batches = _read(led, offset, min(bytes_max, READ_BYTES_MAX), end, settings)
        except LogDirFailure as failure:
            self._replicas.log_dir_failed(failure)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from failure
        ranges = partition.acquire(
            member_id,
            [batch for batch, _ in batches],
            position=offset,
            records_max=records_max,
            is_exact=is_exact,
            limits=settings.limits,
            now_ms=self._clock.monotonic_ms(),
        )
        self._flush(hosted)
        self._schedule(hosted)
        if not ranges:
            return NOTHING_ACQUIRED
        part = _part_with(data, batches, ranges[0].first, ranges[-1].last)
        if batch_size > 0:
            ranges = cut_ranges(ranges, [batch.first for batch, _ in batches], batch_size)
        return Acquisition(part, ranges)

    def available_bytes(self, group_id: str, topic_partition: TopicPartition, most: int) -> int:
        """Return the size of the batches from the first offset on that a fetch could acquire, up to `most`.

        It is `most` if a fetch would get an error, or records of several segments, as Kafka takes it.
        """
        hosted = self.find(group_id, topic_partition)
        if hosted is None or hosted.partition is None:
            return most
        settings = self.settings(group_id)
        offset, end = hosted.partition.next_offset(settings.limits), _upper_bound(hosted.led, settings)
        if offset is None or offset >= end:
            return 0
        if offset < hosted.led.log.segments[-1].base_offset:
            return most
        return min(most, hosted.led.log.read(offset, most, max_offset=end, min_one_batch=True).size)

    async def acknowledge(
        self, hosted: HostedSharePartition, member_id: str, requested: Sequence[Acknowledgement]
    ) -> ErrorCode:
        """Return when the acknowledgements are stored, or with the error.  Raises ApiError for what is refused."""
        partition = hosted.partition
        assert partition is not None
        limits = self.settings(hosted.key.group_id).limits
        if not acknowledge(partition, member_id, requested, limits, self._clock.monotonic_ms()):
            self._schedule(hosted)
            return ErrorCode.NONE
        stored: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        hosted.staged.append(stored)
        self._flush(hosted)
        return await stored  # Also if the share-partition is dropped meanwhile.

    def release(self, group_id: str, member_id: str, topic_partitions: Iterable[TopicPartition]) -> None:
        """Release what a member has and has not acknowledged."""
        for topic_partition in topic_partitions:
            hosted = self._hosted.get((group_id, topic_partition))
            if hosted is None or hosted.partition is None:
                continue
            if hosted.partition.release_member(member_id, self.settings(group_id).limits):
                self._released(hosted)

    def release_everywhere(self, group_id: str, member_id: str) -> None:
        """Release what a member has of any partition."""
        names = [tp for group, tp in self._hosted if group == group_id]
        self.release(group_id, member_id, names)

    def forget_group(self, group_id: str) -> None:
        """Drop what has no locks of a group that does not fetch here any more: its offsets may be set anew."""
        for hosted in [hosted for (group, _), hosted in self._hosted.items() if group == group_id]:
            hosted.is_leaving = True
            self._leave(hosted)

    def _leave(self, hosted: HostedSharePartition) -> None:
        if hosted.is_leaving and hosted.is_idle:
            self._drop(hosted, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    async def close(self) -> None:
        """Stop; acknowledgements that are not stored get an error."""
        for hosted in list(self._hosted.values()):
            self._drop(hosted, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Loading.

    async def _load(self, hosted: HostedSharePartition) -> None:
        try:
            stored = await self._states.read(hosted.key, hosted.leader_epoch)
            if stored.start_offset == NO_OFFSET:
                start = self._first_offset(hosted)
                stored = StoredState(stored.state_epoch, start)
                # Otherwise another leader would begin elsewhere, and what was written in between would be lost.
                change = StateChange(stored.state_epoch, hosted.leader_epoch, start, (), delivery_complete_count=0)
                await self._states.write(hosted.key, change)
            hosted.partition = SharePartition(stored, hosted.leader_epoch)
        except ApiError as error:
            self._drop(hosted, ApiError(_client_error(error.code), error.message))
        except Exception as error:
            log.exception("cannot load a share-partition key=%s", hosted.key.text)
            self._drop(hosted, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)))
        finally:
            hosted.loading = None

    def _first_offset(self, hosted: HostedSharePartition) -> int:
        """Return where a new share-partition begins.  Raises ApiError."""
        led, settings = hosted.led, self.settings(hosted.key.group_id)
        led.check_leader()
        end = _upper_bound(led, settings)
        if settings.offset_reset == "earliest":
            return led.log.log_start_offset
        if settings.reset_duration_ms is None:
            return end
        first = led.log.offset_for_timestamp(self._clock.now_ms() - settings.reset_duration_ms, max_offset=end)
        return end if first is None else first.offset

    def _make_room(self) -> None:
        if len(self._hosted) < SHARE_PARTITIONS_MAX:
            return
        idle = next((hosted for hosted in self._hosted.values() if hosted.is_idle), None)
        if idle is None:
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self._drop(idle, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _is_valid(self, hosted: HostedSharePartition) -> bool:
        led = hosted.led
        is_here = self._replicas.partitions.get(led.topic_partition) is led
        return is_here and led.is_leader and led.leader_epoch == hosted.leader_epoch

    def _drop(self, hosted: HostedSharePartition, error: ApiError) -> None:
        """Forget a share-partition; what members acknowledge now gets the error."""
        hosted.error = error
        if self._hosted.get((hosted.key.group_id, hosted.topic_partition)) is hosted:
            del self._hosted[hosted.key.group_id, hosted.topic_partition]
        if hosted.timer is not None:
            hosted.timer.cancel()
            hosted.timer = None
        staged, hosted.staged = hosted.staged, []
        _complete(staged, error.code)
        self._changed(hosted.topic_partition)

    # Writing and locks.

    def _flush(self, hosted: HostedSharePartition) -> None:
        """Write what has changed, unless a write is under way."""
        if hosted.partition is None or hosted.write is not None or hosted.error is not None:
            return
        change = hosted.partition.take_write()
        if change is not None:
            hosted.written, hosted.staged = hosted.staged, []
            hosted.write = self._start(self._write(hosted, hosted.partition, change))

    async def _write(self, hosted: HostedSharePartition, partition: SharePartition, change: StateChange) -> None:
        error: ApiError | None = None
        try:
            await self._states.write(hosted.key, change)
        except ApiError as refusal:
            error = refusal
        except asyncio.CancelledError:
            error = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            raise
        except Exception as failure:
            log.exception("cannot write the state of a share-partition key=%s", hosted.key.text)
            error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(failure))
        finally:
            hosted.write = None
            partition.write_done(is_stored=error is None)
            written, hosted.written = hosted.written, []
            _complete(written, ErrorCode.NONE if error is None else _client_error(error.code))
        if error is not None and error.code in _FENCED:
            log.warning("share-partition is fenced key=%s error=%s", hosted.key.text, error)
            self._drop(hosted, ApiError(_client_error(error.code), error.message))
        elif error is not None:
            log.warning("cannot write the state of a share-partition key=%s error=%s", hosted.key.text, error)
            self._schedule(hosted, within_ms=_WRITE_RETRY_MS)
        else:
            self._released(hosted)

    def _released(self, hosted: HostedSharePartition) -> None:
        self._flush(hosted)
        self._schedule(hosted)
        self._leave(hosted)
        self._changed(hosted.topic_partition)

    def _schedule(self, hosted: HostedSharePartition, within_ms: int | None = None) -> None:
        """Start the timer of the next lock that expires, or of the next attempt to write."""
        if hosted.partition is None or hosted.error is not None:
            return
        now_ms = self._clock.monotonic_ms()
        due = [ms for ms in (hosted.partition.next_deadline_ms(), within_ms and now_ms + within_ms) if ms is not None]
        if not due or (hosted.timer is not None and hosted.timer_due_ms <= min(due)):
            return
        if hosted.timer is not None:
            hosted.timer.cancel()
        hosted.timer_due_ms = min(due)
        hosted.timer = self._timer.schedule(max(hosted.timer_due_ms - now_ms, 1), partial(self._time_is_up, hosted))

    def _time_is_up(self, hosted: HostedSharePartition) -> None:
        hosted.timer = None
        if hosted.partition is None or hosted.error is not None:
            return
        if not self._is_valid(hosted):
            self._drop(hosted, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        limits = self.settings(hosted.key.group_id).limits
        has_released = hosted.partition.expire_locks(limits, self._clock.monotonic_ms())
        self._flush(hosted)
        self._schedule(hosted)
        if has_released:
            self._changed(hosted.topic_partition)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _complete(waiting: Iterable[asyncio.Future[ErrorCode]], error: ErrorCode) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(error)


def _client_error(code: ErrorCode) -> ErrorCode:
    """Return the error for a member.  Kafka: SharePartition.fetchPersisterError."""
    if code in {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH}:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _upper_bound(led: Partition, settings: ShareSettings) -> int:
    return led.last_stable_offset if settings.is_committed_only else led.high_watermark


Batches = list[tuple[LogBatch, tuple[int, int]]]
"""The batches of what was read, and where each begins and ends there."""


def _read(led: Partition, offset: int, bytes_max: int, end: int, settings: ShareSettings) -> tuple[memoryview, Batches]:
    """Return the records from the batch with the offset on, and its whole batches.  Raises ApiError, LogDirFailure."""
    records = led.log.read(offset, bytes_max, max_offset=end, min_one_batch=True)
    with led.log.disk():
        data = memoryview(records.read())
    hidden = _aborted_ranges(led, offset, end) if settings.is_committed_only else {}
    batches: Batches = []
    try:
        for header in iterate_batches(data):
            is_hidden = (
                header.is_transactional
                and not header.is_control
                and any(first <= header.base_offset <= last for first, last in hidden.get(header.producer_id, ()))
            )
            place = header.position, header.end
            batches.append((LogBatch(header.base_offset, header.last_offset, is_hidden), place))
    except CorruptBatch as error:
        if not batches:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, error.reason) from error
    return data, batches


def _aborted_ranges(led: Partition, offset: int, end: int) -> dict[int, list[tuple[int, int]]]:
    ranges: dict[int, list[tuple[int, int]]] = {}
    for aborted in led.log.aborted_transactions(offset, end):
        ranges.setdefault(aborted.producer_id, []).append((aborted.first_offset, aborted.last_offset))
    return ranges


def _part_with(data: memoryview, batches: Batches, first: int, last: int) -> memoryview:
    """Return the batches that have acquired records, and those between them."""
    kept = [place for batch, place in batches if batch.last >= first and batch.first <= last]
    return data[kept[0][0] : kept[-1][1]] if kept else memoryview(b"")

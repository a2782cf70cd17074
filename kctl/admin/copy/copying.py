"""Copies records of one topic to another, which may be in another cluster.

Records are read in chunks, which bounds memory: the next chunk is fetched when the records of the previous one are
stored.  The offsets up to which a partition has been copied are committed for a group in the target cluster, so that a
later run continues there.  In a transaction they are committed together with the records (KIP-98).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kctl.admin.copy.kept_progress import ProgressMark
from kctl.admin.groups.offsets import commit_offsets
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.client.consuming.consumer import Consumer
from kctl.client.consuming.fetching.batches import CHUNKS, FetchLimits
from kctl.client.consuming.groups.metadata import GroupMetadata
from kctl.client.consuming.positions import NO_EPOCH, Position
from kctl.client.producing.producer import Delivery, Producer, ProducerSettings
from kctl.errors import ApiError, KctlError
from kctl.model import TopicPartition
from kctl.system.reference_cycles import copy_of

if TYPE_CHECKING:
    from kctl.admin.copy.groups import CopiedGroups, OffsetTranslation
    from kctl.admin.copy.stretches import OffsetMap
    from kctl.admin.records.selection import RecordFilter
    from kctl.client.cluster import ClusterClient
    from kctl.client.consuming.list_offsets import IsolationLevel
    from kctl.client.producing.partitioners import Partitioner
    from kctl.client.producing.transaction import Transaction
    from kctl.records.header import Record


# Limits a rate of bytes. Pure: callers pass the time and wait.


class Pacer:
    """Spreads bytes over time: at most `bytes_per_s` on average from the start, without saving up unused time."""

    def __init__(self, bytes_per_s: int, now_ms: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_ms = float(now_ms)
        """When the bytes so far have been paid for."""

    def delay_ms(self, size: int, now_ms: int) -> int:
        """Return how long to wait after sending `size` bytes."""
        self._free_ms = max(self._free_ms, now_ms) + size * 1000 / self._bytes_per_s
        return max(0, int(self._free_ms - now_ms))  # rounded down: the rest is paid with the next bytes


CHECKPOINT_MS = 1_000
"""How often progress is committed, and how long a transaction is open."""
FETCH_BYTES_MIN = 64 << 10
AFTER_INTERRUPT_S = 5.0
COMMITTED_AT_ONCE = 200
"""Offsets in one request: with marks of 4 KiB they are less than a message may have (1 MB)."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The source, the target and the selected records of a copy."""

    target: str
    """The topic to write to; "" for the topic of the same name as each one that is read."""
    bounds: Mapping[TopicPartition, tuple[int, int]]
    """Source offsets [start, end)."""
    records: RecordFilter
    records_max: int | None
    keeps_partitions: bool
    """Whether a record goes to the partition with its number; otherwise the hash of its key selects it."""
    bytes_per_s: int | None
    isolation: IsolationLevel
    progress_group: str | None = None
    progress_topic: str = ""
    """The topic whose partitions the committed offsets of the group name; "" for that of each partition."""
    positions: Mapping[TopicPartition, Position] = field(default_factory=dict)
    """Where partitions are continued, with the leader epoch of the last record before."""
    marks: Mapping[str, ProgressMark] = field(default_factory=dict)
    """By source topic, the metadata of the committed offsets of the group; see kctl.admin.copy.kept_progress."""
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offsets of groups before these have no translation, because the records there were not copied by this plan."""


@dataclass(slots=True)
class CopiedPartition:
    """The counts of one source partition."""

    position: int
    """Everything before this source offset has been copied or left out."""
    read: int = 0
    selected: int = 0
    size: int = 0
    """Bytes of keys, values and headers of the selected records."""


@dataclass(slots=True)
class CopyCounts:
    """The counts of a copy."""

    partitions: dict[TopicPartition, CopiedPartition]

    @property
    def selected(self) -> int:
        """Selected records of all partitions."""
        return sum(partition.selected for partition in self.partitions.values())

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Positions of all source partitions."""
        return {tp: partition.position for tp, partition in self.partitions.items()}


class Copier:
    """Runs a plan.  Owner: event loop."""

    def __init__(
        self,
        plan: CopyPlan,
        source: ClusterClient,
        target: ClusterClient | None,
        settings: ProducerSettings,
        *,
        limits: FetchLimits = CHUNKS,
        partitioner: Partitioner | None = None,
        transaction: Transaction | None = None,
        groups: CopiedGroups | None = None,
        offset_maps: Mapping[TopicPartition, OffsetMap] | None = None,
        pacer: Pacer | None = None,
    ) -> None:
        """`target` None: counts the records without writing.  `groups` and `offset_maps` require that partitions are
        kept.

        `offset_maps` get the offsets of what is stored, and become part of the progress.  `pacer` is given by several
        copies that share the rate of their plans.
        """
        self.plan = plan
        self.counts = CopyCounts({tp: CopiedPartition(start) for tp, (start, _) in plan.bounds.items()})
        self._limits = _fetch_limits(limits, plan.bytes_per_s)
        self._groups = groups
        self._offset_maps = offset_maps if offset_maps is not None else {}
        self._followers: Mapping[TopicPartition, OffsetTranslation | OffsetMap] = self._offset_maps
        """What is told which records were sent and stored, by source partition."""
        if groups is not None:
            self._followers = groups.translations
        self._source = source
        self._target = target
        self._transaction = transaction
        self.on_poll: Callable[[], None] = lambda: None
        self._failure: KctlError | None = None
        self._consumer: Consumer | None = None
        self._now_ms = source.transport.monotonic_ms
        self._checkpoint_ms = self._now_ms()
        self._committed: dict[TopicPartition, int] = {}
        self._pacer = pacer
        if pacer is None and plan.bytes_per_s is not None:
            self._pacer = Pacer(plan.bytes_per_s, self._now_ms())
        self._producer = (
            None
            if target is None
            else Producer(target, settings, self._delivered, transaction=transaction, partitioner=partitioner)
        )

    async def run(self) -> None:
        """Copy everything; on an error or interruption, keep what is complete.  Raises KctlError."""
        try:
            await self._commit_progress()  # of the start: without it, what a killed run has written is not trusted
            await self._read()
            await self._checkpoint()
        except BaseException as error:
            await self._stop(error)
            raise

    def continue_with(self, plan: CopyPlan, committed: Mapping[TopicPartition, int]) -> None:
        """Set the bounds of the next `run`, by the same producer: its sequence numbers go on.

        `committed` are the offsets that need no commit before a partition has got further.
        """
        self.plan = plan
        self.counts = CopyCounts({tp: CopiedPartition(start) for tp, (start, _) in plan.bounds.items()})
        self._committed = dict(committed)
        self._consumer = None

    def position(self, tp: TopicPartition) -> Position:
        """Return where a partition of the plan would be continued."""
        return self._commit_of(tp).position._replace(is_of_record=True)

    async def _read(self) -> None:
        positions = self.plan.positions
        starts = {
            tp: positions[tp] if tp in positions and positions[tp].offset == start else start
            for tp, (start, end) in self.plan.bounds.items()
            if start < end
        }
        consumer = Consumer(self._source, starts, limits=self._limits, isolation=self.plan.isolation)
        self._consumer = consumer
        left = self.plan.records_max
        while consumer.positions and left != 0:
            polled = await consumer.poll()
            for tp, records in polled:
                left = await self._copy(tp, records, left)
                if left == 0:
                    break
            if left == 0:
                return
            for tp, position in list(consumer.positions.items()):
                end = self.plan.bounds[tp][1]
                self.counts.partitions[tp].position = min(position, end)
                if position >= end:
                    consumer.drop(tp)
            if self._producer is not None:
                await self._producer.flush()
            self._raise_failure()
            if self._now_ms() - self._checkpoint_ms >= CHECKPOINT_MS:
                await self._checkpoint()
            self.on_poll()

    async def _copy(self, tp: TopicPartition, records: list[Record], left: int | None) -> int | None:
        """Send the selected records; return how many more may be sent."""
        counts, end = self.counts.partitions[tp], self.plan.bounds[tp][1]
        for record in records:
            if record.offset >= end:
                break
            counts.read += 1
            if self.plan.records.matches(tp, record):
                size = size_of(record)
                await self._send(tp, record)
                counts.selected += 1
                counts.size += size
                left = None if left is None else left - 1
                counts.position = record.offset + 1
                await self._pace(size)
            else:
                counts.position = record.offset + 1
            if left == 0:
                break
        return left

    async def _send(self, tp: TopicPartition, record: Record) -> None:
        if self._producer is None:
            return
        if (follower := self._followers.get(tp)) is not None:
            follower.sent(record.offset)
        await self._producer.send(
            self.plan.target or tp.topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=tp.partition if self.plan.keeps_partitions else None,
            timestamp_ms=record.timestamp,
        )

    async def _pace(self, size: int) -> None:
        if self._pacer is None or self._producer is None:
            return
        delay_ms = self._pacer.delay_ms(size, self._now_ms())
        if delay_ms >= CHECKPOINT_MS:
            await self._checkpoint()  # A transaction must not stay open during a long pause.
        if delay_ms:
            await self._source.transport.sleep(delay_ms)

    def _delivered(self, delivery: Delivery) -> None:
        if delivery.error is not None:
            self._failure = self._failure or delivery.error
        elif self._followers:
            source = delivery.tp
            if self.plan.target:
                source = TopicPartition(next(iter(self.plan.bounds)).topic, source.partition)
            if (follower := self._followers.get(source)) is not None:
                follower.delivered(delivery.base_offset, delivery.count)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise copy_of(self._failure)

    async def _checkpoint(self) -> None:
        """Make what has been sent durable, then commit the positions, with the transaction if there is one.

        Offsets of groups come first: a later run does not read what is before the positions.  After a transaction that
        is aborted they are at records that no consumer returns, before those that the later run writes.
        """
        if self._producer is None or self._target is None:
            return
        await self._producer.flush()
        self._raise_failure()
        self._checkpoint_ms = self._now_ms()
        if self._groups is not None:
            await self._groups.commit(self.counts.positions)
        await self._commit_progress()

    async def _commit_progress(self) -> None:
        if self._target is None:
            return
        group = self.plan.progress_group
        moved = {tp: offset for tp, offset in self.counts.positions.items() if self._committed.get(tp) != offset}
        if group is not None and moved:
            tps = sorted(moved)
            for first in range(0, len(tps), COMMITTED_AT_ONCE):
                await self._commit_some(group, tps[first : first + COMMITTED_AT_ONCE])
        if self._transaction is not None:
            await self._transaction.commit()
        self._committed.update(moved)

    async def _commit_some(self, group: str, tps: Collection[TopicPartition]) -> None:
        assert self._target is not None
        committed = {
            TopicPartition(self.plan.progress_topic or tp.topic, tp.partition): self._commit_of(tp) for tp in tps
        }
        if self._transaction is not None:
            await self._transaction.add_offsets(GroupMetadata(group), committed)
            return
        for outcome in (await commit_offsets(self._target, group, committed)).values():
            if not outcome.is_done:
                raise ApiError(outcome.error, f"group '{group}', {outcome.name}: {outcome.message}")

    def _commit_of(self, tp: TopicPartition) -> CommittedOffset:
        """Return the progress of a partition: its offset, the leader epoch of the last record before, and the mark."""
        position = self.plan.positions.get(tp, Position(-1))
        offset = self.counts.partitions[tp].position
        if offset != position.offset:
            position = Position(offset) if self._consumer is None else self._consumer.history.position(tp, offset)
        epoch = position.leader_epoch if position.is_of_record else NO_EPOCH
        offset_map = self._offset_maps.get(tp)
        mark = self.plan.marks.get(tp.topic, ProgressMark())
        return CommittedOffset(offset, epoch, mark.text(() if offset_map is None else offset_map.stretches))

    async def _stop(self, error: BaseException) -> None:
        """After an interruption: completes what was sent, or aborts the transaction, if that is possible quickly."""
        if self._producer is None:
            return
        with contextlib.suppress(TimeoutError, KctlError):
            async with asyncio.timeout(AFTER_INTERRUPT_S):
                if self._transaction is not None:
                    self._producer.abandon()
                    await self._transaction.abort()  # otherwise the coordinator aborts it after its time-out
                elif isinstance(error, asyncio.CancelledError):
                    await self._checkpoint()
        self._producer.abandon()


def size_of(record: Record) -> int:
    """Return the bytes of key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name.encode(errors="surrogateescape")) + len(data or b"") for name, data in record.headers)


def _fetch_limits(limits: FetchLimits, bytes_per_s: int | None) -> FetchLimits:
    """Return smaller fetches at a low rate, so that a chunk is not held long."""
    if bytes_per_s is None:
        return limits
    size = max(FETCH_BYTES_MIN, min(bytes_per_s, limits.max_bytes))
    return replace(limits, max_bytes=size, partition_max_bytes=min(size, limits.partition_max_bytes))

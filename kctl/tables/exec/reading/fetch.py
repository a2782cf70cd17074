"""Fetches the batches of an offset range from the partition leader.

A single background thread owns the connections and fetches the next batches while the caller decodes the previous ones.
Control batches and, with read_committed, aborted transactions are omitted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self
from uuid import UUID

from kctl.client.cluster import ClusterClient
from kctl.client.connections.blocking_transport import run_blocking
from kctl.client.consuming.fetching import FetchedPartition, FetchLimits, fetch_batches, visible_batches
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from kctl.client.consuming.positions import NO_EPOCH
from kctl.client.consuming.positions import Position as History
from kctl.client.metadata import ClusterMetadata
from kctl.client.retrying import LEADER_MOVED, retry
from kctl.errors import ApiError, ErrorCode
from kctl.model import ZERO_UUID, TopicPartition
from kctl.records.batch import iterate_batches
from kctl.records.header import BatchHeader, CorruptBatch
from kctl.records.old_formats.conversion import without_old_messages
from kctl.tables.exec.outcome import CorruptRecords, DataLoss, Unreadable
from kctl.tables.exec.reading.histories import UNKNOWN_HISTORY, affects, find_divergences

FETCH_LIMITS = FetchLimits(max_wait_ms=500, max_bytes=16 << 20, partition_max_bytes=8 << 20)
METADATA_AGE_S = 5.0
"""A topic that was deleted and created again is noticed this long afterwards by readers that begin then."""
RETRIED_ERRORS = LEADER_MOVED | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""A broker without the topic may have old metadata, so the metadata is refreshed."""
UNREADABLE_CODES = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR})
"""What brokers return for offsets that they cannot read from their disks."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets [start, end) of a partition.  All of them were readable when the range was planned."""

    tp: TopicPartition
    topic_id: UUID
    """Zero if the brokers had no topic ids at planning."""
    start: int
    end: int
    isolation: IsolationLevel
    history: History = UNKNOWN_HISTORY
    """Of the log at planning; if it is unknown, the log of the first leader that is found counts."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """One response: `batches` are positions in `data`, only of batches with visible records of the range."""

    data: memoryview
    batches: list[BatchHeader]
    size: int
    """Bytes of complete batches in the response."""
    aborted: list[BatchHeader] = field(default_factory=list)
    """Batches of aborted transactions, which read_committed leaves out."""


class TopicLeaders:
    """Ids and leaders of topics, for the readers of a client, which read one range after the other.

    A range of a topic with a thousand partitions does not need the metadata of all of them again.
    """

    def __init__(self, client: ClusterClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._found: dict[str, tuple[float, ClusterMetadata]] = {}

    async def metadata(self, topic: str) -> ClusterMetadata:
        """Return the metadata, at most METADATA_AGE_S old.  Raises ApiError and ClusterUnreachable."""
        held = self._found.get(topic)
        if held is None or self._clock() - held[0] > METADATA_AGE_S:
            held = self._found[topic] = (self._clock(), await self._client.metadata([topic]))
        return held[1]

    def forget(self, topic: str) -> None:
        """Drop the metadata of a topic, which a response has shown to be old."""
        self._found.pop(topic, None)


class RangeReader:
    """Reads one range, once.  Use as a context manager; iterate over `responses`.  Owner: one task."""

    def __init__(
        self, client: ClusterClient, range_: OffsetRange, *, may_skip: bool, leaders: TopicLeaders | None = None
    ) -> None:
        """`client` uses a blocking transport, exclusively for this reader while it is open.

        `may_skip`: continue at the log start if offsets are missing, and count them in `lost`; else DataLoss.
        """
        self.lost = 0
        self.position = range_.start
        """The offset after the last yielded response."""
        self.on_unreadable: Callable[[Unreadable], None] | None = None
        """Gets the offsets that no response has in whole batches, which are left out; None: CorruptRecords."""
        self._client = client
        self._range = range_
        self._may_skip = may_skip
        self._leaders = leaders or TopicLeaders(client)
        self._leader: int | None = None
        self._history = range_.history
        """What the log of another leader must have; later the last batch that was read, unless it was planned."""
        self._leader_epoch = NO_EPOCH
        """Of the leader from which records are read."""
        self._end = range_.end
        """Earlier than that of the range if the log was truncated and the reader may skip."""
        self._truncation = ""
        """How."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"fetch-{range_.tp}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def responses(self) -> Iterator[Fetched]:
        """Yield all responses in the order of offsets.

        Raises DataLoss, CorruptRecords, ApiError for errors of the leader, and ClusterUnreachable.
        """
        position = self._range.start
        pending = self._thread.submit(run_blocking, self._fetch(position))
        while True:
            try:
                partition, position = pending.result()
                fetched, position = self._select(partition, position)
            except ApiError as error:
                if error.code not in UNREADABLE_CODES or self.on_unreadable is None:
                    raise
                position = self._after_unreadable(position, error.code.description)
                fetched = Fetched(memoryview(b""), [], 0)
            if position >= self._end:
                self.position = max(self.position, self._end)
                yield fetched
                if self._end < self._range.end:
                    raise DataLoss(self._truncation)
                return
            pending = self._thread.submit(run_blocking, self._fetch(position))
            self.position = position
            yield fetched

    def _select(self, partition: FetchedPartition, position: int) -> tuple[Fetched, int]:
        """Return the requested batches, and the offset after the last batch."""
        before = position
        complete_batches: list[BatchHeader] = []
        aborted: list[BatchHeader] = []
        size = 0
        try:
            partition = replace(partition, records=without_old_messages(partition.records))
            for batch, is_visible in visible_batches(partition, self._range.isolation):
                if batch.base_offset >= self._end:
                    position = self._end
                    break
                if batch.last_offset >= self._range.start and not batch.is_control:
                    (complete_batches if is_visible else aborted).append(batch)
                position = batch.next_offset
                size += batch.size
                if self._range.history.leader_epoch == NO_EPOCH:
                    self._history = History(position, batch.leader_epoch, is_of_record=True)
        except CorruptBatch as error:
            if position == before:
                position = self._after_unreadable(position, str(error), error)
        if position == before < self._end:
            position = self._after_unreadable(position, "the response contains no complete batch")
        return Fetched(partition.records, complete_batches, size, aborted), position

    def _after_unreadable(self, position: int, reason: str, cause: Exception | None = None) -> int:
        """Return the first offset after `position` from which records can be read.  Raises CorruptRecords unless it is
        asked for.

        Batches are searched in steps that double and are halved then: the size of an unreadable one is unknown.
        """
        tp = self._range.tp
        if self.on_unreadable is None:
            raise CorruptRecords(f"{tp} near offset {position}: {reason}") from cause
        low, step = position, 1
        first: int | None = None
        while first is None and low < self._end - 1:
            probe = min(low + step, self._end - 1)
            first = self._first_readable(probe)
            low, step = (probe, 2 * step) if first is None else (low, step)
        end = self._end if first is None else min(max(first, low + 1), self._end)
        while first is not None and end - low > 1:
            middle = (low + end) // 2
            earlier = self._first_readable(middle)
            low, end = (middle, end) if earlier is None else (low, max(min(earlier, middle), low + 1))
        self.on_unreadable(Unreadable(tp, position, end, None, reason))
        return end

    def _first_readable(self, offset: int) -> int | None:
        """Return the base offset of the first batch that a fetch from an offset returns; None if it returns no whole
        one.
        """

        async def send_to() -> int | None:
            fetched = await self._request(offset)
            for batch in iterate_batches(without_old_messages(fetched.records)):
                return batch.base_offset if batch.next_offset > offset else None
            return None

        try:
            return self._thread.submit(run_blocking, send_to()).result()
        except (ApiError, CorruptBatch):
            return None

    async def _request(self, position: int) -> FetchedPartition:
        """Return one response of the leader, which may have no records."""
        return await retry(
            partial(self._request_from_leader, position),
            deadline=self._client.deadline(),
            codes=RETRIED_ERRORS,
            forget=self._forget_leader,
        )

    async def _fetch(self, position: int) -> tuple[FetchedPartition, int]:
        """Fetch at least one batch from `position`; return the position too, which changes on data loss."""
        deadline = self._client.deadline()
        while True:
            partition = await self._request(position)
            if position >= self._end:  # another leader has truncated the log
                return partition, self._end
            if partition.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                position = await self._after_loss(position)
                if position == self._range.end:
                    return partition, position
            elif len(partition.records):
                return partition, position
            elif not await deadline.pause():
                await self._require_end(position)
                raise ApiError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"{self._range.tp} gives no records at offset {position}, although it had some up to "
                    f"{self._range.end} at planning; its high watermark is {partition.high_watermark}",
                )

    async def _request_from_leader(self, position: int) -> FetchedPartition:
        tp = self._range.tp
        if self._leader is None:
            self._leader = await self._find_leader()
        connection = await self._client.broker(self._leader)
        (partition,) = await fetch_batches(
            connection,
            {tp: position},
            limits=FETCH_LIMITS,
            isolation=self._range.isolation,
            current_leader_epochs={tp: self._leader_epoch},
        )
        if partition.error not in {ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE}:
            raise ApiError(partition.error, f"{tp}: {partition.error.description}")
        return partition

    async def _find_leader(self) -> int:
        """Node id of the leader.

        Also checks that the topic is still the one that was planned, and that the log of a leader with another epoch
        has the records of the range: then fetches with the epoch of that leader cannot mix two histories.
        """
        tp = self._range.tp
        metadata = await self._leaders.metadata(tp.topic)
        leader, code = metadata.leader_of(tp)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise DataLoss(f"{tp} does not exist any more")
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"{tp}: {code.description}")
        topic_id = metadata.topics[tp.topic].topic_id
        if topic_id != self._range.topic_id and ZERO_UUID not in {topic_id, self._range.topic_id}:
            raise DataLoss(f"topic {tp.topic} was deleted and created again since the export was planned")
        partition = metadata.topics[tp.topic].partition(tp.partition)
        epoch = partition.leader_epoch if partition is not None else NO_EPOCH
        await self._check_history(epoch, metadata)
        self._leader_epoch = epoch
        return leader

    async def _check_history(self, epoch: int, metadata: ClusterMetadata) -> None:
        """Raise DataLoss if the leader's log lacks records that the range had at planning, or that were read."""
        tp, history = self._range.tp, self._history
        found = (await find_divergences(self._client, {tp: history}, {tp: epoch}, known=metadata)).get(tp)
        if isinstance(found, ApiError):
            raise found
        if found is not None and affects(found, self._range.end):
            where = "" if found.end_offset is None else f" at offset {found.end_offset}"
            self._truncation = (
                f"{tp} was truncated{where}, for example by an unclean leader election: its leader does not have the "
                f"records with leader epoch {history.leader_epoch} that it had up to offset {history.offset - 1}"
            )
            if not self._may_skip or found.end_offset is None or found.end_offset <= self._range.start:
                raise DataLoss(self._truncation)
            self._end = min(self._end, found.end_offset)
            self._history = History(self._end, found.leader_epoch, is_of_record=True)

    def _forget_leader(self) -> None:
        self._leader = None
        self._leaders.forget(self._range.tp.topic)

    async def _require_end(self, position: int) -> None:
        """Raise DataLoss if the log ends at the position.

        The high watermark of a fetch does not tell: after an election it may be an older one for some time.
        ListOffsets is an error until it includes all records of earlier leaders (KIP-207).
        """
        tp = self._range.tp
        outcome = (await list_offsets(self._client, {tp: LATEST}))[tp]
        if not isinstance(outcome, ApiError) and outcome.offset <= position:
            raise DataLoss(
                f"{tp} was truncated: it ends at offset {outcome.offset}, and had records up to {self._range.end} at "
                "planning"
            )

    async def _after_loss(self, position: int) -> int:
        """Return the position after OFFSET_OUT_OF_RANGE: the log start, but not beyond the range."""
        tp = self._range.tp
        outcome = (await list_offsets(self._client, {tp: EARLIEST}))[tp]
        if isinstance(outcome, ApiError):
            raise outcome
        if outcome.offset <= position:
            raise DataLoss(f"{tp} was truncated: offset {position}, which it had at planning, is beyond its end")
        text = f"{tp}: offsets {position} to {min(outcome.offset, self._range.end) - 1} are gone"
        if not self._may_skip:
            raise DataLoss(f"{text}, the log starts at {outcome.offset} now")
        resumed = min(outcome.offset, self._range.end)
        self.lost += resumed - position
        return resumed

"""What a consumer fetches next and from which broker, and the batches that wait for the application.  Pure.

    due() -> requests of brokers -> completed() -> next_part() -> the application

One request at a time is open per broker, and partitions do not wait for each other: while the records of one wait here,
those of others are fetched, and of each partition one more response is fetched in advance, as long as all together
have less than `buffered_bytes_max`.  Batches are decoded when the application takes them.  The position of a partition
is the offset after the records that the application has taken; what was fetched beyond it is dropped when the position
is set, the partition is paused, or its leader changes.  Source: Kafka's Fetcher, FetchBuffer and SubscriptionState.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from kctl.client.consuming.fetching.batches import NO_REPLICA, FetchedPartition, FetchLimits, visible_batches
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.consuming.positions import Position
from kctl.client.consuming.read_history import ReadHistory
from kctl.client.metadata import ClusterMetadata
from kctl.client.retrying import LEADER_MOVED
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.records.batch import crc_ok, end_of_batches
from kctl.records.header import BatchHeader, CorruptBatch

R = TypeVar("R")

Decode = Callable[[TopicPartition, memoryview, BatchHeader], Iterator[tuple[list[R], int]]]
"""The records of a batch, in lists with the offset after each.  Raises CorruptBatch."""

BUFFERED_BYTES_MAX = 64 << 20
CHUNKS_PER_PARTITION = 2
"""Responses that wait of one partition: the one that the application reads, and the next one."""
PARTIAL_WAIT_MS = 20
"""`max_wait_ms` of a request that leaves out partitions because their records wait: these are requested soon after."""
RETRY_MS = 100
"""When a partition is fetched again after an error of a broker."""
GONE_RETRY_MS = 1_000
"""When a partition that the broker does not know is fetched again."""
GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})
"""A topic that was deleted, or that a broker does not know yet."""


class Part(Generic[R]):
    """Records of one batch for the application, which advances `taken` and `processed`, in any thread."""

    __slots__ = ("end", "is_void", "processed", "records", "start", "taken", "tp")

    def __init__(self, tp: TopicPartition, records: list[R], offsets: tuple[int, int]) -> None:
        """`offsets` are the position before the records and the one after the batch."""
        self.tp = tp
        self.records = records
        self.start, self.end = offsets
        self.taken = 0
        """How many records the application has received."""
        self.processed = 0
        """How many of them it has processed."""
        self.is_void = False
        """Whether the records must not be returned any more: the partition was lost, or its position was set."""

    def offset_at(self, count: int) -> int:
        """Return the position after so many records."""
        if count >= len(self.records):
            return self.end
        offset: int = self.records[count].offset if count else self.start  # type: ignore[attr-defined]
        return offset


class Request(NamedTuple):
    """A Fetch request for one broker."""

    offsets: dict[TopicPartition, int]
    limits: FetchLimits
    metadata: ClusterMetadata
    """By which the leaders were found."""
    rounds: dict[TopicPartition, int]
    """Identifies the positions: the response counts only for those that were not set in the meantime."""


class Completed(NamedTuple):
    """What a response requires."""

    is_stale: bool = False
    """Whether leaders have to be looked up."""
    outside: tuple[TopicPartition, ...] = ()
    """Partitions whose position is outside the log."""
    gone: tuple[TopicPartition, ...] = ()
    """Partitions that the broker does not know."""


@dataclass(slots=True)
class Counts:
    """Totals since the consumer was created."""

    requests: int = 0
    bytes: int = 0
    records: int = 0
    errors: int = 0


@dataclass(slots=True, eq=False)
class _Chunk(Generic[R]):
    """The records of one response."""

    tp: TopicPartition
    size: int
    lists: Iterator[tuple[list[R], int, BatchHeader]]
    """With the offset after each, and the batch."""


@dataclass(slots=True, eq=False)
class _Partition(Generic[R]):
    position: int
    """After the last record that was taken, without the part that the application reads."""
    fetch_offset: int
    round: int
    chunks: deque[_Chunk[R]] = field(default_factory=deque)
    is_requested: bool = False
    is_checked: bool = False
    """Whether the history before the position was compared with the log of the leader."""
    is_held: bool = False
    """Whether a check or a reset is in progress."""
    is_damaged: bool = False
    """Whether a chunk ends with damage, which `next_part` reports: nothing is fetched after it."""
    retry_ms: int = 0
    """Not fetched before this time."""
    near: tuple[int, int] | None = None
    """The preferred read replica (KIP-392), and the time (ms) until which it is used."""
    end: int = -1
    """The offset after the last visible record, as of the last response; -1 before it."""
    problem: KctlError | None = None
    """Why the partition is not fetched, until its position is set."""


class Fetcher(Generic[R]):
    """The partitions of a consumer.  Owner: event loop."""

    def __init__(
        self,
        decode: Decode[R],
        *,
        limits: FetchLimits,
        isolation: IsolationLevel,
        buffered_bytes_max: int = BUFFERED_BYTES_MAX,
        near_ms: int = 300_000,
    ) -> None:
        """`near_ms`: how long a preferred read replica is used (metadata.max.age.ms)."""
        self.history = ReadHistory()
        self.paused: set[TopicPartition] = set()
        self.withheld: frozenset[TopicPartition] = frozenset()
        """Partitions that are being revoked: their records are not returned."""
        self.counts = Counts()
        self._decode = decode
        self._limits = limits
        self._isolation = isolation
        self._buffered_bytes_max = buffered_bytes_max
        self._near_ms = near_ms
        self._partitions: dict[TopicPartition, _Partition[R]] = {}
        self._arrived: deque[TopicPartition] = deque()
        """Partitions with chunks, in the order of arrival."""
        self._part: Part[R] | None = None
        self._rounds = 0
        self._busy: dict[int, int] = {}
        """Brokers with an open request, and the bytes reserved for its response."""
        self.buffered_bytes = 0

    # Partitions and positions.

    def __contains__(self, tp: object) -> bool:
        return tp in self._partitions

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions that are read."""
        return self._partitions.keys()

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset after the records that the application has received, of each partition."""
        positions = {tp: partition.position for tp, partition in self._partitions.items()}
        if (part := self._part) is not None:
            positions[part.tp] = part.offset_at(part.taken)
        return positions

    @property
    def processed(self) -> dict[TopicPartition, int]:
        """The position after the processed records of the part that the application reads, if there are any."""
        part = self._part
        return {part.tp: part.offset_at(part.processed)} if part is not None and part.processed else {}

    @property
    def lags(self) -> dict[TopicPartition, int]:
        """The records after each position, as of the last response; without partitions that have none."""
        positions = self.positions
        return {
            tp: max(0, partition.end - positions[tp])
            for tp, partition in self._partitions.items()
            if partition.end >= 0
        }

    def set(self, positions: Mapping[TopicPartition, int | Position]) -> None:
        """Add partitions or set their positions; with a Position, the history before it is checked."""
        for tp, position in positions.items():
            self._void(tp)
            if isinstance(position, Position):
                self.history.begin(tp, position)
            offset = position.offset if isinstance(position, Position) else position
            before = self._partitions.get(tp)
            self._rounds += 1
            self._partitions[tp] = _Partition(offset, offset, self._rounds)
            if before is not None:
                self._free(before)
                self._partitions[tp].near = before.near

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions and drop their records."""
        for tp in partitions:
            self._void(tp)
            if (partition := self._partitions.pop(tp, None)) is not None:
                self._free(partition)
            self.paused.discard(tp)

    def drop_fetched(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what was fetched beyond the positions; it is fetched again."""
        positions = self.positions
        for tp in partitions:
            if (partition := self._partitions.get(tp)) is not None:
                self._void(tp)
                self._free(partition)
                self._rounds += 1
                partition.round = self._rounds
                partition.position = partition.fetch_offset = positions[tp]
                partition.is_requested = partition.is_damaged = False

    # Checks and problems.

    def forget_checks(self, metadata: ClusterMetadata) -> None:
        """After a look-up: positions whose leader is another one than at the last check are checked again."""
        due = self.history.to_check(metadata, self.positions)
        for tp in due:
            if (partition := self._partitions[tp]).is_checked:
                partition.is_checked = False
                self.drop_fetched([tp])

    def to_check(self, metadata: ClusterMetadata) -> dict[TopicPartition, Position]:
        """Return the positions to compare with the logs of their leaders, which are held until `release`."""
        unchecked = {
            tp: partition.position
            for tp, partition in self._partitions.items()
            if not partition.is_checked and not partition.is_held and partition.problem is None
        }
        if not unchecked:
            return {}
        due = self.history.to_check(metadata, unchecked)
        for tp in unchecked.keys() - due.keys():
            partition = self._partitions[tp]
            partition.is_checked = metadata.leader_of(tp)[1] is ErrorCode.NONE
        for tp in due:
            self._partitions[tp].is_held = True
        return due

    def hold(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Hold these positions, and return those that were not held yet: they are not fetched until `release` or
        `set`.
        """
        held = [tp for tp in partitions if tp in self._partitions and not self._partitions[tp].is_held]
        for tp in held:
            self._partitions[tp].is_held = True
        return held

    def release(self, tp: TopicPartition, *, is_checked: bool, retry_ms: int = 0) -> None:
        """End a check or a reset of a position that is still the same."""
        if (partition := self._partitions.get(tp)) is not None and partition.is_held:
            partition.is_held, partition.is_checked, partition.retry_ms = False, is_checked, retry_ms

    def round_of(self, tp: TopicPartition) -> int:
        """Return a number that changes when the position is set; -1 for a partition that is not read."""
        partition = self._partitions.get(tp)
        return -1 if partition is None else partition.round

    def fail(self, tp: TopicPartition, error: KctlError) -> None:
        """Stop fetching the partition until its position is set."""
        if (partition := self._partitions.get(tp)) is not None:
            partition.problem, partition.is_held = error, False

    @property
    def problems(self) -> dict[TopicPartition, KctlError]:
        """The partitions that are not fetched, and why, of those without records that wait."""
        return {
            tp: partition.problem
            for tp, partition in self._partitions.items()
            if partition.problem is not None and not partition.chunks and tp not in self.paused
        }

    # Requests.

    def due(self, metadata: ClusterMetadata, now_ms: int) -> tuple[dict[int, Request], bool]:
        """Return the requests to send now, by broker, and whether a partition has no leader."""
        by_broker: dict[int, dict[TopicPartition, int]] = {}
        partial: set[int] = set()
        is_leaderless = False
        for tp, partition in self._partitions.items():
            if partition.problem is not None or tp in self.paused:
                continue
            leader, code = metadata.leader_of(tp)
            if code is not ErrorCode.NONE:
                is_leaderless = is_leaderless or code in LEADER_MOVED
                continue
            broker = self._near_broker(partition, metadata, now_ms)
            broker = leader if broker is None else broker
            if broker in self._busy:
                continue
            is_waiting = partition.is_requested or partition.is_held or partition.is_damaged or not partition.is_checked
            if is_waiting or now_ms < partition.retry_ms:
                continue
            if len(partition.chunks) >= CHUNKS_PER_PARTITION:
                partial.add(broker)
                continue
            by_broker.setdefault(broker, {})[tp] = partition.fetch_offset
        requests: dict[int, Request] = {}
        room = self._buffered_bytes_max - self.buffered_bytes - sum(self._busy.values())
        for broker, offsets in sorted(by_broker.items()):
            if room <= 0:
                break
            reserved = min(room, self._limits.max_bytes, len(offsets) * self._limits.partition_max_bytes)
            room -= reserved
            requests[broker] = self._begin(metadata, broker, offsets, reserved, is_partial=broker in partial)
        return requests, is_leaderless

    def next_retry_ms(self, now_ms: int) -> int | None:
        """When the next partition may be fetched again; None if none waits for a time."""
        times = [partition.retry_ms for partition in self._partitions.values() if partition.retry_ms > now_ms]
        return min(times, default=None)

    def completed(self, broker: int, request: Request, fetched: Iterable[FetchedPartition], now_ms: int) -> Completed:
        """Note that the response of a broker has arrived."""
        self._end(broker, request)
        self.counts.requests += 1
        is_stale = False
        outside: list[TopicPartition] = []
        gone: list[TopicPartition] = []
        for found in fetched:
            partition = self._partitions.get(found.tp)
            if partition is None or request.rounds.get(found.tp) != partition.round or found.tp in self.paused:
                continue
            if found.error is ErrorCode.NONE:
                partition.retry_ms = 0
                reads_committed = self._isolation is IsolationLevel.READ_COMMITTED
                partition.end = found.last_stable_offset if reads_committed else found.high_watermark
                self._add(partition, found, now_ms)
                if not partition.chunks and partition.position == partition.fetch_offset:
                    self.history.note_reached(request.metadata, found.tp, partition.position)
                continue
            self.counts.errors += 1
            partition.retry_ms = now_ms + RETRY_MS
            if partition.near is not None:
                partition.near = None  # The next request goes to the leader.
            elif found.error in GONE:
                partition.retry_ms = now_ms + GONE_RETRY_MS
                gone.append(found.tp)
            elif found.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                if partition.chunks or (self._part is not None and self._part.tp == found.tp):
                    continue  # The records before the offset are read first.
                outside.append(found.tp)
            elif found.error.retriable:
                is_stale = True
            else:
                text = f"{found.tp} at offset {partition.fetch_offset}: {found.error.description}"
                partition.problem = ApiError(found.error, text)
        return Completed(is_stale or bool(gone), tuple(outside), tuple(gone))

    def failed(self, broker: int, request: Request, retry_ms: int) -> None:
        """Note that the request got no response; its partitions are fetched again at `retry_ms`."""
        self._end(broker, request)
        self.counts.errors += 1
        for tp, number in request.rounds.items():
            partition = self._partitions.get(tp)
            if partition is not None and partition.round == number:
                partition.retry_ms, partition.near = retry_ms, None

    # Records.

    @property
    def has_records(self) -> bool:
        """Whether `next_part` may return something."""
        part = self._part
        if part is not None and part.taken < len(part.records) and part.tp not in self.withheld:
            return True
        if self.withheld or self.paused:
            return any(tp not in self.withheld for tp in self._arrived)
        return bool(self._arrived)

    def next_part(self) -> Part[R] | None:
        """Return the part that the application reads, or the next one; None if nothing waits.  Raises CorruptBatch."""
        part = self._part
        if part is not None:
            if part.taken < len(part.records) and part.tp not in self.withheld:
                return part
            if part.taken < len(part.records):
                self.drop_fetched([part.tp])
            else:
                self._partitions[part.tp].position = part.end
                self._part = None
        for _ in range(len(self._arrived)):
            tp = self._arrived[0]
            if tp in self.withheld:
                self._arrived.rotate(-1)
                continue
            if (found := self._next_of(tp, self._partitions[tp])) is not None:
                self._part = found
                return found
        return None

    def finish_part(self) -> None:
        """Note that the application has processed all records that it has taken."""
        if (part := self._part) is not None:
            part.processed = part.taken

    def _next_of(self, tp: TopicPartition, partition: _Partition[R]) -> Part[R] | None:
        """Return the next records of the first chunk of a partition; the chunk is removed when it has no more."""
        chunk = partition.chunks[0]
        try:
            for decoded, end, header in chunk.lists:
                start = partition.position
                if end <= start:
                    continue
                records = decoded
                if decoded and decoded[0].offset < start:  # type: ignore[attr-defined]
                    records = [record for record in decoded if record.offset >= start]  # type: ignore[attr-defined]
                epochs = [(max(start, header.base_offset), header.leader_epoch)]
                self.history.note_batches(tp, start, epochs, end)
                self.counts.records += len(records)
                if records:
                    return Part(tp, records, (start, end))
                partition.position = end
        except CorruptBatch as damage:
            text = f"{tp} at offset {partition.position}: {damage.reason}"
            partition.problem = CorruptBatch(damage.position, text)
            self._free(partition)
            return None
        partition.chunks.popleft()
        self._arrived.remove(tp)
        self.buffered_bytes -= chunk.size
        return None

    def _add(self, partition: _Partition[R], found: FetchedPartition, now_ms: int) -> None:
        if found.preferred_read_replica != NO_REPLICA:
            partition.near = (found.preferred_read_replica, now_ms + self._near_ms)
            return
        try:
            end = end_of_batches(found.records, partition.fetch_offset)
        except CorruptBatch:
            end = partition.fetch_offset
            partition.is_damaged = True
        if len(found.records) == 0:
            return
        if end <= partition.fetch_offset and not partition.is_damaged:
            return  # Not one complete batch.
        chunk = _Chunk(found.tp, len(found.records), self._lists(found, partition.fetch_offset))
        partition.chunks.append(chunk)
        partition.fetch_offset = end
        self._arrived.append(found.tp)
        self.buffered_bytes += chunk.size
        self.counts.bytes += chunk.size

    def _lists(self, found: FetchedPartition, start: int) -> Iterator[tuple[list[R], int, BatchHeader]]:
        """Yield the records of the batches from an offset on, decoded as they are taken.  Raises CorruptBatch."""
        for header, is_visible in visible_batches(found, self._isolation):
            if header.next_offset <= start:
                continue
            if not crc_ok(found.records, header):
                raise CorruptBatch(header.position, "wrong checksum")
            if is_visible:
                for records, end in self._decode(found.tp, found.records, header):
                    yield records, end, header
            yield [], header.next_offset, header

    def _begin(
        self,
        metadata: ClusterMetadata,
        broker: int,
        offsets: dict[TopicPartition, int],
        reserved: int,
        *,
        is_partial: bool,
    ) -> Request:
        limits = self._limits
        self._busy[broker] = reserved
        for tp in offsets:
            self._partitions[tp].is_requested = True
        wait_ms = min(limits.max_wait_ms, PARTIAL_WAIT_MS) if is_partial else limits.max_wait_ms
        return Request(
            offsets,
            FetchLimits(wait_ms, limits.min_bytes, reserved, limits.partition_max_bytes),
            metadata,
            {tp: self._partitions[tp].round for tp in offsets},
        )

    def _end(self, broker: int, request: Request) -> None:
        self._busy.pop(broker, None)
        for tp, number in request.rounds.items():
            partition = self._partitions.get(tp)
            if partition is not None and partition.round == number:
                partition.is_requested = False

    def _near_broker(self, partition: _Partition[R], metadata: ClusterMetadata, now_ms: int) -> int | None:
        if partition.near is None:
            return None
        broker, until_ms = partition.near
        if broker in metadata.brokers and now_ms < until_ms:
            return broker
        partition.near = None
        return None

    def _void(self, tp: TopicPartition) -> None:
        """Give the application no more of the part that it reads, if it is of this partition."""
        part = self._part
        if part is not None and part.tp == tp:
            self._partitions[tp].position = part.offset_at(part.taken)
            part.is_void = True
            self._part = None

    def _free(self, partition: _Partition[R]) -> None:
        """Drop the chunks of a partition."""
        if partition.chunks:
            tp = partition.chunks[0].tp
            self._arrived = deque(other for other in self._arrived if other != tp)
            self.buffered_bytes -= sum(chunk.size for chunk in partition.chunks)
            partition.chunks.clear()

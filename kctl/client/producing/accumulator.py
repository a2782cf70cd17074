"""Which batches are sent when: full or late ones, in order, in the sequence that the brokers expect.  Pure.

A batch is closed when it reaches `batch_bytes` or `batch_records`, `linger_ms` after its first record, when a flush
waits for it, and when the buffer is full.  Partitions are independent of each other.

Order.  Without idempotence one batch of a partition is in flight.  With it, up to `in_flight_max` are, and the rules
are those of Kafka's TransactionManager and RecordAccumulator: a batch gets its sequence number when it is first sent
and keeps it; if one fails, the later ones are refused with OUT_OF_ORDER_SEQUENCE_NUMBER and wait until it has been sent
again; they are then sent one after the other.  After a batch that has failed for good, the epoch of the producer is
raised and the sequence of its partition begins at 0 (KIP-360), in a transaction by its coordinator after the abort.

The owner holds a lock around each call, because several threads may append.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from typing import Any

from kctl.client.producing.batches import Batch, FlushProgress, after, size_of
from kctl.client.retrying import COORDINATOR_MOVED, LEADER_MOVED
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.records.build import RecordFields
from kctl.records.header import Record

NOT_IDEMPOTENT = ProducerIdAndEpoch(-1, -1)
EPOCH_MAX = 32_767
RETRIED = (
    frozenset(
        {
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        }
    )
    | LEADER_MOVED
    | COORDINATOR_MOVED
)
"""Errors after which the same batch is sent again."""
_NEEDS_NEW_EPOCH = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class Decision(enum.Enum):
    """What becomes of a batch after an error."""

    RETRY = enum.auto()
    SPLIT = enum.auto()
    FAIL = enum.auto()


@dataclass(frozen=True, slots=True)
class Limits:
    """When batches are closed, and how often and how long they are sent."""

    linger_ms: int
    batch_bytes: int
    batch_records: int
    buffered_records_max: int
    buffered_bytes_max: int
    delivery_timeout_ms: int | None
    """From the first record; None: `attempt_timeout_ms` from the time when the batch is the first of its partition."""
    attempt_timeout_ms: int
    retries: int | None
    in_flight_max: int
    request_bytes_max: int


@dataclass(slots=True)
class PartitionQueue:
    """The batches of one partition, in order: in flight, closed, and the open one."""

    tp: TopicPartition
    open: Batch | None = None
    closed: deque[Batch] = field(default_factory=deque)
    in_flight: list[Batch] = field(default_factory=list)
    producer: ProducerIdAndEpoch = NOT_IDEMPOTENT
    next_sequence: int = 0
    next_acknowledged: int = 0
    """The sequence number after the last record that was acknowledged."""
    next_number: int = 0
    is_unresolved: bool = False
    """Whether a batch has timed out that may have been written."""

    def batches(self) -> Iterator[Batch]:
        """Yield the batches without a result."""
        yield from self.in_flight
        yield from self.closed
        if self.open is not None:
            yield self.open

    def requeue(self, batch: Batch) -> None:
        """Put a batch back in its order."""
        self.closed.insert(bisect_left(self.closed, batch.number, key=lambda waiting: waiting.number), batch)


@dataclass(slots=True)
class Plan:
    """What is to be done now."""

    requests: list[tuple[int, list[tuple[PartitionQueue, Batch]]]] = field(default_factory=list)
    """The batches of each Produce request, with the node id of the leader, in the order of the requests."""
    expired: list[tuple[PartitionQueue, Batch]] = field(default_factory=list)
    """Batches that have timed out and are removed."""
    unconnected: set[int] = field(default_factory=set)
    """Leaders that batches wait for."""
    leaderless: set[str] = field(default_factory=set)
    """Topics of partitions whose leader is not known."""
    unadded: list[TopicPartition] = field(default_factory=list)
    """Partitions that have to be added to the transaction before their batches are sent."""
    needs_producer_id: bool = False
    next_ms: int | None = None
    """When to look again, if nothing happens before."""

    def look_again(self, at_ms: int) -> None:
        """Not later than at this time."""
        if self.next_ms is None or at_ms < self.next_ms:
            self.next_ms = at_ms


class Accumulator:
    """The batches of all partitions."""

    def __init__(self, limits: Limits, producer: ProducerIdAndEpoch | None) -> None:
        """Prepare the accumulator; `producer` None: idempotent, and the id is not known yet."""
        self.limits = limits
        self.producer = producer
        self.batch_bytes = limits.batch_bytes
        """Smaller than in the limits after a topic has refused a batch."""
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.has_room = True
        self.has_full_batches = False
        """Whether a batch was filled since the last step."""
        self.is_transactional = False
        self.added: set[TopicPartition] = set()
        """The partitions of the transaction."""
        self.buffered_records = 0
        self.buffered_bytes = 0
        self._active: dict[tuple[str, int], PartitionQueue] = {}
        """Queues with batches."""
        self._is_idempotent = producer != NOT_IDEMPOTENT
        self.on_batch_closed: Callable[[str, int, int], None] = lambda *_: None
        """Called with topic, partition and size in bytes."""

    def append(
        self, tp: tuple[str, int], record: RecordFields, size: int, handle: Any, now_ms: Callable[[], int]
    ) -> bool:
        """Add a record of this size; return whether `step` is to be called."""
        queue = self.queues.get(tp)
        batch = None if queue is None else queue.open
        is_due = False
        if batch is None or batch.size + size > self.batch_bytes:
            batch = self.open_batch(tp, now_ms())
            is_due = True
        records = batch.records
        if handle is not None:
            if len(batch.handles) != len(records):
                batch.align_handles()
            batch.handles.append(handle)
        records.append(record)
        batch.size += size
        self.buffered_records += 1
        self.buffered_bytes += size
        limits = self.limits
        if (
            batch.size >= self.batch_bytes
            or self.buffered_bytes >= limits.buffered_bytes_max
            or self.buffered_records >= limits.buffered_records_max
            or len(records) >= limits.batch_records
        ):
            self._close_full(tp)
            return True
        return is_due

    def append_run(
        self, tp: tuple[str, int], shared: Record, values: Sequence[bytes | None], now_ms: Callable[[], int]
    ) -> tuple[int, bool]:
        """Add copies of a record with these values, as many as one batch has room for.

        Return how many, and whether `step` is to be called.
        """
        overhead = size_of(shared)
        first_size = overhead + len(values[0] or b"")
        queue = self.queues.get(tp)
        batch = None if queue is None else queue.open
        is_due = False
        if batch is None or batch.size + first_size > self.batch_bytes:
            batch = self.open_batch(tp, now_ms())
            is_due = True
        count_max = self.limits.batch_records - len(batch.records)
        sizes = list(accumulate(overhead + len(value or b"") for value in values[:count_max]))
        count = max(1, bisect_right(sizes, self.batch_bytes - batch.size))
        columns = (repeat(0), repeat(shared.timestamp), repeat(shared.key), values[:count], repeat(shared.headers))
        batch.records += zip(*columns, strict=False)
        batch.size += sizes[count - 1]
        self.buffer(count, sizes[count - 1])
        if not self.has_room or batch.size >= self.batch_bytes or len(batch.records) >= self.limits.batch_records:
            self._close_full(tp)
            is_due = True
        return count, is_due

    def open_batch(self, tp: tuple[str, int], now_ms: int) -> Batch:
        """Open a new batch, after the open one, if there is one, is closed."""
        queue = self.queues.get(tp)
        if queue is None:
            queue = self.queues[tp] = PartitionQueue(TopicPartition(*tp))
        if queue.open is not None:
            self.close_batch(tp)
        batch = queue.open = Batch(queue.next_number, now_ms)
        queue.next_number += 1
        self._active[tp] = queue
        return batch

    def close_batch(self, tp: tuple[str, int]) -> None:
        """Let the open batch of a partition be sent."""
        queue = self.queues[tp]
        batch = queue.open
        if batch is not None:
            queue.closed.append(batch)
            queue.open = None
            self.on_batch_closed(*queue.tp, batch.size)

    def _close_full(self, tp: tuple[str, int]) -> None:
        """Close the batch: it or the buffer is full."""
        self.has_full_batches = True
        self.buffer(0, 0)
        self.close_batch(tp)

    def buffer(self, record_count: int, size: int) -> None:
        """Count records that were added, or with negative numbers those that are done."""
        self.buffered_records += record_count
        self.buffered_bytes += size
        limits = self.limits
        self.has_room = (
            self.buffered_records < limits.buffered_records_max and self.buffered_bytes < limits.buffered_bytes_max
        )

    def waiting(self, topic: str, partition_count: int) -> list[int]:
        """Return how many batches of each partition have no result."""
        counts = [0] * partition_count
        for number in range(partition_count):
            if (queue := self._active.get((topic, number))) is not None:
                counts[number] = len(queue.closed) + len(queue.in_flight)
        return counts

    def close_all(self, flush: FlushProgress | None = None) -> None:
        """Let all batches be sent; `flush` counts those without a result."""
        for tp, queue in self._active.items():
            self.close_batch(tp)
            if flush is not None:
                for batch in queue.batches():
                    flush.left += 1
                    batch.flushes.append(flush)

    def take_unsent(
        self, selects: Callable[[TopicPartition], bool] = lambda _: True, *, is_removed: bool = True
    ) -> list[tuple[PartitionQueue, Batch]]:
        """Return the batches of some partitions that are not in flight; remove them unless `is_removed` is False."""
        taken = []
        for tp, queue in list(self._active.items()):
            if not selects(queue.tp):
                continue
            if is_removed:
                self.close_batch(tp)
            taken += [(queue, batch) for batch in queue.closed]
            if is_removed:
                queue.closed.clear()
        for queue, batch in taken if is_removed else ():
            if batch.base_sequence >= 0 and not self.is_transactional:
                queue.is_unresolved = True
            self._remove(queue, batch)
        return taken

    def step(self, now_ms: int, leader_of: Callable[[TopicPartition], int], rooms: Callable[[int], int]) -> Plan:
        """Return what is to be done now.

        `leader_of` returns the node id of a leader or -1, and `rooms` how many further requests may be sent to a node,
        or -1 for one without a connection.
        """
        plan = Plan()
        self.has_full_batches = False
        left: dict[int, int] = {}
        for tp, queue in list(self._active.items()):
            self._close_if_due(tp, queue, now_ms, plan)
            self._expire(queue, now_ms, plan)
            self._resolve(queue)
            if not queue.closed and not queue.in_flight and queue.open is None:
                del self._active[tp]
        sizes: dict[int, int] = {}
        for _ in range(self.limits.in_flight_max):
            requests: dict[int, list[tuple[PartitionQueue, Batch]]] = {}
            sizes.clear()
            for queue in self._active.values():
                batch = self._sendable(queue, now_ms, plan)
                if batch is None:
                    continue
                leader = leader_of(queue.tp)
                if leader < 0:
                    plan.leaderless.add(queue.tp.topic)
                    continue
                if leader not in left:
                    left[leader] = rooms(leader)
                if left[leader] < 0:
                    plan.unconnected.add(leader)
                if left[leader] <= 0:
                    continue
                size = sizes.get(leader, 0)
                if size and size + batch.size > self.limits.request_bytes_max:
                    continue  # in the next request
                sizes[leader] = size + batch.size
                requests.setdefault(leader, []).append((queue, batch))
            if not requests:
                break
            for leader, batches in requests.items():
                left[leader] -= 1
                for queue, batch in batches:
                    self._take(queue, batch)
                    self._active[queue.tp] = self._active.pop(queue.tp)  # the others are first in the next request
            plan.requests += requests.items()
        return plan

    def acknowledged(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Note that a batch was written; return False if it has a result already."""
        if batch.is_done:
            return False
        queue.in_flight.remove(batch)
        self._remove(queue, batch)
        if batch.base_sequence >= 0 and batch.producer == queue.producer:
            queue.next_acknowledged = after(batch.base_sequence, len(batch.records))
        return True

    def refused(self, queue: PartitionQueue, batch: Batch, error: KctlError, retry_ms: int) -> Decision | None:
        """Note that a batch was not written, or that this is not known; return None if it has a result already."""
        if batch.is_done:
            return None
        queue.in_flight.remove(batch)
        code = error.code if isinstance(error, ApiError) else None
        if code is ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
            # The topic's max.message.bytes is smaller than the batch.  As in Java, its halves are sent instead, with
            # the sequence numbers of the batch, of which the broker has stored nothing.
            for half in reversed(batch.halves()):
                queue.requeue(half)
            batch.is_done = True
            self.batch_bytes = min(self.batch_bytes, batch.size // 2)
            return Decision.SPLIT
        if self._is_repeated(queue, batch, code):
            batch.last_error = error
            batch.retry_ms = retry_ms
            is_late = code in _NEEDS_NEW_EPOCH and not self._waits_for_earlier(queue, batch, code)
            queue.requeue(batch)
            batch.has_been_reset = False
            if is_late:
                self._raise_epoch(queue)
            return Decision.RETRY
        self._remove(queue, batch)
        if batch.base_sequence >= 0 and not self.is_transactional and batch.producer == queue.producer:
            if code in RETRIED:  # It may have been written, so the next sequence number is not known.
                queue.is_unresolved = True
            else:
                self._raise_epoch(queue)
        return Decision.FAIL

    def begin_transaction(self, producer: ProducerIdAndEpoch, added: set[TopicPartition]) -> None:
        """Begin a transaction, to which the batches from now on belong; `added` will have its partitions."""
        self.producer = producer
        self.is_transactional = True
        self.added = added
        for queue in self.queues.values():
            queue.is_unresolved = False

    def _is_repeated(self, queue: PartitionQueue, batch: Batch, code: ErrorCode | None) -> bool:
        """Sender.canRetry and TransactionManager.canRetry of Kafka's producer."""
        if self.limits.retries is not None and batch.attempts > self.limits.retries:
            return False
        if code in _NEEDS_NEW_EPOCH and batch.base_sequence >= 0:
            return not self.is_transactional or self._waits_for_earlier(queue, batch, code)
        return code in RETRIED

    def _waits_for_earlier(self, queue: PartitionQueue, batch: Batch, code: ErrorCode | None) -> bool:
        """Return whether the batch was refused because one before it has failed, which is sent again first."""
        if code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or queue.is_unresolved:
            return False
        return batch.has_been_reset or batch.base_sequence != queue.next_acknowledged

    def _raise_epoch(self, queue: PartitionQueue) -> None:
        """Begin the sequence of the partition again; others change to the new epoch when nothing is in flight."""
        used = self.producer
        if used is not None and queue.producer == used:
            self.producer = None if used.epoch >= EPOCH_MAX else ProducerIdAndEpoch(used.producer_id, used.epoch + 1)
        if self.producer is None:
            queue.producer = NOT_IDEMPOTENT
            queue.is_unresolved = False
            for batch in queue.batches():
                batch.base_sequence, batch.producer = -1, None
            return
        queue.producer = self.producer
        queue.next_sequence = queue.next_acknowledged = 0
        queue.is_unresolved = False
        for batch in queue.batches():
            if batch.base_sequence >= 0:
                batch.producer, batch.base_sequence = queue.producer, queue.next_sequence
                batch.has_been_reset = True
                queue.next_sequence = after(queue.next_sequence, len(batch.records))

    def _close_if_due(self, tp: tuple[str, int], queue: PartitionQueue, now_ms: int, plan: Plan) -> None:
        batch = queue.open
        if batch is None:
            return
        due_ms = batch.opened_ms + self.limits.linger_ms
        if now_ms >= due_ms or not self.has_room:
            self.close_batch(tp)
        else:
            plan.look_again(due_ms)

    def _expire(self, queue: PartitionQueue, now_ms: int, plan: Plan) -> None:
        """Remove the batches whose time is over, also those in flight.

        Without a delivery timeout the first batch has the time of all that wait behind it: if each began to wait when
        the one before has failed, the last of many would fail after many timeouts.
        """
        timeout_ms = self.limits.delivery_timeout_ms
        late = []
        is_first = True
        for batch in queue.batches():
            if batch.deadline_ms is None:
                if timeout_ms is not None:
                    batch.deadline_ms = batch.opened_ms + timeout_ms
                elif batch is not queue.open and is_first:
                    batch.deadline_ms = now_ms + self.limits.attempt_timeout_ms
            is_first = False
            if batch.deadline_ms is None:
                continue
            if batch.deadline_ms <= now_ms:
                late.append(batch)
            else:
                plan.look_again(batch.deadline_ms)
        if late and timeout_ms is None:
            late = list(queue.batches())
        for batch in late:
            if batch in queue.in_flight:
                queue.in_flight.remove(batch)
            elif batch is queue.open:
                queue.open = None
            else:
                queue.closed.remove(batch)
            if batch.base_sequence >= 0:
                queue.is_unresolved = True
            self._remove(queue, batch)
            plan.expired.append((queue, batch))

    def _resolve(self, queue: PartitionQueue) -> None:
        """After a batch has timed out that may have been written: TransactionManager.maybeResolveSequences."""
        if not queue.is_unresolved or self.is_transactional:
            return
        if any(batch.base_sequence >= 0 for batch in queue.batches()):
            return
        if queue.next_acknowledged == queue.next_sequence:
            queue.is_unresolved = False
        else:
            self._raise_epoch(queue)

    def _sendable(self, queue: PartitionQueue, now_ms: int, plan: Plan) -> Batch | None:
        """Return the next batch of a partition, if it may be sent now.

        RecordAccumulator.shouldStopDrainBatchesForPartition.
        """
        if not queue.closed:
            return None
        batch = queue.closed[0]
        if batch.retry_ms > now_ms:
            plan.look_again(batch.retry_ms)
            return None
        if not self._is_idempotent:
            return None if queue.in_flight else batch
        if batch.base_sequence >= 0:
            return batch if all(sent.number > batch.number for sent in queue.in_flight) else None
        if len(queue.in_flight) >= self.limits.in_flight_max or queue.is_unresolved:
            return None
        if any(sent.attempts > 1 for sent in queue.in_flight):
            # Unlike Java, so that a batch that is sent again is always among the last five that the broker remembers.
            return None
        if self.producer is None:
            plan.needs_producer_id = True
            return None
        if queue.producer != self.producer and queue.in_flight:
            return None
        if self.is_transactional and queue.tp not in self.added:
            if queue.tp not in plan.unadded:
                plan.unadded.append(queue.tp)
            return None
        return batch

    def _take(self, queue: PartitionQueue, batch: Batch) -> None:
        """Take a batch that is sent, for the first time with the next sequence number."""
        queue.closed.popleft()
        queue.in_flight.append(batch)
        batch.attempts += 1
        if not self._is_idempotent or batch.base_sequence >= 0:
            return
        assert self.producer is not None
        if queue.producer != self.producer:
            queue.producer = self.producer
            queue.next_sequence = queue.next_acknowledged = 0
        batch.producer = queue.producer
        batch.base_sequence = queue.next_sequence
        queue.next_sequence = after(queue.next_sequence, len(batch.records))

    def _remove(self, queue: PartitionQueue, batch: Batch) -> None:
        batch.is_done = True
        self.buffer(-len(batch.records), -batch.size)

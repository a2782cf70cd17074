"""Produces records: sends the batches of the accumulator to the leaders of their partitions.

Requests of one broker carry the batches of several partitions, and up to `in_flight_max` of them are in flight; brokers
do not wait for each other.  Callers only add records and wait: what is sent belongs to the producer, so a caller that
is cancelled stops nothing.  Everything that is added gets a result, whatever fails, after `delivery_timeout_ms` at the
latest.  In a transaction nothing is sent after the first error, because the transaction can then only be aborted.

The accumulator has the rules; this module has the connections and the clock.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.leaders import NO_RESULT
from kctl.client.producing.accumulator import (
    NOT_IDEMPOTENT,
    RETRIED,
    Accumulator,
    Decision,
    Limits,
    PartitionQueue,
    Plan,
)
from kctl.client.producing.batches import Batch, Delivery, OnResult, RecordMetadata, size_of
from kctl.client.producing.partitioners import AdaptivePartitioner, Partitioner, StickyPartitioner
from kctl.client.producing.requests import initialise_producer_id, produce_request, results_of
from kctl.client.producing.topics import ProducerTopics
from kctl.client.producing.transaction import Transaction
from kctl.client.retrying import COORDINATOR_MOVED, LEADER_MOVED
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError, UsageError
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.protocol.apis.produce import ProduceResponse
from kctl.records.build import RecordFields
from kctl.records.compression import Codec
from kctl.records.header import Record
from kctl.system.reference_cycles import copy_of, weak_call

__all__ = ["ACKS_ALL", "Delivery", "Producer", "ProducerSettings"]

logger = logging.getLogger(__name__)

ACKS_ALL = -1
KEY: Final = 2
"""Index of the key in the fields of a record."""
LATE_S = 1.0
"""A broker that has not responded for this time is not asked for metadata, if there is another one."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of a producer.  `acks`: 0 no response, 1 the leader has the records, -1 all in-sync replicas do."""

    acks: int = ACKS_ALL
    codec: Codec = Codec.NONE
    codec_level: int | None = None
    """None for the level that Kafka's broker uses."""
    idempotent: bool = True
    linger_ms: int = 5
    batch_bytes: int = 64 << 10
    batch_records: int = 10_000
    buffered_records_max: int = 100_000
    buffered_bytes_max: int = 64 << 20
    max_block_ms: int | None = None
    """How long `send` waits while the buffer is full, and for the topic; None for as long as it takes, and for the
    client's timeout.
    """
    delivery_timeout_ms: int | None = None
    """Time from the first record of a batch until the batch fails; None: the client's timeout, which begins when the
    batch is the first one of its partition.
    """
    retries: int | None = None
    """How often a batch is sent again; None for as long as the time permits."""
    record_bytes_max: int | None = None
    """max.request.size: a larger record fails; None without a bound.  `batch_bytes` must not be larger."""
    in_flight_max: int = 5
    """max.in.flight.requests.per.connection, which is 5 at most with idempotence."""
    request_bytes_max: int = 1 << 20
    """A request with several batches is not larger."""
    creates_topics: bool = False
    """Whether a topic that does not exist may be created by the brokers (auto.create.topics.enable)."""


class _Node:
    """What is known of one broker."""

    __slots__ = ("attempt_s", "connecting", "connection", "failures", "in_flight", "sent_s")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.in_flight = 0
        self.sent_s = 0.0
        """When the last request was sent, or the last response has arrived."""
        self.failures = 0
        self.attempt_s = 0.0
        """When the next attempt to connect may be made."""


@dataclass(slots=True)
class ProducerCounters:
    """What a producer has done."""

    records: int = 0
    failed: int = 0
    bytes: int = 0
    batches: int = 0
    retries: int = 0
    splits: int = 0
    requests: int = 0
    request_s: float = 0.0
    request_s_max: float = 0.0
    connections_failed: int = 0


class _Flush:
    """A caller that waits for the batches of its time."""

    def __init__(self) -> None:
        self.left = 0
        self.arrival: asyncio.Future[None] | None = None


Resolve = Callable[[Sequence[Any], Sequence[RecordMetadata] | KctlError], None]
"""Passes the results of the records of a batch, or the error of all, to what was given to `send` as `on_result`."""


def call_each(handles: Sequence[OnResult], results: Sequence[RecordMetadata] | KctlError) -> None:
    """Call each callback with its result.  What one raises is logged, and does not stop the others."""
    for index, handle in enumerate(handles):
        try:
            handle(copy_of(results) if isinstance(results, KctlError) else results[index])
        except Exception:
            logger.exception("a callback failed")


class Producer:
    """Writes to topics; calls `on_delivery` with the result of every batch.

    Owner: event loop.  Other threads may call `send_at_once` if `loop` is given.
    """

    def __init__(
        self,
        client: ClusterClient,
        settings: ProducerSettings,
        on_delivery: Callable[[Delivery], None] | None = None,
        *,
        transaction: Transaction | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        partitioner: Partitioner | None = None,
        resolve: Resolve = call_each,
        loop: asyncio.AbstractEventLoop | None = None,
        jitter: Callable[[], float] = lambda: random.uniform(0.8, 1.2),
    ) -> None:
        """`jitter` is the factor of a pause between attempts to connect."""
        self._client = client
        self._settings = settings
        self._on_delivery = on_delivery
        self._resolve = resolve
        self._jitter = jitter
        self._transaction = transaction
        self._failure: KctlError | None = None
        self.needs_new_epoch = False
        """Whether a batch with a sequence number has failed in the transaction: the next one needs a new epoch."""
        self._clock_ms = clock_ms
        self._partitioner = partitioner or AdaptivePartitioner(settings.batch_bytes)
        self._sticky: dict[str, int] = {}
        """The partitions of records without a key; see StickyPartitioner."""
        self._lock = threading.RLock()
        self._is_shared = loop is not None
        self._loop = loop
        self._accumulator = Accumulator(_limits(settings, client), None if settings.idempotent else NOT_IDEMPOTENT)
        if transaction is not None:
            self._accumulator.begin_transaction(transaction.producer, transaction.added)
        if isinstance(self._partitioner, StickyPartitioner):
            self._accumulator.on_batch_closed = self._partitioner.on_batch_closed
            self._sticky = self._partitioner.current
        if isinstance(self._partitioner, AdaptivePartitioner):
            self._partitioner.waiting = weak_call(self._accumulator.waiting, [])
        self._topics = ProducerTopics(
            client,
            creates_topics=settings.creates_topics,
            block_ms=settings.max_block_ms,
            on_change=weak_call(self._look_soon, None),
            busy=weak_call(self._late_addresses, ()),
        )
        self._size_max = settings.record_bytes_max
        self._counts = self._topics.partition_counts
        self._nodes: dict[int, _Node] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._allocating: asyncio.Task[None] | None = None
        self._adding: asyncio.Task[None] | None = None
        self._last_error: KctlError | None = None
        """Why nothing can be sent now: no producer id, or the transaction's coordinator is away."""
        self._room_waiters: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_look_due = False
        self._counters = ProducerCounters()
        self._end: KctlError | None = None
        """The result of records after `abandon`."""

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_result: Any = None,
    ) -> None:
        """Add one record to a batch, and call `on_result` with its result; wait while the buffer is full.

        Raises ApiError for a topic or partition that does not exist, and when the buffer stays full for `max_block_ms`.
        """
        while not self.send_at_once(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            on_result=on_result,
        ):
            await self.ready(topic, partition)

    async def ready(self, topic: str, partition: int | None = None) -> None:
        """Wait for what `send_at_once` needs: room in the buffer, and the partitions of the topic.

        Raises ApiError as `send` does.
        """
        self._require_loop()
        if self._end is not None:
            raise copy_of(self._end)
        if not self._accumulator.has_room:
            await self._wait_for_room()
        elif topic not in self._counts or (partition is not None and partition >= self._counts[topic]):
            await self._topics.wait_for(topic, partition)

    def send_at_once(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_result: Any = None,
    ) -> bool:
        """Do what `send` does if the buffer has room and the partitions are known; else return False."""
        fields = (0, self._clock_ms() if timestamp_ms is None else timestamp_ms, key, value, tuple(headers))
        return self.add(topic, partition, fields, size_of(Record._make(fields)), on_result)

    def add(self, topic: str, partition: int | None, fields: RecordFields, size: int, handle: Any) -> bool:
        """Do what `send_at_once` does, for a record of this size (size_of)."""
        with self._lock:
            accumulator = self._accumulator
            count = self._counts.get(topic)
            if not accumulator.has_room or count is None:
                return False
            if partition is None:
                partition = self._sticky.get(topic) if fields[KEY] is None else None
                if partition is None or partition >= count:
                    partition = self._partition_of(topic, fields[KEY], count)
            elif partition >= count:
                return False
            if self._size_max is not None and size > self._size_max:
                self._refuse((topic, partition), fields, size, handle)
            elif accumulator.append((topic, partition), fields, size, handle, self._now_ms):
                self._look_soon()
        return True

    def send_run_at_once(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> int:
        """Add records that differ in their values only, as many as one batch has room for; return how many.

        It returns 0 where `send_at_once` returns False.  All records get the same time, and one call of the partitioner
        selects their partition.  A record costs a fifth of what it costs with `send_at_once`.
        """
        shared = Record(0, self._clock_ms(), key, None, tuple(headers))
        with self._lock:
            count = self._counts.get(topic)
            if not values or not self._accumulator.has_room or count is None:
                return 0
            if partition is None:
                partition = self._partition_of(topic, key, count)
            elif partition >= count:
                return 0
            first = shared._replace(value=values[0])
            if self._size_max is not None and (size := size_of(first)) > self._size_max:
                self._refuse((topic, partition), first, size, None)
                return 1
            added, is_due = self._accumulator.append_run((topic, partition), shared, values, self._now_ms)
            if is_due:
                self._look_soon()
        return added

    @property
    def failure(self) -> KctlError | None:
        """The last error of a batch; in a transaction nothing is sent after the first."""
        return self._failure

    def metrics(self) -> dict[str, float]:
        """Totals since the start, and the state of the buffer; times in ms, sizes in bytes."""
        counters, accumulator = self._counters, self._accumulator
        return {
            "records_acknowledged_total": counters.records,
            "records_failed_total": counters.failed,
            "bytes_acknowledged_total": counters.bytes,
            "batches_acknowledged_total": counters.batches,
            "batches_retried_total": counters.retries,
            "batches_split_total": counters.splits,
            "requests_total": counters.requests,
            "request_time_ms_total": counters.request_s * 1000,
            "request_time_ms_max": counters.request_s_max * 1000,
            "connections_failed_total": counters.connections_failed,
            "buffered_records": accumulator.buffered_records,
            "buffered_bytes": accumulator.buffered_bytes,
            "buffer_limit_bytes": self._settings.buffered_bytes_max,
            "requests_in_flight": sum(node.in_flight for node in self._nodes.values()),
        }

    @property
    def is_full(self) -> bool:
        """Whether the buffer has no room."""
        return not self._accumulator.has_room

    @property
    def has_full_batches(self) -> bool:
        """Whether the event loop should get a turn, to send what is full."""
        return self._accumulator.has_full_batches

    @property
    def buffered_bytes(self) -> int:
        """The size of the records without a result."""
        return self._accumulator.buffered_bytes

    @property
    def buffered_records(self) -> int:
        """The number of records without a result."""
        return self._accumulator.buffered_records

    async def discard(self, reason: KctlError) -> None:
        """In a transaction, fails all records that have not been sent; waits for those that have been."""
        self._bind()
        self._failure = self._failure or reason
        self._fail_unsent(self._failure)
        await self.flush()

    def begin_transaction(self, transaction: Transaction) -> None:
        """Permits sending again, in this transaction, after the previous one has ended."""
        with self._lock:
            self._transaction = transaction
            self._failure = None
            self.needs_new_epoch = False
            self._accumulator.begin_transaction(transaction.producer, transaction.added)

    async def flush(self) -> None:
        """Wait until every record that was added before has been delivered or has failed."""
        self._require_loop()
        flush = _Flush()
        with self._lock:
            self._accumulator.close_all(flush)
        if flush.left:
            flush.arrival = asyncio.get_running_loop().create_future()
            self._look_soon()
            await flush.arrival

    def abandon(self, reason: KctlError | None = None) -> None:
        """Stop at once; records without a result may or may not have been written.

        `reason` is then their result; without it they get none.
        """
        if self._end is not None:
            return
        with self._lock:
            self._counts = {}  # nothing can be added
            self._end = reason or UsageError("the producer is closed")
            left = [(queue, batch) for queue in self._accumulator.queues.values() for batch in queue.batches()]
            for queue in self._accumulator.queues.values():
                queue.in_flight.clear()
            self._accumulator.take_unsent()
        if self._timer is not None:
            self._timer.cancel()
        if (looking_up := self._topics.cancel()) is not None:
            self._tasks[looking_up] = None
        for task in self._running():
            task.cancel()
        for queue, batch in left:
            batch.is_done = True
            if reason is None:
                batch.handles.clear()
            self._finish(queue, batch, -1, -1, self._end, is_reported=reason is not None)
        for waiter in self._room_waiters:
            if not waiter.done():
                waiter.set_exception(copy_of(self._end))

    async def stop(self, reason: KctlError | None = None) -> None:
        """Abandons what is left, and waits for the end of all tasks."""
        self.abandon(reason)
        if tasks := self._running():
            await asyncio.wait(tasks)

    def _running(self) -> list[asyncio.Task[None]]:
        connecting = [node.connecting for node in self._nodes.values()]
        tasks = [*self._tasks, self._allocating, self._adding, *connecting]
        return [task for task in tasks if task is not None and not task.done()]

    def _bind(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _require_loop(self) -> None:
        """Raise UsageError in another event loop than that of the producer."""
        if self._bind() is not asyncio.get_running_loop():
            raise UsageError("the producer belongs to another event loop")

    def _now_ms(self) -> int:
        return int((self._loop or self._bind()).time() * 1000)

    async def _wait_for_room(self) -> None:
        block_ms = self._settings.max_block_ms
        waiter = self._bind().create_future()
        self._room_waiters.add(waiter)
        self._look_soon()
        try:
            async with asyncio.timeout(None if block_ms is None else block_ms / 1000):
                await waiter
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the buffer was full for max.block.ms={block_ms}") from None
        finally:
            self._room_waiters.discard(waiter)

    def _partition_of(self, topic: str, key: bytes | None, count: int) -> int:
        """Return the choice of the partitioner.  Raises UsageError, and what the partitioner raises."""
        partition = self._partitioner(topic, key, count)
        if not 0 <= partition < count:
            raise UsageError(
                f"the partitioner returned {partition} for {topic}, which has {counted(count, 'partition')}"
            )
        return partition

    def _refuse(self, tp: tuple[str, int], record: RecordFields, size: int, handle: Any) -> None:
        """Set the result of a record above `record_bytes_max`."""
        text = f"a record of {counted(size, 'byte')} is larger than max.request.size={self._size_max}"
        batch = Batch()
        batch.append(record, size, handle)
        self._fail(PartitionQueue(TopicPartition(*tp)), batch, ApiError(ErrorCode.MESSAGE_TOO_LARGE, text))

    def _look_soon(self) -> None:
        """Look for what is to be done; may be called by any thread that may call `send_at_once`."""
        if self._is_look_due or self._end is not None:
            return
        self._is_look_due = True
        loop = self._loop or self._bind()
        if self._is_shared:
            loop.call_soon_threadsafe(self._look)
        else:
            loop.call_soon(self._look)

    def _look(self) -> None:
        """Send what is to be sent.  Whatever is wrong here is the result of the records."""
        self._is_look_due = False
        if self._end is not None:
            return
        try:
            self._act()
        except Exception as error:
            logger.exception("sending failed")
            self._fail_unsent(_as_kctl_error(error))

    def _act(self) -> None:
        now_ms = self._now_ms()
        if self._failure is not None and self._transaction is not None:
            self._fail_unsent(self._failure)
        with self._lock:
            plan = self._accumulator.step(now_ms, self._topics.leader_of, self._rooms)
        for queue, batch in plan.expired:
            self._fail(queue, batch, self._expiry(queue, batch))
        for node_id, batches in plan.requests:
            node = self._nodes[node_id]
            node.in_flight += 1
            self._start(self._produce(node, batches), "produce")
        self._prepare(plan)
        self._topics.refresh_if_old()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if plan.next_ms is not None:
            self._timer = self._bind().call_at(plan.next_ms / 1000 + 0.0005, self._look)

    def _prepare(self, plan: Plan) -> None:
        """Start what the batches wait for."""
        if plan.leaderless:
            self._topics.refresh(plan.leaderless)
        for node_id in plan.unconnected:
            self._connect(node_id)
        if plan.needs_producer_id and (self._allocating is None or self._allocating.done()):
            self._allocating = self._bind().create_task(self._allocate(), name="get a producer id")
        if plan.unadded and (self._adding is None or self._adding.done()):
            self._adding = self._bind().create_task(self._add(plan.unadded), name="add partitions to a transaction")

    def _start(self, work: Any, name: str) -> None:
        task = self._bind().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _rooms(self, node_id: int) -> int:
        """Return how many requests may be sent to a broker; -1 if it has no connection."""
        node = self._nodes.get(node_id)
        if node is None or node.connection is None or not node.connection.is_open:
            return -1
        return self._settings.in_flight_max - node.in_flight

    def _late_addresses(self) -> list[str]:
        late_s = self._bind().time() - LATE_S
        return [
            node.connection.address
            for node in self._nodes.values()
            if node.connection is not None and node.in_flight and node.sent_s < late_s
        ]

    def _connect(self, node_id: int) -> None:
        node = self._nodes.setdefault(node_id, _Node())
        if node.connecting is not None and not node.connecting.done():
            return
        left_s = node.attempt_s - self._bind().time()
        if left_s > 0:
            self._bind().call_later(left_s, self._look_soon)
            return
        node.connecting = self._bind().create_task(self._open(node_id, node), name=f"connect to broker {node_id}")

    async def _open(self, node_id: int, node: _Node) -> None:
        """Connect to a broker.  The pauses between attempts grow as those of Kafka's clients do."""
        settings = self._client.settings
        try:
            node.connection = await self._client.connected(self._topics.brokers[node_id])
            node.failures = 0
        except (ConnectionLost, KeyError) as error:
            pause_ms = min(settings.reconnect_backoff_ms << min(node.failures, 20), settings.reconnect_backoff_ms_max)
            node.failures += 1
            self._counters.connections_failed += 1
            node.attempt_s = self._bind().time() + pause_ms * self._jitter() / 1000
            waiting = self._of_leader(node_id)
            for _, batch in waiting:
                batch.last_error = ApiError(ErrorCode.NETWORK_EXCEPTION, str(error))
            self._topics.refresh({queue.tp.topic for queue, _ in waiting})
        except Exception as error:
            failure = _as_kctl_error(error)
            for queue, batch in self._of_leader(node_id, is_removed=True):
                self._fail(queue, batch, copy_of(failure))
        self._look_soon()

    def _of_leader(self, node_id: int, *, is_removed: bool = False) -> list[tuple[PartitionQueue, Batch]]:
        """Return the closed batches of the partitions that a broker leads."""
        with self._lock:
            return self._accumulator.take_unsent(
                lambda tp: self._topics.leader_of(tp) == node_id, is_removed=is_removed
            )

    async def _allocate(self) -> None:
        """Get a producer id; batches wait for it."""
        try:
            # A broker that is allocating its next block of ids responds COORDINATOR_LOAD_IN_PROGRESS (seen with 3.9.1).
            producer = await self._client.on_any_broker(initialise_producer_id, codes=COORDINATOR_MOVED)
            with self._lock:
                self._accumulator.producer = producer
            self._last_error = None
        except Exception as error:
            await self._fail_or_pause(error)
        self._look_soon()

    async def _add(self, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions to the transaction; their batches wait for it."""
        transaction = self._transaction
        assert transaction is not None
        try:
            await transaction.add(partitions)
            self._last_error = None
        except Exception as error:
            if transaction is self._transaction:
                await self._fail_or_pause(error)
        self._look_soon()

    async def _fail_or_pause(self, error: Exception) -> None:
        """Fail the records that wait, unless the error may pass while they have time."""
        failure = _as_kctl_error(error)
        is_passing = isinstance(failure, ClusterUnreachable) or (
            isinstance(failure, ApiError) and failure.code in RETRIED
        )
        if not is_passing or self._settings.delivery_timeout_ms is None:
            self._fail_unsent(failure)
            return
        self._last_error = failure
        await asyncio.sleep(self._client.settings.retry_backoff_ms_max / 1000)

    async def _produce(self, node: _Node, batches: list[tuple[PartitionQueue, Batch]]) -> None:
        """Send one request, and pass the results to the batches."""
        loop = self._bind()
        connection = node.connection
        error: KctlError | None = None
        results: dict[TopicPartition, tuple[int, int] | ApiError] = {}
        try:
            assert connection is not None
            sent = [(queue, batch) for queue, batch in batches if not batch.is_done]
            request = produce_request(
                [(queue.tp, batch) for queue, batch in sent],
                acks=self._settings.acks,
                codec=self._settings.codec,
                level=self._settings.codec_level,
                timeout_ms=self._client.settings.response_timeout_ms,
                transactional_id=None if self._transaction is None else self._transaction.transactional_id,
            )
            started_s = node.sent_s = loop.time()
            if self._settings.acks == 0:
                await connection.post(request)
                results = {queue.tp: (-1, -1) for queue, _ in sent}
            else:
                results = results_of(await connection.send(request, ProduceResponse))
            took_s = loop.time() - started_s
            self._counters.requests += 1
            self._counters.request_s += took_s
            self._counters.request_s_max = max(self._counters.request_s_max, took_s)
        except ConnectionLost as lost:
            error = ApiError(ErrorCode.NETWORK_EXCEPTION, str(lost))
            if node.connection is connection:
                node.connection = None
            if connection is not None and connection.is_open:  # it does not respond
                self._start(connection.close(), "close a connection")
        except Exception as problem:
            error = _as_kctl_error(problem)
        finally:
            node.in_flight -= 1
            node.sent_s = loop.time()
        for queue, batch in batches:
            result = error or results.get(queue.tp)
            self._settle(queue, batch, result or ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, NO_RESULT))
        self._look_soon()

    def _settle(self, queue: PartitionQueue, batch: Batch, result: tuple[int, int] | KctlError) -> None:
        """Process the result of a batch, which is not always the last one."""
        if not isinstance(result, KctlError):
            with self._lock:
                is_new = self._accumulator.acknowledged(queue, batch)
            if is_new:
                self._counters.batches += 1
                self._counters.records += len(batch.records)
                self._counters.bytes += batch.size
                self._finish(queue, batch, *result, None)
            return
        code = result.code if isinstance(result, ApiError) else None
        settings = self._client.settings
        pause_ms = min(settings.retry_backoff_ms << min(batch.attempts - 1, 20), settings.retry_backoff_ms_max)
        with self._lock:
            decision = self._accumulator.refused(queue, batch, result, self._now_ms() + pause_ms)
        if code in LEADER_MOVED or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._topics.leader_has_moved(queue.tp)
        self._counters.retries += decision is Decision.RETRY
        self._counters.splits += decision is Decision.SPLIT
        if decision is Decision.FAIL:
            if isinstance(result, ApiError):
                result = ApiError(result.code, f"{queue.tp}: {result}")
            self._fail(queue, batch, result)

    def _expiry(self, queue: PartitionQueue, batch: Batch) -> KctlError:
        """Return the error of a batch whose time is over."""
        timeout_ms = self._settings.delivery_timeout_ms
        last = batch.last_error or self._last_error or self._topics.last_error
        if timeout_ms is None and last is not None:
            return ApiError(last.code, f"{queue.tp}: {last}") if isinstance(last, ApiError) else copy_of(last)
        cause = "" if last is None else f" ({last})"
        name = f"{self._client.settings.timeout_ms} ms" if timeout_ms is None else f"delivery.timeout.ms={timeout_ms}"
        written = "may have been written" if batch.attempts else "was not sent"
        text = f"{queue.tp}: not acknowledged within {name}{cause}; {written}"
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, text)

    def _fail_unsent(self, error: KctlError) -> None:
        with self._lock:
            taken = self._accumulator.take_unsent()
        for queue, batch in taken:
            self._fail(queue, batch, error)

    def _fail(self, queue: PartitionQueue, batch: Batch, error: KctlError) -> None:
        if batch.base_sequence >= 0:
            self.needs_new_epoch = True
        self._counters.failed += len(batch.records)
        self._failure = self._failure if self._failure is not None and self._transaction is not None else error
        self._finish(queue, batch, -1, -1, error)

    def _finish(
        self,
        queue: PartitionQueue,
        batch: Batch,
        base_offset: int,
        timestamp_ms: int,
        error: KctlError | None,
        *,
        is_reported: bool = True,
    ) -> None:
        """Pass the result of a batch on.  What a callback raises is logged, and does not stop the others."""
        delivery = Delivery(queue.tp, batch.records, base_offset, timestamp_ms, error)
        try:
            handles, batch.handles = batch.handles, {}
            if handles:
                self._resolve_all(handles, delivery)
            if is_reported and self._on_delivery is not None:
                self._on_delivery(delivery)
        except Exception:
            logger.exception("a callback failed partition=%s", queue.tp)
        for flush in batch.flushes:
            flush.left -= 1
            if not flush.left and isinstance(flush, _Flush) and flush.arrival is not None and not flush.arrival.done():
                flush.arrival.set_result(None)
        if self._accumulator.has_room and self._room_waiters:
            for waiter in self._room_waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _resolve_all(self, handles: dict[int, Any], delivery: Delivery) -> None:
        """Pass the results of the records to those who want them."""
        selected = [handle for index, handle in handles.items() if index < delivery.count]
        if delivery.error is not None:
            self._resolve(selected, delivery.error)
            return
        results = delivery.metadata()
        if len(selected) < len(results):
            results = [results[index] for index in handles if index < delivery.count]
        self._resolve(selected, results)


def _limits(settings: ProducerSettings, client: ClusterClient) -> Limits:
    return Limits(
        linger_ms=settings.linger_ms,
        batch_bytes=settings.batch_bytes,
        batch_records=settings.batch_records,
        buffered_records_max=settings.buffered_records_max,
        buffered_bytes_max=settings.buffered_bytes_max,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        attempt_timeout_ms=client.settings.timeout_ms,
        retries=settings.retries,
        in_flight_max=min(settings.in_flight_max, 5) if settings.idempotent else settings.in_flight_max,
        request_bytes_max=settings.request_bytes_max,
    )


def _as_kctl_error(error: Exception) -> KctlError:
    """Return an error of kctl as it is; another one, which is a bug or the caller's data, with its type."""
    if isinstance(error, KctlError):
        return copy_of(error)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")

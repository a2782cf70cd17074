"""Adds records to batches and waits for their results; kctl.client.producing.sender sends them.

What is sent belongs to the producer: a caller that is cancelled stops nothing.  Everything that is added gets a result,
whatever fails, after `delivery_timeout_ms` at the latest.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kctl.client.cluster import ClusterClient
from kctl.client.connections.traffic import Spread
from kctl.client.producing.accumulator import NOT_IDEMPOTENT, Accumulator, PartitionQueue
from kctl.client.producing.batches import Batch, Delivery, size_of
from kctl.client.producing.partitioners import AdaptivePartitioner, Partitioner, StickyPartitioner
from kctl.client.producing.results import Flush, Resolve, Results, call_each
from kctl.client.producing.sender import Sender
from kctl.client.producing.settings import ACKS_ALL, ProducerSettings
from kctl.client.producing.transaction import Transaction
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.records.build import RecordFields
from kctl.records.header import Record
from kctl.system.reference_cycles import copy_of, weak_call

__all__ = ["ACKS_ALL", "Delivery", "Producer", "ProducerSettings"]

KEY: Final = 2
"""Index of the key in the fields of a record."""


class Producer:
    """Writes to topics; calls `on_delivery` with the result of every batch.

    Owner: event loop.  Other threads may call `add` if `loop` is given; all callers then hold `lock`.
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
        self.lock = threading.RLock()
        self.accumulator = Accumulator(
            settings.limits(client.settings.timeout_ms), None if settings.idempotent else NOT_IDEMPOTENT
        )
        self._settings = settings
        self._clock_ms = clock_ms
        self._size_max = settings.record_bytes_max
        self._results = Results(self.accumulator, resolve, on_delivery)
        self._sender = Sender(
            client, settings, self.accumulator, self._results, lock=self.lock, loop=loop, jitter=jitter
        )
        self._now_ms = self._sender.now_ms
        self._look_soon = self._sender.look_soon
        self._counts = self._sender.topics.partition_counts
        self._partitioner = partitioner or AdaptivePartitioner(settings.batch_bytes)
        self._sticky: dict[str, int] = {}
        """The partitions of records without a key; see StickyPartitioner."""
        if isinstance(self._partitioner, StickyPartitioner):
            self.accumulator.on_batch_closed = self._partitioner.on_batch_closed
            self._sticky = self._partitioner.current
        if isinstance(self._partitioner, AdaptivePartitioner):
            self._partitioner.waiting = weak_call(self.accumulator.waiting, [])
        self._end: KctlError | None = None
        """The result of records after `abandon`."""
        if transaction is not None:
            self.begin_transaction(transaction)

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
        if not self.accumulator.has_room:
            await self._wait_for_room()
        elif topic not in self._counts or (partition is not None and partition >= self._counts[topic]):
            await self._sender.topics.wait_for(topic, partition)

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
        accumulator = self.accumulator
        count = self._counts.get(topic)
        if count is None or not accumulator.has_room:
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
        count = self._counts.get(topic)
        if not values or not self.accumulator.has_room or count is None:
            return 0
        if partition is None:
            partition = self._partition_of(topic, key, count)
        elif partition >= count:
            return 0
        first = shared._replace(value=values[0])
        if self._size_max is not None and (size := size_of(first)) > self._size_max:
            self._refuse((topic, partition), first, size, None)
            return 1
        added, is_due = self.accumulator.append_run((topic, partition), shared, values, self._now_ms)
        if is_due:
            self._look_soon()
        return added

    @property
    def failure(self) -> KctlError | None:
        """The last error of a batch; in a transaction nothing is sent after the first."""
        return self._results.failure

    @property
    def needs_new_epoch(self) -> bool:
        """Whether a batch with a sequence number has failed in the transaction: the next one needs a new epoch."""
        return self._results.needs_new_epoch

    def metrics(self) -> dict[str, float]:
        """Totals since the start, and the state of the buffer; times in ms, sizes in bytes."""
        return self._results.counters.metrics() | {
            "buffered_records": self.accumulator.buffered_records,
            "buffered_bytes": self.accumulator.buffered_bytes,
            "buffer_limit_bytes": self._settings.buffered_bytes_max,
            "requests_in_flight": self._sender.brokers.in_flight,
        }

    def take_queue_times(self) -> Spread:
        """Return how long batches have waited until they were sent, since the last call, in ms."""
        return self._results.counters.take_queue_times()

    @property
    def is_full(self) -> bool:
        """Whether the buffer has no room."""
        return not self.accumulator.has_room

    @property
    def buffered_bytes(self) -> int:
        """The size of the records without a result."""
        return self.accumulator.buffered_bytes

    @property
    def buffered_records(self) -> int:
        """The number of records without a result."""
        return self.accumulator.buffered_records

    async def discard(self, reason: KctlError) -> None:
        """In a transaction, fails all records that have not been sent; waits for those that have been."""
        self._sender.bind()
        self._results.failure = self._results.failure or reason
        self._sender.fail_unsent(self._results.failure)
        await self.flush()

    def begin_transaction(self, transaction: Transaction) -> None:
        """Permits sending again, in this transaction, after the previous one has ended."""
        with self.lock:
            self._sender.transaction = transaction
            self._results.failure = None
            self._results.needs_new_epoch = False
            self.accumulator.begin_transaction(transaction.producer, transaction.added)

    async def flush(self) -> None:
        """Wait until every record that was added before has been delivered or has failed."""
        self._require_loop()
        flush = Flush()
        with self.lock:
            self.accumulator.close_all(flush)
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
        with self.lock:
            self._counts = {}  # nothing can be added
            self._end = reason or UsageError("the producer is closed")
            left = [(queue, batch) for queue in self.accumulator.queues.values() for batch in queue.batches()]
            for queue in self.accumulator.queues.values():
                queue.in_flight.clear()
            self.accumulator.take_unsent()
        self._sender.cancel()
        for queue, batch in left:
            batch.is_done = True
            self._results.abandon(queue, batch, self._end, is_reported=reason is not None)
        for waiter in self._results.room_waiters:
            if not waiter.done():
                waiter.set_exception(copy_of(self._end))

    async def stop(self, reason: KctlError | None = None) -> None:
        """Abandons what is left, and waits for the end of all tasks."""
        self.abandon(reason)
        await self._sender.wait_for_tasks()

    def _require_loop(self) -> None:
        """Raise UsageError in another event loop than that of the producer."""
        if self._sender.bind() is not asyncio.get_running_loop():
            raise UsageError("the producer belongs to another event loop")

    async def _wait_for_room(self) -> None:
        block_ms = self._settings.max_block_ms
        waiter = asyncio.get_running_loop().create_future()
        self._results.room_waiters.add(waiter)
        self._look_soon()
        try:
            async with asyncio.timeout(None if block_ms is None else block_ms / 1000):
                await waiter
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the buffer was full for max.block.ms={block_ms}") from None
        finally:
            self._results.room_waiters.discard(waiter)

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
        self._results.fail(PartitionQueue(TopicPartition(*tp)), batch, ApiError(ErrorCode.MESSAGE_TOO_LARGE, text))

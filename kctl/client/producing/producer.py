"""Produces records in batches per partition, with one batch of each partition in flight.

A batch is closed when it reaches `batch_bytes` or `batch_records`, or `linger_ms` after its first record.  One batch in
flight per partition keeps the order of records without sequence numbers.  With `idempotent` a retried batch is stored
once (KIP-98).  Partitions are independent.  In a transaction the producer id and epoch are the transaction's, and
nothing is sent after the first error, because the transaction can then only be aborted.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from typing import TypeVar

from kctl.client.cluster import ClusterClient
from kctl.client.connections.framing import first_result
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.leaders import Outcomes, on_leaders
from kctl.client.metadata import ClusterMetadata
from kctl.client.producing.batches import Batch, OnResult, size_of
from kctl.client.producing.partitioners import DefaultPartitioner, Partitioner, StickyPartitioner
from kctl.client.producing.transaction import Transaction
from kctl.client.retrying import COORDINATOR_MOVED, LEADER_MOVED
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError, UsageError
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import SEQUENCE_MAX, Record
from kctl.system.reference_cycles import copy_of

T = TypeVar("T")

ACKS_ALL = -1
RETRIED = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors after which the same batch is retried, in addition to LEADER_MOVED."""
MOVED = LEADER_MOVED | COORDINATOR_MOVED | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""Errors that each request is repeated after, up to the client's timeout."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of a producer.  `acks`: 0 no response, 1 the leader has the records, -1 all in-sync replicas do."""

    acks: int = ACKS_ALL
    codec: Codec = Codec.NONE
    idempotent: bool = True
    linger_ms: int = 5
    batch_bytes: int = 64 << 10
    batch_records: int = 10_000
    buffered_records_max: int = 100_000
    buffered_bytes_max: int = 64 << 20
    max_block_ms: int | None = None
    """How long `send` waits while the buffer is full; None for as long as it takes."""
    delivery_timeout_ms: int | None = None
    """Time from the first record of a batch until the batch fails; None for the client's timeout per request."""
    retries: int | None = None
    """How often a batch is sent again; None for as long as the time permits."""
    record_bytes_max: int | None = None
    """max.request.size: a larger record fails; None without a bound.  `batch_bytes` must not be larger."""


@dataclass(slots=True)
class Delivery:
    """Result of one batch: `base_offset` is the offset of its first record, -1 with acks=0 or after an error."""

    tp: TopicPartition
    records: Sequence[Record]
    base_offset: int
    timestamp_ms: int
    """Append time of topics with LogAppendTime, else -1."""
    error: KctlError | None = None


@dataclass(slots=True)
class _PartitionQueue:
    """State of one partition: open batch, closed batches, producer id and next sequence number."""

    tp: TopicPartition
    open: Batch = field(default_factory=Batch)
    closed: deque[Batch] = field(default_factory=deque)
    producer: tuple[int, int] = (-1, -1)
    next_sequence: int = 0
    sender: asyncio.Task[None] | None = None
    linger: asyncio.TimerHandle | None = None
    last_error: ApiError | ClusterUnreachable | None = None
    """Why the batch in flight is being repeated."""


class Producer:
    """Writes to topics; calls `on_delivery` with the result of every batch.  Owner: event loop."""

    def __init__(
        self,
        client: ClusterClient,
        settings: ProducerSettings,
        on_delivery: Callable[[Delivery], None],
        *,
        transaction: Transaction | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        partitioner: Partitioner | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._on_delivery = on_delivery
        self._transaction = transaction
        self._failure: KctlError | None = None
        self._clock_ms = clock_ms
        self._queues: dict[tuple[str, int], _PartitionQueue] = {}
        self._metadata: dict[str, ClusterMetadata] = {}
        self._metadata_end_ms = 0
        """When the metadata of all topics is forgotten."""
        self._partitioner = partitioner or DefaultPartitioner()
        self._producer: asyncio.Task[tuple[int, int]] | None = None
        self._buffered_records = 0
        self._buffered_bytes = 0
        self._batch_bytes = settings.batch_bytes
        """Smaller than in the settings after a topic has refused a batch."""
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_result: OnResult | None = None,
    ) -> None:
        """Adds one record to a batch, and calls `on_result` with its result; waits while the buffer is full.

        Raises ApiError for a topic that does not exist, and when the buffer stays full for `max_block_ms`.
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
            await self.ready(topic)

    async def ready(self, topic: str) -> None:
        """Waits for what `send_at_once` needs: room in the buffer, and the partitions of the topic.

        Raises ApiError as `send` does.
        """
        if not self._has_room.is_set():
            await self._wait_for_room()
        else:
            await self._look_up(topic)

    def send_at_once(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_result: OnResult | None = None,
    ) -> bool:
        """Does what `send` does if the buffer has room and the partitions of the topic are known; else returns False.

        A caller with many records saves half of the time per record.
        """
        if not self._has_room.is_set():
            return False
        if partition is None:
            partition = self._partition_of(topic, key)
            if partition is None:
                return False
        record = Record(0, self._clock_ms() if timestamp_ms is None else timestamp_ms, key, value, tuple(headers))
        self._add((topic, partition), record, on_result)
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
        """Adds records that differ in their values only, as many as one batch has room for; returns how many.

        It returns 0 where `send_at_once` returns False.  All records get the same time, and one call of the partitioner
        selects their partition.  A record costs a fifth of what it costs with `send_at_once`.
        """
        if not values or not self._has_room.is_set():
            return 0
        if partition is None:
            partition = self._partition_of(topic, key)
            if partition is None:
                return 0
        shared = Record(0, self._clock_ms(), key, None, tuple(headers))
        overhead = size_of(shared)
        queue = self._queue_with_room((topic, partition), overhead + len(values[0] or b""))
        count_max = self._settings.batch_records - len(queue.open.records)
        sizes = list(accumulate(overhead + len(value or b"") for value in values[:count_max]))
        count = max(1, bisect_right(sizes, self._batch_bytes - queue.open.size))
        columns = (repeat(0), repeat(shared.timestamp), repeat(key), values[:count], repeat(shared.headers))
        queue.open.extend(list(map(Record._make, zip(*columns, strict=False))), sizes[count - 1])
        self._added(queue, count, sizes[count - 1])
        return count

    async def _wait_for_room(self) -> None:
        block_ms = self._settings.max_block_ms
        try:
            async with asyncio.timeout(None if block_ms is None else block_ms / 1000):
                await self._has_room.wait()
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the buffer was full for max.block.ms={block_ms}") from None

    @property
    def failure(self) -> KctlError | None:
        """The last error of a batch; in a transaction nothing is sent after the first."""
        return self._failure

    async def discard(self, reason: KctlError) -> None:
        """In a transaction, fails all records that have not been sent; waits for those that have been."""
        self._failure = self._failure or reason
        await self.flush()

    def begin_transaction(self, transaction: Transaction) -> None:
        """Permits sending again, in this transaction, after the previous one was aborted."""
        self._transaction = transaction
        self._failure = None

    async def flush(self) -> None:
        """Waits until every record has been delivered or has failed."""
        for queue in self._queues.values():
            self._close_batch(queue)
        senders = [queue.sender for queue in self._queues.values() if queue.sender is not None]
        if senders:
            await asyncio.gather(*senders)

    def abandon(self) -> None:
        """Stops at once; records without a result may or may not have been written."""
        for queue in self._queues.values():
            if queue.linger is not None:
                queue.linger.cancel()
            if queue.sender is not None:
                queue.sender.cancel()

    async def _look_up(self, topic: str) -> ClusterMetadata:
        metadata = self._metadata.get(topic)
        if metadata is None:
            metadata = await self._client.metadata([topic])
            found = metadata.topics[topic]
            if found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ApiError(found.error, f"topic '{topic}' does not exist")
            if found.error is not ErrorCode.NONE:
                raise ApiError(found.error, f"{topic}: {found.error.description}")
            if not self._metadata:
                self._metadata_end_ms = (
                    self._client.transport.monotonic_ms() + self._client.settings.metadata_max_age_ms
                )
            self._metadata[topic] = metadata
        return metadata

    def _partition_of(self, topic: str, key: bytes | None) -> int | None:
        """The choice of the partitioner; None if the partitions of the topic are not known."""
        metadata = self._metadata.get(topic)
        if metadata is None:
            return None
        count = len(metadata.topics[topic].partitions)
        partition = self._partitioner(topic, key, count)
        if not 0 <= partition < count:
            raise UsageError(
                f"the partitioner returned {partition} for {topic}, which has {counted(count, 'partition')}"
            )
        return partition

    def _add(self, tp: tuple[str, int], record: Record, on_result: OnResult | None) -> None:
        size = size_of(record)
        queue = self._queue_with_room(tp, size)
        queue.open.append(record, size, on_result)
        self._added(queue, 1, size)

    def _queue_with_room(self, tp: tuple[str, int], size: int) -> _PartitionQueue:
        """The queue of a partition, whose open batch has room for a record of this size, or is empty."""
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = _PartitionQueue(TopicPartition(*tp))
        if queue.open.records and queue.open.size + size > self._batch_bytes:
            self._close_batch(queue)
        if not queue.open.records:
            queue.open.created_ms = self._client.transport.monotonic_ms()
        return queue

    def _added(self, queue: _PartitionQueue, record_count: int, size: int) -> None:
        """Closes the batch to which the records were added if it is full, else at the end of the linger time."""
        batch, settings = queue.open, self._settings
        self._buffer(record_count, size)
        if batch.size >= self._batch_bytes or len(batch.records) >= settings.batch_records:
            self._close_batch(queue)
        elif queue.linger is None:
            loop = asyncio.get_running_loop()
            queue.linger = loop.call_later(settings.linger_ms / 1000, self._close_batch, queue)

    def _buffer(self, record_count: int, size: int) -> None:
        """Counts records that were added, or with negative numbers those that are done."""
        self._buffered_records += record_count
        self._buffered_bytes += size
        settings = self._settings
        if (
            self._buffered_records < settings.buffered_records_max
            and self._buffered_bytes < settings.buffered_bytes_max
        ):
            self._has_room.set()
        else:
            self._has_room.clear()

    def _close_batch(self, queue: _PartitionQueue) -> None:
        if queue.linger is not None:
            queue.linger.cancel()
            queue.linger = None
        if not queue.open.records:
            return
        if self._client.transport.monotonic_ms() >= self._metadata_end_ms:
            self._metadata.clear()
        queue.closed.append(queue.open)
        queue.open = Batch()
        if isinstance(self._partitioner, StickyPartitioner):
            self._partitioner.on_batch_closed(queue.tp.topic)
        if queue.sender is None or queue.sender.done():
            queue.sender = asyncio.create_task(self._send_queue(queue), name=f"produce to {queue.tp}")

    async def _send_queue(self, queue: _PartitionQueue) -> None:
        while queue.closed:
            batch = queue.closed.popleft()
            try:
                self._check_size(batch)
                delivery = await self._deliver_in_time(queue, batch)
            except KctlError as error:
                delivery = Delivery(queue.tp, batch.records, -1, -1, copy_of(error))
            if _is_too_large(delivery) and len(batch.records) > 1:
                # The topic's max.message.bytes is smaller than the batch.  As in Java, its halves are sent instead,
                # with the sequence numbers of the batch, of which the broker has stored nothing.
                queue.closed.extendleft(reversed(batch.halves()))
                self._batch_bytes = min(self._batch_bytes, batch.size // 2)
                if queue.producer[0] >= 0:
                    queue.next_sequence = (queue.next_sequence - len(batch.records)) & SEQUENCE_MAX
                continue
            if delivery.error is not None:
                # The broker would refuse the following batches as out of order, so use a new producer id.  Other
                # partitions keep the old id for the batch in flight and change with the next.
                self._producer = None
                self._failure = delivery.error
                self._metadata.pop(queue.tp.topic, None)
            self._buffer(-len(batch.records), -batch.size)
            batch.finish(queue.tp, delivery.base_offset, delivery.timestamp_ms, delivery.error)
            self._on_delivery(delivery)

    def _check_size(self, batch: Batch) -> None:
        """Raises ApiError for a record above `record_bytes_max`, which is alone in its batch."""
        size_max = self._settings.record_bytes_max
        if size_max is not None and batch.size > size_max:
            text = f"a record of {counted(batch.size, 'byte')} is larger than max.request.size={size_max}"
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, text)

    async def _deliver_in_time(self, queue: _PartitionQueue, batch: Batch) -> Delivery:
        """Delivers a batch, or fails when delivery_timeout_ms have passed since its first record."""
        timeout_ms = self._settings.delivery_timeout_ms
        if timeout_ms is None:
            return await self._deliver(queue, batch.records)
        queue.last_error = None
        left_ms = batch.created_ms + timeout_ms - self._client.transport.monotonic_ms()
        try:
            async with asyncio.timeout(max(0, left_ms) / 1000):
                return await self._deliver(queue, batch.records)
        except TimeoutError:
            cause = "" if queue.last_error is None else f" ({queue.last_error})"
            text = f"{queue.tp}: not acknowledged within delivery.timeout.ms={timeout_ms}{cause}; may have been written"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text) from None

    async def _deliver(self, queue: _PartitionQueue, records: list[Record]) -> Delivery:
        if self._transaction is not None:
            if self._failure is not None:
                return Delivery(queue.tp, records, -1, -1, self._failure)
            transaction = self._transaction
            await self._repeat(queue, lambda: transaction.add(queue.tp))
        producer = await self._repeat(queue, self._producer_id)
        if producer != queue.producer:
            queue.producer, queue.next_sequence = producer, 0
        has_id = producer[0] >= 0
        data = build_batch(
            records,
            codec=self._settings.codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=queue.next_sequence if has_id else -1,
            is_transactional=self._transaction is not None,
        )
        queue.next_sequence = (queue.next_sequence + len(records)) & SEQUENCE_MAX
        try:
            base_offset, timestamp_ms = await self._repeat(queue, lambda: self._produce(queue.tp, data))
        except ApiError as error:
            raise ApiError(error.code, f"{queue.tp}: {error}") from None
        return Delivery(queue.tp, records, base_offset, timestamp_ms)

    async def _repeat(self, queue: _PartitionQueue, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of `attempt`, repeated after errors that may pass: until delivery_timeout_ms ends it, or without
        that until the client's timeout.
        """
        is_delivery_timed = self._settings.delivery_timeout_ms is not None
        deadline = self._client.deadline()
        left = self._settings.retries
        is_counted = is_delivery_timed or left is not None
        while True:
            try:
                return await attempt()
            except ApiError as error:
                if error.code not in (RETRIED | MOVED if is_counted else RETRIED):
                    raise
                queue.last_error = error
            except ClusterUnreachable as error:
                if not is_counted:
                    raise
                queue.last_error = error
            if left is not None:
                if left == 0:
                    raise queue.last_error
                left -= 1
            if not await deadline.pause():
                if not is_delivery_timed:
                    raise queue.last_error
                await self._client.transport.sleep(self._client.settings.retry_backoff_ms_max)
                deadline = self._client.deadline()

    async def _produce(self, tp: TopicPartition, data: bytes) -> tuple[int, int]:
        """Sends a batch; returns (base offset, append time)."""
        request = ProduceRequest(
            transactional_id=None if self._transaction is None else self._transaction.transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._client.settings.response_timeout_ms,
            topic_data=[
                TopicProduceData(name=tp.topic, partition_data=[PartitionProduceData(index=tp.partition, records=data)])
            ],
        )

        async def send_to(connection: Connection, _: list[TopicPartition]) -> Outcomes[tuple[int, int]]:
            try:
                if self._settings.acks == 0:
                    await connection.post(request)
                    return {tp: (-1, -1)}
                response = await connection.send(request, ProduceResponse)
            except ConnectionLost:
                self._metadata.pop(tp.topic, None)
                raise
            result = first_result(first_result(response.responses).partition_responses)
            code = ErrorCode.of(result.error_code)
            if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER or code is ErrorCode.NONE:
                return {tp: (result.base_offset, result.log_append_time_ms)}
            if code in LEADER_MOVED:
                self._metadata.pop(tp.topic, None)
            return {tp: ApiError(code, _refusal(result))}

        outcomes = await on_leaders(
            self._client,
            [tp],
            send_to,
            known=self._metadata.get(tp.topic),
            is_repeated=self._settings.retries is None,
        )
        outcome = outcomes[tp]
        if isinstance(outcome, ApiError):
            raise copy_of(outcome)
        return outcome

    async def _producer_id(self) -> tuple[int, int]:
        """(id, epoch), or (-1, -1) without idempotence."""
        if self._transaction is not None:
            return self._transaction.producer
        if not self._settings.idempotent:
            return -1, -1
        if self._producer is None:
            # A broker that is allocating its next block of ids responds COORDINATOR_LOAD_IN_PROGRESS (seen with 3.9.1).
            requests = self._client.on_any_broker(_init_producer_id, codes=COORDINATOR_MOVED)
            self._producer = asyncio.create_task(requests, name="get a producer id")
        requested = self._producer
        try:
            return await asyncio.shield(requested)  # other partitions wait for it too
        except KctlError:
            if self._producer is requested:
                self._producer = None
            raise
        finally:
            del requested


def _refusal(result: PartitionProduceResponse) -> str | None:
    """The message of the broker, with that about the first invalid record (KIP-467) if it has none (before 3.9)."""
    details = [one.batch_index_error_message for one in result.record_errors if one.batch_index_error_message]
    message = result.error_message or ""
    if not details or details[0] in message:
        return result.error_message
    more = f" and {len(details) - 1} more" if len(details) > 1 else ""
    return f"{message} ({details[0].rstrip('.')}{more})".strip()


def _is_too_large(delivery: Delivery) -> bool:
    return isinstance(delivery.error, ApiError) and delivery.error.code is ErrorCode.MESSAGE_TOO_LARGE


async def _init_producer_id(connection: Connection) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    response = await connection.send(request, InitProducerIdResponse)
    if response.error_code:
        code = ErrorCode.of(response.error_code)
        raise ApiError(code, f"{code.description} No producer id for idempotence; with acks=1 none is needed.")
    return response.producer_id, response.producer_epoch

"""The producer for applications without an event loop: an AsyncProducer on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self

from kctl.client.application.async_producer import AsyncProducer, SerializedRecord
from kctl.client.application.settings import ProducerConfig
from kctl.client.connections.loop_thread import LoopThread
from kctl.client.consuming.group_metadata import GroupMetadata
from kctl.client.consuming.positions import Position
from kctl.client.producing.batches import RecordMetadata
from kctl.client.producing.interceptors import ProducerRecord
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.model import TopicPartition
from kctl.system.reference_cycles import copy_of


class Producer:
    """Sends records in the background; use as a context manager.  `send` may be called by several threads.

    The records in memory take at most `buffer_memory` bytes and one record.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._thread: LoopThread | None = None
        self._room = threading.Condition()
        self._buffered_bytes = 0
        self._intake: deque[tuple[SerializedRecord, Future[RecordMetadata]]] = deque()
        self._is_drain_due = False

    def __enter__(self) -> Self:
        """Raises ApiError and ClusterUnreachable with a transactional id; else nothing is sent yet."""
        self._thread = LoopThread("kctl producer")
        try:
            self._thread.run(self._open())
        except BaseException:
            self._thread.close()
            self._thread = None
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Future[RecordMetadata]:
        """Queues a record; waits up to `max_block_ms` while the buffer is full.

        The future has the record's metadata, or raises a KctlError (unknown topic, not acknowledged in time, ...).
        Records for a partition are written in the order of the calls.  Raises ApiError (record too large, buffer full)
        and what serializers and interceptors raise.
        """
        thread = self._opened()
        record = ProducerRecord(topic, value, key, tuple(headers), partition, timestamp_ms)
        serialized = self._producer.serialize(record)
        self._reserve(serialized.size)
        future: Future[RecordMetadata] = Future()
        future.set_running_or_notify_cancel()  # a queued record cannot be withdrawn
        self._intake.append((serialized, future))
        if not self._is_drain_due:
            self._is_drain_due = True
            thread.loop.call_soon_threadsafe(self._drain_due.set)
        return future

    def flush(self) -> None:
        """Waits until every record has its result."""
        self._opened().run(self._flush())

    def begin_transaction(self) -> None:
        """Starts a transaction.  Raises UsageError without a transactional id, and inside a transaction."""
        self._opened().run(self._producer.begin_transaction())

    def send_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int | Position]) -> None:
        """Commits offsets of a group as part of the transaction: those of the next records to read.

        With the `group_metadata()` of a consumer instead of a group's id, a member that the group has excluded since
        cannot commit (KIP-447).  Raises ApiError, ClusterUnreachable, and UsageError outside a transaction.
        """
        self._opened().run(self._producer.send_offsets(group, offsets))

    def commit_transaction(self) -> None:
        """Sends all records and commits.

        Raises the first error of a record, after which the transaction has to be aborted; ApiError; and
        ClusterUnreachable when the outcome is unknown.
        """
        self._opened().run(self._after_intake(self._producer.commit_transaction))

    def abort_transaction(self) -> None:
        """Discards records that have not been sent, and aborts.  Raises ApiError and ClusterUnreachable."""
        self._opened().run(self._after_intake(self._producer.abort_transaction))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A block in one transaction: committed at its end, aborted if it raises.  Raises as the methods above do."""
        self.begin_transaction()
        try:
            yield
        except BaseException:
            self.abort_transaction()
            raise
        try:
            self.commit_transaction()
        except KctlError:
            with contextlib.suppress(KctlError):  # fails as well if the commit has an unknown outcome
                self.abort_transaction()
            raise

    def close(self) -> None:
        """Sends the remaining records, aborts an open transaction, and closes the connections."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            thread.run(self._after_intake(self._producer.close))
        finally:
            thread.close()
            del self._drainer

    async def _open(self) -> None:
        self._drain_due = asyncio.Event()
        self._draining = asyncio.Lock()
        self._producer = AsyncProducer(self._config)
        await self._producer.__aenter__()
        self._drainer = asyncio.create_task(self._keep_draining(), name="take over records")

    async def _keep_draining(self) -> None:
        while True:
            await self._drain_due.wait()
            self._drain_due.clear()
            self._is_drain_due = False  # before the intake is read: a later record sets the event again
            await self._drain()

    async def _drain(self) -> None:
        """Adds the queued records to batches, in their order."""
        async with self._draining:
            while self._intake:
                serialized, future = self._intake.popleft()
                resolve = self._resolver(serialized.size, future)
                try:
                    await self._producer.send_serialized(serialized, resolve)
                except Exception as error:
                    resolve(error)

    def _resolver(self, size: int, future: Future[RecordMetadata]) -> Callable[[RecordMetadata | Exception], None]:
        def resolve(result: RecordMetadata | Exception) -> None:
            with self._room:
                self._buffered_bytes -= size
                self._room.notify_all()
            if isinstance(result, Exception):
                future.set_exception(copy_of(result) if isinstance(result, KctlError) else result)
            else:
                future.set_result(result)

        return resolve

    async def _flush(self) -> None:
        await self._drain()
        await self._producer.flush()

    async def _after_intake(self, work: Callable[[], Any]) -> None:
        await self._drain()
        await work()

    def _reserve(self, size: int) -> None:
        block_ms = self._config.max_block_ms
        with self._room:
            if not self._room.wait_for(self._has_room, block_ms / 1000):
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the buffer was full for max.block.ms={block_ms}")
            self._buffered_bytes += size

    def _has_room(self) -> bool:
        return self._buffered_bytes < self._config.buffer_memory

    def _opened(self) -> LoopThread:
        if self._thread is None:
            raise UsageError("the producer is closed, or was not opened: use it in a with statement")
        return self._thread

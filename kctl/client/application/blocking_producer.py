"""The producer for applications without an event loop: an AsyncProducer on a thread of its own.

The calling threads add records to the batches themselves, and wake the thread of the loop when there is something to
send.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Self, TypeVar
from uuid import UUID

from kctl.client.application.async_producer import AsyncProducer, K, V
from kctl.client.application.record_future import RecordFuture, settle_all
from kctl.client.application.settings import ProducerConfig
from kctl.client.connections.loop_thread import ForkGuard, LoopThread
from kctl.client.consuming.groups.metadata import GroupMetadata
from kctl.client.consuming.positions import Position
from kctl.client.producing.batches import RecordMetadata
from kctl.errors import KctlError, UsageError
from kctl.model import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")


class SharedAsyncProducer(AsyncProducer[K, V]):
    """An AsyncProducer to which other threads add records."""

    def __init__(self, config: ProducerConfig) -> None:
        super().__init__(config)
        self._is_shared = True
        self._resolve = settle_all

    def send_from_thread(self, thread: LoopThread, *arguments: Any) -> RecordFuture:
        """Do what `send` does with the arguments of RecordRules.serialize.

        The error of a topic or partitioner is that of the future.
        """
        if self._rules.depends_on_topic and thread.is_current() and self._rules.preparation(arguments[0]) is not None:
            raise UsageError(
                "a callback must not wait for a schema registry: send to this topic in another thread first"
            )
        producer = self._producer
        if producer is None or self._transaction is not None or self._fork_guard.is_in_child:
            producer = self._sendable()
        topic, partition, fields, size, record = self._rules.serialize(*arguments)
        future = RecordFuture()
        handle = future if record is None else (record, future)
        while True:
            try:
                with producer.lock:
                    is_added = producer.add(topic, partition, fields, size, handle)
            except Exception as error:  # of the partitioner
                future.settle(error)
                return future
            if is_added:
                return future
            is_full = producer.is_full
            try:
                thread.run_beside(producer.ready(topic, partition))
            except KctlError as error:
                if is_full or isinstance(error, UsageError):
                    raise
                future.settle(error)
                return future
            self._sendable()


class Producer(Generic[K, V]):
    """Sends records in the background; use as a context manager.  Several threads may use it.

    `Producer[K, V]` has the types of the keys and values that the serializers take; without them any.
    The records in memory take at most `buffer_memory` bytes and one record.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._fork_guard = ForkGuard("producer")
        self._thread: LoopThread | None = None
        self._ending = threading.Lock()
        """Held by the caller of `close` that ends the thread."""

    def __enter__(self) -> Self:
        """Raise ApiError and ClusterUnreachable with a transactional id; else nothing is sent yet."""
        thread = LoopThread("kctl producer")
        try:
            self._producer: SharedAsyncProducer[K, V] = SharedAsyncProducer(self._config)
            thread.run_beside(self._producer.__aenter__())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Future[RecordMetadata]:
        """Add a record to a batch; wait up to `max_block_ms` while the buffer is full, and for the topic.

        The future has the record's metadata, or raises a KctlError (unknown topic, not acknowledged in time, ...).
        Records for a partition are written in the order of the calls.  Raises UsageError, which names the argument, for
        what cannot be written, outside a transaction, and in a callback that would have to wait; ApiError (record too
        large, buffer full, failed transaction); and what serializers and interceptors raise.
        """
        thread = self._thread if self._thread is not None and not self._fork_guard.is_in_child else self._opened()
        return self._producer.send_from_thread(thread, topic, value, key, headers, partition, timestamp_ms)

    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until every record that was sent before has its result.

        Raises ApiError(REQUEST_TIMED_OUT) after `timeout_ms`; the records are still sent.  Raises UsageError in a
        callback of the producer, whose thread would wait for itself.
        """
        self._run(self._producer.flush(timeout_ms))

    def metrics(self) -> dict[str, float]:
        """Totals since the start, and the state of the buffer; times in ms, sizes in bytes."""
        self._opened()
        return self._producer.metrics()

    def client_instance_id(self, timeout_ms: int) -> UUID:
        """Return the id that the brokers have given to this client for its telemetry (KIP-714).

        Raises ApiError (REQUEST_TIMED_OUT; UNSUPPORTED_VERSION if the brokers receive no metrics), ClusterUnreachable,
        and UsageError with enable_metrics_push=False.
        """
        return self._run(self._producer.client_instance_id(timeout_ms))

    def begin_transaction(self) -> None:
        """Start a transaction.  Raises UsageError without a transactional id, and inside a transaction."""
        self._run(self._producer.begin_transaction())

    def send_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int | Position]) -> None:
        """Commit offsets of a group as part of the transaction: those of the next records to read.

        With the `group_metadata()` of a consumer instead of a group's id, a member that the group has excluded since
        cannot commit (KIP-447).  Raises ApiError, ClusterUnreachable, and UsageError outside a transaction.
        """
        self._run(self._producer.send_offsets(group, offsets))

    def commit_transaction(self) -> None:
        """Send all records and commit.

        Raises the first error of a record, after which the transaction has to be aborted; ApiError; and
        ClusterUnreachable when the outcome is unknown.
        """
        self._run(self._producer.commit_transaction())

    def abort_transaction(self) -> None:
        """Discard records that have not been sent, and abort.  Raises ApiError and ClusterUnreachable."""
        self._run(self._producer.abort_transaction())

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a block in one transaction: committed at its end, aborted if it raises.

        Raises as the methods above do.
        """
        self.begin_transaction()
        try:
            yield
        except BaseException:
            self._abort_quietly()
            raise
        try:
            self.commit_transaction()
        except KctlError:
            self._abort_quietly()  # fails as well if the commit has an unknown outcome
            raise

    def close(self, timeout_ms: int | None = None) -> None:
        """Send the remaining records, abort an open transaction, and close the connections.

        After `timeout_ms` the records that have no result get an error.  Any thread may call it, also while others
        wait.  Raises UsageError in a callback of the producer.
        """
        thread = self._thread
        if thread is None or self._fork_guard.is_in_child:
            self._thread = None
            return
        thread.run_beside(self._producer.close(timeout_ms))
        with self._ending:
            if self._thread is not None:
                self._thread = None
                thread.close()

    def _abort_quietly(self) -> None:
        try:
            self.abort_transaction()
        except KctlError as error:
            logger.warning("abort failed transactional_id=%s error=%s", self._config.transactional_id, error)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            thread = self._opened()
        except UsageError:
            work.close()
            raise
        return thread.run_beside(work)

    def _opened(self) -> LoopThread:
        if self._fork_guard.is_in_child:
            raise UsageError(self._fork_guard.problem)
        if self._thread is None:
            raise UsageError("the producer is closed, or was not opened: use it in a with statement")
        return self._thread

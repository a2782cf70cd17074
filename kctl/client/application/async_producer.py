"""The producer for applications with an event loop; kctl.client.application.blocking_producer is for the others.

What is sent belongs to the producer: a caller that is cancelled only stops waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self
from uuid import UUID

from kctl.client.application.settings import ProducerConfig
from kctl.client.application.telemetry.payload import Metric
from kctl.client.application.telemetry.reporter import TelemetryReporter, fetch_client_instance_id
from kctl.client.application.telemetry.standard_metrics import PRODUCER, producer_metrics
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.loop_thread import ForkGuard, SharedWork
from kctl.client.connections.traffic import Window
from kctl.client.consuming.groups.metadata import GroupMetadata, require_offsets
from kctl.client.consuming.positions import Position
from kctl.client.producing.batches import RecordMetadata
from kctl.client.producing.interceptors import ProducerRecord
from kctl.client.producing.producer import Producer
from kctl.client.producing.results import Resolve
from kctl.client.producing.transaction import Transaction
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.system.reference_cycles import copy_of, weak_call

logger = logging.getLogger(__name__)


def _resolve_futures(
    futures: Sequence[asyncio.Future[RecordMetadata]], results: Sequence[RecordMetadata] | KctlError
) -> None:
    if isinstance(results, KctlError):
        for future in futures:
            if not future.done():  # cancelled by its owner, which does not withdraw the record
                future.set_exception(copy_of(results))
                # A caller that does not look at the result gets no warning; `commit_transaction` raises the error too.
                future.exception()
        return
    for future, result in zip(futures, results, strict=True):
        if not future.done():
            future.set_result(result)


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class AsyncProducer(Generic[K, V]):
    """Sends records; use as an async context manager.  Owner: event loop.

    `AsyncProducer[K, V]` has the types of the keys and values that the serializers take; without them any.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._rules = config.record_rules()
        self._client = ClusterClient(config.client_settings(), AsyncioTransport())
        self._fork_guard = ForkGuard("producer")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work = SharedWork()
        self._producer: Producer | None = None
        self._measured: Producer | None = None
        """The producer whose metrics are pushed, also while it is closed."""
        self._reporter = (
            TelemetryReporter(
                self._client, PRODUCER, weak_call(self._telemetry, []), weak_call(self._telemetry_resource, {})
            )
            if config.enable_metrics_push
            else None
        )
        self._transaction: Transaction | None = None
        self._is_in_transaction = False
        self._ending: asyncio.Task[None] | None = None
        """A commit or an abort."""
        self._is_committing = False
        self._closing: asyncio.Task[None] | None = None
        self._resolve: Resolve = _resolve_futures
        self._is_shared = False
        """Whether other threads add records."""

    async def __aenter__(self) -> Self:
        """With a transactional id, fences other producers with that id.  Raises ApiError and ClusterUnreachable."""
        config = self._config
        self._loop = asyncio.get_running_loop()
        self._create_future = self._loop.create_future
        try:
            if config.transactional_id is not None:
                self._transaction = await self._begin_epoch(config.transactional_id)
        except BaseException:
            await self._work.run(self._client.close(), "close a producer")
            raise
        self._producer = self._measured = Producer(
            self._client,
            config.producer_settings(),
            transaction=self._transaction,
            partitioner=config.partitioner,
            resolve=self._notify if config.interceptors else self._resolve,
            loop=self._loop if self._is_shared else None,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Add a record to a batch; wait up to `max_block_ms` while the buffer is full, and for the topic.

        The future has the record's metadata, or raises a KctlError.  Raises UsageError, which names the argument, for
        what cannot be written, and outside a transaction; ApiError (unknown topic or partition, record too large,
        buffer full, failed transaction); and what serializers and interceptors raise.
        """
        if self._rules.depends_on_topic and (prepare := self._rules.preparation(topic)) is not None:
            self._sendable()
            await self._work.run(asyncio.to_thread(prepare), "prepare serializers")
        producer = self._producer
        if producer is None or self._transaction is not None or self._fork_guard.is_in_child:
            producer = self._sendable()
        topic, partition, fields, size, record = self._rules.serialize(
            topic, value, key, headers, partition, timestamp_ms
        )
        future: asyncio.Future[RecordMetadata] = self._create_future()
        handle = future if record is None else (record, future)
        if producer.accumulator.has_full_batches:
            # Before the record is added: a caller who is cancelled here has not sent it.
            await asyncio.sleep(0)
            producer = self._sendable()
        while not producer.add(topic, partition, fields, size, handle):
            await producer.ready(topic, partition)
            self._sendable()  # the transaction may have ended meanwhile
        return future

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until every record that was sent before has its result.

        Raises ApiError(REQUEST_TIMED_OUT) after `timeout_ms`; the records are still sent.
        """
        producer = self._opened()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await producer.flush()
        except TimeoutError:
            left = counted(producer.buffered_records, "record")
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{left} without a result after {timeout_ms} ms") from None

    def metrics(self) -> dict[str, float]:
        """Totals since the start, and the state of the buffer; times in ms, sizes in bytes."""
        return self._opened().metrics()

    async def client_instance_id(self, timeout_ms: int) -> UUID:
        """Return the id that the brokers have given to this client for its telemetry (KIP-714).

        Raises ApiError (REQUEST_TIMED_OUT; UNSUPPORTED_VERSION if the brokers receive no metrics), ClusterUnreachable,
        and UsageError with enable_metrics_push=False.
        """
        self._opened()
        return await self._work.run(fetch_client_instance_id(self._reporter, timeout_ms), "get a client instance id")

    def _telemetry(self, window: Window) -> list[Metric]:
        producer = self._measured
        return [] if producer is None else producer_metrics(producer.metrics(), producer.take_queue_times(), window)

    def _telemetry_resource(self) -> dict[str, str]:
        transactional_id = self._config.transactional_id
        return {} if transactional_id is None else {"transactional_id": transactional_id}

    async def begin_transaction(self) -> None:
        """Start a transaction.  Raises UsageError without a transactional id, and inside a transaction."""
        transaction = self._transaction
        if transaction is None:
            raise UsageError("transactions require a transactional_id")
        if self._ending is not None and not self._ending.done():  # its caller was cancelled
            await asyncio.wait([self._ending])
        self._opened()
        if self._is_in_transaction:
            raise UsageError("the producer is already in a transaction: commit or abort it")
        if transaction.fatal is not None:
            raise copy_of(transaction.fatal)
        self._is_in_transaction = True

    async def send_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int | Position]) -> None:
        """Commit offsets of a group as part of the transaction: those of the next records to read.

        With the `group_metadata()` of a consumer instead of a group's id, a member that the group has excluded since
        cannot commit (KIP-447).  Raises ApiError, ClusterUnreachable, and UsageError outside a transaction.
        """
        require_offsets(offsets)
        await self._begun().add_offsets(GroupMetadata(group) if isinstance(group, str) else group, offsets)

    async def commit_transaction(self) -> None:
        """Send all records and commit.

        Raises the first error of a record, after which the transaction has to be aborted; ApiError; and
        ClusterUnreachable when the outcome is unknown.  If the caller is cancelled, the commit goes on.
        """
        await self._end(is_commit=True)

    async def abort_transaction(self) -> None:
        """Discard records that have not been sent, and abort.  Raises ApiError and ClusterUnreachable.

        If the caller is cancelled, the abort goes on.
        """
        await self._end(is_commit=False)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Run a block in one transaction: committed at its end, aborted if it raises.

        Raises as the methods above do.
        """
        await self.begin_transaction()
        try:
            yield
        except BaseException:
            await self._abort_quietly()
            raise
        try:
            await self.commit_transaction()
        except KctlError:
            await self._abort_quietly()  # fails as well if the commit has an unknown outcome
            raise

    async def close(self, timeout_ms: int | None = None) -> None:
        """Send the remaining records, abort an open transaction, and close the connections.

        After `timeout_ms` the records that have no result get an error.  If the caller is cancelled, closing goes on;
        another `close` waits for it.
        """
        if self._fork_guard.is_in_child:
            return
        if self._closing is None:
            self._closing = self._work.start(self._close(timeout_ms), "close a producer")
        await asyncio.shield(self._closing)

    async def _close(self, timeout_ms: int | None) -> None:
        producer, self._producer = self._producer, None
        started_ms = self._client.transport.monotonic_ms()
        try:
            if producer is not None:
                with contextlib.suppress(TimeoutError, KctlError):  # the coordinator aborts after the timeout
                    async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                        await self._finish(producer)
        finally:
            try:
                if producer is not None:
                    await producer.stop(UsageError("the producer was closed before the record was acknowledged"))
            finally:
                if self._reporter is not None:
                    used_ms = self._client.transport.monotonic_ms() - started_ms
                    await self._reporter.close(None if timeout_ms is None else max(0, timeout_ms - used_ms))
                self._measured = None
                await self._client.close()

    async def _finish(self, producer: Producer) -> None:
        if self._ending is not None and not self._ending.done():
            await asyncio.wait([self._ending])
        if self._is_in_transaction:
            await self._abort(producer)
        else:
            await producer.flush()

    async def _end(self, *, is_commit: bool) -> None:
        """Commit or abort; join what is in progress because its caller was cancelled."""
        ending = self._ending
        if ending is not None and not ending.done() and self._is_committing is not is_commit:
            await asyncio.wait([ending])
        if ending is None or ending.done():
            self._begun()
            producer = self._opened()
            self._is_committing = is_commit
            work = self._commit(producer) if is_commit else self._abort(producer)
            ending = self._ending = self._work.start(work, "end a transaction")
        await asyncio.shield(ending)

    async def _commit(self, producer: Producer) -> None:
        transaction = self._begun()
        await producer.flush()
        if producer.failure is not None:
            raise copy_of(producer.failure)
        await transaction.commit()
        producer.begin_transaction(transaction)
        self._is_in_transaction = False

    async def _abort(self, producer: Producer) -> None:
        transaction = self._begun()
        await producer.discard(ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, "the transaction was aborted"))
        await transaction.abort()
        if producer.needs_new_epoch or transaction.is_forgotten:
            # The sequence numbers of a failed batch are missing at the broker: continue with a new epoch (KIP-360).
            renewed = await self._begin_epoch(
                transaction.transactional_id, None if transaction.is_forgotten else transaction
            )
            transaction = self._transaction = renewed
        producer.begin_transaction(transaction)
        self._is_in_transaction = False

    async def _abort_quietly(self) -> None:
        """Abort after an error, which the caller raises."""
        try:
            await self.abort_transaction()
        except KctlError as error:
            logger.warning("abort failed transactional_id=%s error=%s", self._config.transactional_id, error)

    async def _begin_epoch(self, transactional_id: str, previous: Transaction | None = None) -> Transaction:
        return await Transaction.begin(
            self._client,
            transactional_id,
            timeout_ms=self._config.transaction_timeout_ms,
            previous=None if previous is None else previous.producer,
        )

    def _notify(
        self, handles: Sequence[tuple[ProducerRecord, Any]], results: Sequence[RecordMetadata] | KctlError
    ) -> None:
        """Pass the results of records to the interceptors, and then to the futures."""
        for index, (record, _) in enumerate(handles):
            result = results if isinstance(results, KctlError) else results[index]
            for interceptor in self._config.interceptors:
                try:
                    interceptor.on_result(record, result)
                except Exception:
                    logger.exception("interceptor failed topic=%s", record.topic)
        self._resolve([future for _, future in handles], results)

    def _sendable(self) -> Producer:
        """Return the producer, if records may be sent.  Raises UsageError and ApiError."""
        producer = self._opened()
        if self._transaction is not None:
            if not self._is_in_transaction:
                raise UsageError("this producer has a transactional id: call begin_transaction first")
            if self._ending is not None and not self._ending.done():
                raise UsageError("the transaction is being committed or aborted")
            if producer.failure is not None:
                failure = producer.failure
                text = f"the transaction has failed and must be aborted: {failure}"
                raise ApiError(failure.code, text) if isinstance(failure, ApiError) else copy_of(failure)
        return producer

    def _opened(self) -> Producer:
        if self._producer is None or self._fork_guard.is_in_child:
            if self._fork_guard.is_in_child:
                raise UsageError(self._fork_guard.problem)
            raise UsageError("the producer is closed, or was not opened: use it in a with statement")
        return self._producer

    def _begun(self) -> Transaction:
        if self._transaction is None or not self._is_in_transaction:
            raise UsageError("the producer is not in a transaction")
        return self._transaction

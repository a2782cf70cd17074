"""The producer for applications with an event loop; kctl.client.application.blocking_producer is for the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from kctl.client.application.settings import ProducerConfig
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.consuming.group_metadata import GroupMetadata, require_offsets
from kctl.client.consuming.positions import Position
from kctl.client.producing.batches import OnResult, RecordMetadata, size_of
from kctl.client.producing.interceptors import ProducerRecord
from kctl.client.producing.producer import Producer
from kctl.client.producing.transaction import Transaction
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.records.header import Record
from kctl.system.reference_cycles import copy_of

logger = logging.getLogger(__name__)


class SerializedRecord(NamedTuple):
    """A record as it is sent, and its approximate size in bytes."""

    record: ProducerRecord
    key: bytes | None
    value: bytes | None
    size: int


class AsyncProducer:
    """Sends records; use as an async context manager.  Owner: event loop."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._client = ClusterClient(config.client_settings(), AsyncioTransport())
        self._producer: Producer | None = None
        self._transaction: Transaction | None = None
        self._is_in_transaction = False

    async def __aenter__(self) -> Self:
        """With a transactional id, fences other producers with that id.  Raises ApiError and ClusterUnreachable."""
        config = self._config
        if config.transactional_id is not None:
            self._transaction = await self._begin_epoch(config.transactional_id)
        self._producer = Producer(
            self._client,
            config.producer_settings(),
            lambda _: None,
            transaction=self._transaction,
            partitioner=config.partitioner,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def serialize(self, record: ProducerRecord) -> SerializedRecord:
        """Applies the interceptors and serializers.

        Raises what they raise, and ApiError(MESSAGE_TOO_LARGE) for a record above `max_request_size`.
        """
        for interceptor in self._config.interceptors:
            record = interceptor.on_send(record)
        key = self._config.key_serializer(record.key)
        value = self._config.value_serializer(record.value)
        size = size_of(Record(0, 0, key, value, record.headers))
        if size > self._config.max_request_size:
            text = (
                f"a record of {counted(size, 'byte')} is larger than max.request.size={self._config.max_request_size}"
            )
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, text)
        return SerializedRecord(record, key, value, size)

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Adds a record to a batch; waits up to `max_block_ms` while the buffer is full.

        The future has the record's metadata, or raises a KctlError.  Raises ApiError (unknown topic, record too large,
        buffer full), UsageError outside a transaction, and what serializers and interceptors raise.
        """
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        # A caller that does not look at the result gets no warning; `commit_transaction` raises the error as well.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

        def resolve(result: RecordMetadata | KctlError) -> None:
            if future.done():
                return
            if isinstance(result, KctlError):
                future.set_exception(copy_of(result))
            else:
                future.set_result(result)

        record = ProducerRecord(topic, value, key, tuple(headers), partition, timestamp_ms)
        await self.send_serialized(self.serialize(record), resolve)
        return future

    async def send_serialized(self, serialized: SerializedRecord, on_result: OnResult) -> None:
        """Adds a serialized record to a batch; raises as `send` does."""
        producer = self._opened()
        if self._transaction is not None and not self._is_in_transaction:
            raise UsageError("this producer has a transactional id: call begin_transaction first")
        record = serialized.record
        interceptors = self._config.interceptors

        def notify(result: RecordMetadata | KctlError) -> None:
            for interceptor in interceptors:
                try:
                    interceptor.on_result(record, result)
                except Exception:
                    logger.exception("interceptor failed topic=%s", record.topic)
            on_result(result)

        await producer.send(
            record.topic,
            serialized.value,
            key=serialized.key,
            headers=record.headers,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            on_result=notify if interceptors else on_result,
        )

    async def flush(self) -> None:
        """Waits until every record has its result."""
        await self._opened().flush()

    async def begin_transaction(self) -> None:
        """Starts a transaction.  Raises UsageError without a transactional id, and inside a transaction."""
        if self._transaction is None:
            raise UsageError("transactions require a transactional_id")
        if self._is_in_transaction:
            raise UsageError("the producer is already in a transaction")
        self._is_in_transaction = True

    async def send_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int | Position]) -> None:
        """Commits offsets of a group as part of the transaction: those of the next records to read.

        With the `group_metadata()` of a consumer instead of a group's id, a member that the group has excluded since
        cannot commit (KIP-447).  Raises ApiError, ClusterUnreachable, and UsageError outside a transaction.
        """
        require_offsets(offsets)
        await self._begun().add_offsets(GroupMetadata(group) if isinstance(group, str) else group, offsets)

    async def commit_transaction(self) -> None:
        """Sends all records and commits.

        Raises the first error of a record, after which the transaction has to be aborted; ApiError; and
        ClusterUnreachable when the outcome is unknown.
        """
        transaction = self._begun()
        producer = self._opened()
        await producer.flush()
        if producer.failure is not None:
            raise copy_of(producer.failure)
        await transaction.commit()
        self._is_in_transaction = False

    async def abort_transaction(self) -> None:
        """Discards records that have not been sent, and aborts.  Raises ApiError and ClusterUnreachable."""
        transaction = self._begun()
        producer = self._opened()
        has_failed = producer.failure is not None
        await producer.discard(ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, "the transaction was aborted"))
        await transaction.abort()
        if has_failed:
            # The sequence numbers of a failed batch are missing at the broker: continue with a new epoch (KIP-360).
            transaction = self._transaction = await self._begin_epoch(transaction.transactional_id)
        producer.begin_transaction(transaction)
        self._is_in_transaction = False

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A block in one transaction: committed at its end, aborted if it raises.  Raises as the methods above do."""
        await self.begin_transaction()
        try:
            yield
        except BaseException:
            await self.abort_transaction()
            raise
        try:
            await self.commit_transaction()
        except KctlError:
            with contextlib.suppress(KctlError):  # fails as well if the commit has an unknown outcome
                await self.abort_transaction()
            raise

    async def close(self) -> None:
        """Sends the remaining records, aborts an open transaction, and closes the connections."""
        producer, self._producer = self._producer, None
        try:
            if producer is not None and self._is_in_transaction:
                self._producer = producer
                with contextlib.suppress(KctlError):  # the coordinator aborts after the timeout
                    await self.abort_transaction()
                self._producer = None
            elif producer is not None:
                await producer.flush()
        finally:
            if producer is not None:
                producer.abandon()
            await self._client.close()

    async def _begin_epoch(self, transactional_id: str) -> Transaction:
        return await Transaction.begin(self._client, transactional_id, timeout_ms=self._config.transaction_timeout_ms)

    def _opened(self) -> Producer:
        if self._producer is None:
            raise UsageError("the producer is closed, or was not opened: use it in a with statement")
        return self._producer

    def _begun(self) -> Transaction:
        if self._transaction is None or not self._is_in_transaction:
            raise UsageError("the producer is not in a transaction")
        return self._transaction

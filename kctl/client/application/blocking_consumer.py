"""The consumer for applications without an event loop: an AsyncConsumer on a thread of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Self, TypeVar, overload
from uuid import UUID

from kctl.client.application.async_consumer import AsyncConsumer, Offset
from kctl.client.application.consumer_records import ConsumerRecord, K, V
from kctl.client.application.settings import ConsumerConfig, Deserializer, Subscription
from kctl.client.connections.loop_thread import LoopThread
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.client.consuming.groups.consumer import CLOSE_MS
from kctl.client.consuming.groups.metadata import GroupMetadata, RebalanceListener
from kctl.client.consuming.list_offsets import OffsetAt
from kctl.client.consuming.positions import Position
from kctl.errors import UsageError
from kctl.model import TopicPartition

T = TypeVar("T")


class BlockingRebalanceListener:
    """As RebalanceListener, called in the thread that calls `poll`; its methods may call the consumer's."""

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were added and have start positions, which `seek` can change."""

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions are about to be revoked; their offsets can still be committed."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were lost, for example because the session has expired; others may own them already."""


class Consumer(Generic[K, V]):
    """Reads the partitions that a group or the caller assigns; use as a context manager.  For one thread.

    Heartbeats, fetches and automatic commits happen in the background.  If the block raises, the last records are not
    committed.  Only `wakeup` and `close` may be called by other threads.
    """

    @overload
    def __init__(self: Consumer[Any, Any], config: ConsumerConfig) -> None: ...

    @overload
    def __init__(
        self,
        config: ConsumerConfig,
        *,
        key_deserializer: Callable[[bytes | None], K],
        value_deserializer: Callable[[bytes | None], V],
    ) -> None: ...

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> None:
        """Prepare the consumer; the deserializers replace those of the settings, and give the records their types."""
        self._config = config
        self._deserializers = (
            key_deserializer or config.key_deserializer,
            value_deserializer or config.value_deserializer,
        )
        self._thread: LoopThread | None = None
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        """Send nothing yet."""
        self._thread = LoopThread("kctl consumer")
        self._thread.run(self._open())
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        self.close(commit=error_type is None)

    def subscribe(self, topics: Subscription, listener: BlockingRebalanceListener | None = None) -> None:
        """Read the partitions that the group assigns, of these topics, or of those whose whole names match a pattern.

        A pattern is one of `re.compile` or a SubscriptionPattern.  The group is joined by `poll`.  New partitions and
        topics are read after metadata_max_age_ms at most.

        Replaces an earlier subscription or assignment.  Raises UsageError without a group_id.
        """
        thread = self._opened()
        thread.run(self._consumer.subscribe(topics, None if listener is None else _InCaller(thread, listener)))

    def assign(self, partitions: Collection[TopicPartition] | Mapping[TopicPartition, int | Position]) -> None:
        """Read these partitions, from the given offsets, else from the committed ones, else by auto_offset_reset.

        `poll` checks that the log still has the history before committed offsets and before each Position.  Raises
        ApiError and ClusterUnreachable.
        """
        self._opened().run(self._consumer.assign(partitions))

    def unsubscribe(self) -> None:
        """Leave the group, after a commit if commits are automatic, and drop the partitions."""
        self._opened().run(self._consumer.unsubscribe())

    def close(self, *, commit: bool = True, timeout_ms: int = CLOSE_MS) -> None:
        """Leave the group and close the connections; commit before if `commit` and commit are automatic.

        Takes about twice the timeout at most.  Called by another thread, it makes the call in progress raise WokenUp.
        """
        thread = self._thread
        if thread is None:
            return
        if self._pid != os.getpid():
            self._thread = None  # The member and the thread belong to the process that has forked.
            return
        asyncio.run_coroutine_threadsafe(self._consumer.close(commit=commit, timeout_ms=timeout_ms), thread.loop)
        try:
            thread.run(self._consumer.close())
        finally:
            self._thread = None
            thread.close()

    def wakeup(self) -> None:
        """Make the `poll` or iteration in progress, or else the next one, raise WokenUp.  For any thread."""
        if self._thread is not None:
            self._consumer.wakeup()

    def poll(self, timeout_ms: int = 1_000) -> list[ConsumerRecord[K, V]]:
        """Return the next records, at most `max_poll_records`; empty if none arrived in time.

        Records returned before count as processed: automatic commits include them.  Raises ApiError (not authorized,
        offset out of range, fenced member, ...), LogTruncated if auto_offset_reset is "none" and the log no longer has
        the records before a position, CorruptBatch, ClusterUnreachable if no broker has responded yet, WokenUp, and
        DeserializationFailed; the next call then continues with the same record.
        """
        return self._opened().run(self._consumer.poll(timeout_ms))

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Yield all records, without end.  Raises as `poll` does."""
        while True:
            part = self._opened().run(self._consumer.next_part())
            consumer = self._consumer
            # The records of a part are taken without a switch of threads.
            while (record := consumer.next_of(part)) is not None:
                yield from consumer.intercepted(record)
                if consumer.must_attend(part):
                    break

    def client_instance_id(self, timeout_ms: int) -> UUID:
        """Return the id that the brokers have given to this client for its telemetry (KIP-714).

        Raises ApiError (REQUEST_TIMED_OUT; UNSUPPORTED_VERSION if the brokers receive no metrics), ClusterUnreachable,
        and UsageError with enable_metrics_push=False.
        """
        return self._opened().run(self._consumer.client_instance_id(timeout_ms))

    def metrics(self) -> dict[str, float]:
        """Totals since the subscription or assignment, and present values; names as of Kafka's metrics of consumers.

        `records-lag.TOPIC-PARTITION` is the number of records after the position, as of the last fetch.
        """
        return self._on_loop(self._consumer.metrics)

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        return self._on_loop(lambda: self._consumer.assignment)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return self._on_loop(lambda: self._consumer.paused)

    def position(self, tp: TopicPartition) -> int:
        """Return the offset of the next record that `poll` returns.

        Raises UsageError for a partition that is not read.
        """
        return self._on_loop(lambda: self._consumer.position(tp))

    def with_epochs(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Position]:
        """Return the offsets with the leader epochs of the records before them, as far as this consumer has read
        those.
        """
        return self._on_loop(lambda: self._consumer.with_epochs(offsets))

    def seek(self, tp: TopicPartition, offset: int | Position) -> None:
        """Continue with this offset; with a Position, the history before it is checked.

        Raises UsageError for a partition that is not read.
        """
        self._on_loop(lambda: self._consumer.seek(tp, offset))

    def seek_to_beginning(self, partitions: Collection[TopicPartition]) -> None:
        """Continue with the first records.  Raises ApiError, ClusterUnreachable and UsageError."""
        self._opened().run(self._consumer.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Collection[TopicPartition]) -> None:
        """Continue with records that are written from now on.  Raises ApiError, ClusterUnreachable and UsageError."""
        self._opened().run(self._consumer.seek_to_end(partitions))

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Keep partitions without reading them, until `resume` or a revocation.  Raises UsageError."""
        self._on_loop(lambda: self._consumer.pause(partitions))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Read paused partitions again.  Raises UsageError for a partition that is not assigned."""
        self._on_loop(lambda: self._consumer.resume(partitions))

    def commit(self, offsets: Mapping[TopicPartition, Offset] | None = None, *, timeout_ms: int | None = None) -> None:
        """Commit these offsets (of the next records to read), or those after the records returned so far.

        Retries until the timeout, default_api_timeout_ms by default.  Raises CommitFailed if a rebalance has taken a
        partition away, ApiError, ClusterUnreachable and UsageError.
        """
        self._opened().run(self._consumer.commit(offsets, timeout_ms=timeout_ms))

    def commit_async(self, offsets: Mapping[TopicPartition, Offset] | None = None) -> Future[None]:
        """As `commit`, in the background; the future gets the error."""
        thread = self._opened()
        taken = self._on_loop(self._consumer.positions) if offsets is None else offsets
        return asyncio.run_coroutine_threadsafe(self._consumer.commit(taken), thread.loop)

    def group_metadata(self) -> GroupMetadata:
        """Return the identity of the member, with which `send_offsets` of a producer fences former members of the
        group.  Raises UsageError.
        """
        return self._on_loop(self._consumer.group_metadata)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of the group, of those partitions that have one.

        Raises ApiError, ClusterUnreachable, and UsageError without a group_id.
        """
        return self._opened().run(self._consumer.committed(partitions))

    def committed_details(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """As `committed`, with leader epochs and metadata."""
        return self._opened().run(self._consumer.committed_details(partitions))

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic.  Raises ApiError for one that does not exist, and ClusterUnreachable."""
        return self._opened().run(self._consumer.partitions_of(topic))

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of the first records.  Raises ApiError and ClusterUnreachable."""
        return self._opened().run(self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets after the last visible records.  Raises ApiError and ClusterUnreachable."""
        return self._opened().run(self._consumer.end_offsets(partitions))

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt | None]:
        """Return the first record at or after each time (ms since the epoch), None if there is none.

        Raises ApiError and ClusterUnreachable.
        """
        return self._opened().run(self._consumer.offsets_for_times(times_ms))

    async def _open(self) -> None:
        key_deserializer, value_deserializer = self._deserializers
        self._consumer: AsyncConsumer[K, V] = AsyncConsumer(
            self._config, key_deserializer=key_deserializer, value_deserializer=value_deserializer
        )

    def _on_loop(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self._opened().run(run())

    def _opened(self) -> LoopThread:
        if self._pid != os.getpid():
            raise UsageError("the consumer was created before this process was forked: create one in each process")
        if self._thread is None:
            raise UsageError("the consumer is closed, or was not opened: use it in a with statement")
        return self._thread


class _InCaller(RebalanceListener):
    """Calls a listener in the thread that has called the consumer."""

    def __init__(self, thread: LoopThread, listener: BlockingRebalanceListener) -> None:
        self._thread = thread
        self._listener = listener

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await self._thread.in_caller(lambda: self._listener.on_assigned(partitions))

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await self._thread.in_caller(lambda: self._listener.on_revoked(partitions))

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        await self._thread.in_caller(lambda: self._listener.on_lost(partitions))

"""Waits until the records of a Produce request are committed, or flushed; Kafka's DelayedProduce."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeVar

from kctl.errors import ErrorCode, LogDirFailure
from kctl.metrics.definitions import Durations
from kctl.model import TopicPartition
from kctl.protocol.apis.produce import PartitionProduceResponse
from kctl.server.loop.tasks import in_thread
from kctl.server.replication.partition import Partition
from kctl.storage.log.log import Log
from kctl.system.environment import Clock

R = TypeVar("R")
"""A response, or a reply that was written already."""


class UncommittedAppend:
    """A partition whose records are not committed or, if `min_insync_replicas` is None, not flushed yet."""

    __slots__ = ("_min_insync_replicas", "fail", "partition", "required_offset")

    def __init__(
        self,
        partition: Partition,
        required_offset: int,
        fail: Callable[[ErrorCode], None],
        *,
        min_insync_replicas: int | None,
    ) -> None:
        """`fail` sets the error of the partition in the response."""
        self._min_insync_replicas = min_insync_replicas
        self.partition = partition
        self.required_offset = required_offset
        self.fail = fail

    def is_settled(self) -> bool:
        """Return whether the result is known; `fail` was called if it is an error."""
        partition = self.partition
        if not partition.may_lead:
            self.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        if not partition.log.log_directory.is_online:
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            return True
        if self._min_insync_replicas is None:
            return partition.log.settled_end_offset >= self.required_offset
        if partition.high_watermark < self.required_offset:
            return False
        if len(partition.isr) < self._min_insync_replicas:
            self.fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True


def fail_append(partition_result: PartitionProduceResponse, code: ErrorCode) -> None:
    """Set the error of an append that was not committed."""
    partition_result.error_code = code
    partition_result.base_offset = -1
    partition_result.log_append_time_ms = -1


class DelayedProduce(Generic[R]):
    """A produce request with acks=-1 that waits until all its partitions are complete."""

    def __init__(self, respond: Callable[[], R], appended: list[UncommittedAppend]) -> None:
        """`respond` returns the response when all results are known."""
        self.future: asyncio.Future[R] | None = None
        self._respond = respond
        self._unsettled: dict[TopicPartition, list[UncommittedAppend]] = {}
        for waiting in appended:
            self._unsettled.setdefault(waiting.partition.topic_partition, []).append(waiting)

    def try_complete(self, changed: Collection[TopicPartition]) -> bool:
        """Complete if all partitions are complete."""
        for topic_partition in changed:
            unsettled = [append for append in self._unsettled.pop(topic_partition, ()) if not append.is_settled()]
            if unsettled:
                self._unsettled[topic_partition] = unsettled
        if self._unsettled:
            return False
        self._complete()
        return True

    def on_timeout(self) -> None:
        """Complete; partitions that are not complete get REQUEST_TIMED_OUT."""
        for unsettled in self._unsettled.values():
            for waiting in unsettled:
                waiting.fail(ErrorCode.REQUEST_TIMED_OUT)
        self._complete()

    def _complete(self) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(self._respond())


# Runs the fsyncs that appends wait for (`flush.messages`) off the event loop.
#
# Kafka flushes inside the append, so the response is sent and the high watermark advances after the flush. Here the
# append returns at once, and the log reports records that must not be acknowledged yet; a thread flushes, then
# requests that wait for the partition are woken. Appends during a flush share the next one.
#
# Owner: event loop.


class AppendFlushes:
    """Runs one flush at a time per log; call `close` before the logs are closed."""

    def __init__(
        self, clock: Clock, *, on_settled: Callable[[Log], None], on_failure: Callable[[LogDirFailure], None]
    ) -> None:
        self.times = Durations()
        """Durations of all flushes of this broker."""
        self._clock = clock
        self._on_settled = on_settled
        self._on_failure = on_failure
        self._running: dict[Log, asyncio.Task[None]] = {}

    def request(self, log: Log) -> None:
        """Flush the log soon, if appends wait for it and no flush of it is running."""
        if log.awaits_flush and log not in self._running:
            self._running[log] = asyncio.get_running_loop().create_task(self._flush(log), name="flush")

    async def settle(self, logs: Iterable[Log]) -> None:
        """Return when no append to these logs waits for a flush, or their log directory has failed."""
        waiting = [log for log in logs if log.awaits_flush]
        for log in waiting:
            self.request(log)
        for log in waiting:
            task = self._running.get(log)
            if task is not None:
                await asyncio.wait([task])

    async def close(self) -> None:
        """Wait for running flushes."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _flush(self, log: Log) -> None:
        try:
            while log.awaits_flush:
                plan = log.plan_flush()
                started_ms = self._clock.monotonic_ms()
                try:
                    await in_thread(plan.run)
                except OSError as error:
                    if plan.directory == log.directory:
                        raise log.log_directory.fail(error) from error
                    continue  # It was moved or deleted in the meantime; then nothing waits for it.
                self.times.record(self._clock.monotonic_ms() - started_ms)
                log.flushed(plan, self._clock.now_ms())
                self._on_settled(log)
        except LogDirFailure as failure:
            self._on_failure(failure)
        finally:
            del self._running[log]

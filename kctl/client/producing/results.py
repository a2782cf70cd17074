"""The results of batches: passes them to those who wait, counts them, and keeps the first error of a transaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kctl.client.connections.traffic import Spread
from kctl.client.producing.accumulator import Accumulator, PartitionQueue
from kctl.client.producing.batches import Batch, Delivery, OnResult, RecordMetadata
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.system.reference_cycles import copy_of

logger = logging.getLogger(__name__)

Resolve = Callable[[Sequence[Any], Sequence[RecordMetadata] | KctlError], None]
"""Passes the results of the records of a batch, or the error of all, to what was given to `send` as `on_result`."""


def call_each(handles: Sequence[OnResult], results: Sequence[RecordMetadata] | KctlError) -> None:
    """Call each callback with its result.  What one raises is logged, and does not stop the others."""
    for index, handle in enumerate(handles):
        try:
            handle(copy_of(results) if isinstance(results, KctlError) else results[index])
        except Exception:
            logger.exception("a callback failed")


def as_kctl_error(error: Exception) -> KctlError:
    """Return an error of kctl as it is; another one, which is a bug or the caller's data, with its type."""
    if isinstance(error, KctlError):
        return copy_of(error)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")


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
    queue_times: Spread = field(default_factory=Spread)
    """How long batches have waited until they were sent for the first time, in ms."""

    def add_request(self, took_s: float) -> None:
        """Count a request with a response."""
        self.requests += 1
        self.request_s += took_s
        self.request_s_max = max(self.request_s_max, took_s)

    def take_queue_times(self) -> Spread:
        """Return the times since the last call."""
        times, self.queue_times = self.queue_times, Spread()
        return times

    def metrics(self) -> dict[str, float]:
        """Totals since the start; times in ms, sizes in bytes."""
        return {
            "records_acknowledged_total": self.records,
            "records_failed_total": self.failed,
            "bytes_acknowledged_total": self.bytes,
            "batches_acknowledged_total": self.batches,
            "batches_retried_total": self.retries,
            "batches_split_total": self.splits,
            "requests_total": self.requests,
            "request_time_ms_total": self.request_s * 1000,
            "request_time_ms_max": self.request_s_max * 1000,
            "connections_failed_total": self.connections_failed,
        }


class Flush:
    """A caller that waits for the batches of its time."""

    def __init__(self) -> None:
        self.left = 0
        self.arrival: asyncio.Future[None] | None = None


class Results:
    """Receives the result of every batch.  Owner: event loop."""

    def __init__(
        self, accumulator: Accumulator, resolve: Resolve, on_delivery: Callable[[Delivery], None] | None
    ) -> None:
        self.counters = ProducerCounters()
        self.failure: KctlError | None = None
        """The last error of a batch; in a transaction the first."""
        self.needs_new_epoch = False
        """Whether a batch with a sequence number has failed in the transaction: the next one needs a new epoch."""
        self.room_waiters: set[asyncio.Future[None]] = set()
        """Callers that wait until the buffer has room."""
        self._accumulator = accumulator
        self._resolve = resolve
        self._on_delivery = on_delivery

    def acknowledge(self, queue: PartitionQueue, batch: Batch, base_offset: int, timestamp_ms: int) -> None:
        """Note that the batch was written.  `timestamp_ms` is the append time, or -1."""
        self.counters.batches += 1
        self.counters.records += len(batch.records)
        self.counters.bytes += batch.size
        self._finish(batch, Delivery(queue.tp, batch.records, base_offset, timestamp_ms))

    def fail(self, queue: PartitionQueue, batch: Batch, error: KctlError) -> None:
        """Note that the batch was not written, or that this is not known."""
        if batch.base_sequence >= 0:
            self.needs_new_epoch = True
        self.counters.failed += len(batch.records)
        self.failure = self.failure if self.failure is not None and self._accumulator.is_transactional else error
        self._finish(batch, Delivery(queue.tp, batch.records, -1, -1, error))

    def abandon(self, queue: PartitionQueue, batch: Batch, reason: KctlError, *, is_reported: bool) -> None:
        """Note that the producer stops; unless `is_reported`, only those who flush learn that."""
        if not is_reported:
            batch.handles.clear()
        self._finish(batch, Delivery(queue.tp, batch.records, -1, -1, reason), is_reported=is_reported)

    def _finish(self, batch: Batch, delivery: Delivery, *, is_reported: bool = True) -> None:
        """Pass the result of a batch on.  What a callback raises is logged, and does not stop the others."""
        try:
            handles, batch.handles = batch.handles, []
            if handles:
                self._resolve_all(handles, delivery)
            if is_reported and self._on_delivery is not None:
                self._on_delivery(delivery)
        except Exception:
            logger.exception("a callback failed partition=%s", delivery.tp)
        for flush in batch.flushes:
            flush.left -= 1
            if not flush.left and isinstance(flush, Flush) and flush.arrival is not None and not flush.arrival.done():
                flush.arrival.set_result(None)
        if self._accumulator.has_room and self.room_waiters:
            for waiter in self.room_waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _resolve_all(self, handles: list[Any], delivery: Delivery) -> None:
        """Pass the results of the records to those who want them."""
        del handles[delivery.count :]
        results = None if delivery.error is not None else delivery.metadata()
        if None in handles:
            wanted = [index for index, handle in enumerate(handles) if handle is not None]
            handles = [handles[index] for index in wanted]
            results = None if results is None else [results[index] for index in wanted]
        self._resolve(handles, delivery.error or (results or [])[: len(handles)])

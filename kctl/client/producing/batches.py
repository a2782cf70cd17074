"""Batches of records that wait for one partition, and their results.  Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.records.header import Record

RECORD_OVERHEAD = 24
"""Approximate size in bytes of a record without its key, value and headers."""


class RecordMetadata(NamedTuple):
    """Where a record was written: `offset` is -1 with acks=0; `timestamp_ms` is the record's, or its append time."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


OnResult = Callable[[RecordMetadata | KctlError], None]
"""Called with the result of one record."""


class Batch:
    """Records of one partition that are sent together, with the callbacks of those records that have one."""

    __slots__ = ("_callbacks", "created_ms", "records", "size")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.size = 0
        """Approximate size in bytes."""
        self.created_ms = 0
        """Time of the first record, of a monotonic clock."""
        self._callbacks: list[tuple[int, OnResult]] = []

    def append(self, record: Record, size: int, on_result: OnResult | None) -> None:
        """Adds a record of this size."""
        if on_result is not None:
            self._callbacks.append((len(self.records), on_result))
        self.records.append(record)
        self.size += size

    def extend(self, records: list[Record], size: int) -> None:
        """Adds records without callbacks, of this size together."""
        self.records += records
        self.size += size

    def halves(self) -> tuple[Batch, Batch]:
        """Two batches with the records and callbacks of this one, in order."""
        halves = (Batch(), Batch())
        middle = len(self.records) // 2
        callbacks = dict(self._callbacks)
        for index, record in enumerate(self.records):
            halves[index >= middle].append(record, size_of(record), callbacks.get(index))
        for half in halves:
            half.created_ms = self.created_ms
        return halves

    def finish(self, tp: TopicPartition, base_offset: int, timestamp_ms: int, error: KctlError | None) -> None:
        """Calls the callbacks of all records.  `timestamp_ms` is the append time, or -1 for the records' own."""
        for index, callback in self._callbacks:
            if error is not None:
                callback(error)
                continue
            offset = -1 if base_offset < 0 else base_offset + index
            written_ms = self.records[index].timestamp if timestamp_ms < 0 else timestamp_ms
            callback(RecordMetadata(tp.topic, tp.partition, offset, written_ms))
        self._callbacks.clear()


def size_of(record: Record) -> int:
    """The approximate size of a record in bytes."""
    size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    if record.headers:
        size += sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
    return size

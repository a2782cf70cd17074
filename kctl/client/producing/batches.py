"""Batches of records that wait for one partition, and their results.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any, NamedTuple, Protocol

from kctl.errors import KctlError
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.records.build import TIMESTAMP, RecordFields
from kctl.records.header import Record

RECORD_OVERHEAD = 24
"""Approximate size in bytes of a record without its key, value and headers."""
HEADER_OVERHEAD = 10
"""The largest size of the two lengths in a header."""


class RecordMetadata(NamedTuple):
    """Where a record was written: `offset` is -1 with acks=0; `timestamp_ms` is the record's, or its append time."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


OnResult = Callable[[RecordMetadata | KctlError], None]
"""Called with the result of one record."""


class FlushProgress(Protocol):
    """Counts the batches that a flush waits for."""

    left: int


class Batch:
    """Records of one partition that are sent together, with the handles of those whose results somebody wants.

    A batch that was sent keeps its producer id, epoch and sequence number, by which the broker recognises it.
    """

    __slots__ = (
        "attempts",
        "base_sequence",
        "deadline_ms",
        "flushes",
        "handles",
        "has_been_reset",
        "is_done",
        "last_error",
        "number",
        "opened_ms",
        "producer",
        "records",
        "retry_ms",
        "size",
    )

    def __init__(self, number: int = 0, opened_ms: int = 0) -> None:
        self.records: list[RecordFields] = []
        self.size = 0
        """Approximate size in bytes."""
        self.number = number
        """Order of the batches of a partition; the halves of a batch have its number."""
        self.opened_ms = opened_ms
        """Time of the first record, of a monotonic clock."""
        self.deadline_ms: int | None = None
        """When the batch fails; None if its time has not begun."""
        self.retry_ms = 0
        """Not sent again before this time."""
        self.attempts = 0
        self.producer: ProducerIdAndEpoch | None = None
        self.base_sequence = -1
        """Sequence number of the first record; -1 before the batch is sent, and without idempotence."""
        self.has_been_reset = False
        """Whether it got another sequence number after it was sent."""
        self.is_done = False
        self.last_error: KctlError | None = None
        """Why the batch is being repeated."""
        self.handles: list[Any] = []
        """What the results are passed to, in the order of the records: None where nobody wants them, also at the end.

        Written before the record, so that an interruption between the two leaves one too many, which the next record
        replaces.
        """
        self.flushes: list[FlushProgress] = []

    def append(self, record: RecordFields, size: int, handle: Any = None) -> None:
        """Add a record of this size."""
        if handle is not None:
            if len(self.handles) != len(self.records):
                self.align_handles()
            self.handles.append(handle)
        self.records.append(record)
        self.size += size

    def align_handles(self) -> None:
        """Make as many handles as records, before the next one is added."""
        del self.handles[len(self.records) :]
        self.handles += repeat(None, len(self.records) - len(self.handles))

    def halves(self) -> tuple[Batch, Batch]:
        """Return two batches with the records, handles and sequence numbers of this one, in order."""
        middle = len(self.records) // 2
        halves = (Batch(self.number, self.opened_ms), Batch(self.number, self.opened_ms))
        self.align_handles()
        for index, record in enumerate(self.records):
            halves[index >= middle].append(record, size_of(Record._make(record)), self.handles[index])
        for half in halves:
            half.deadline_ms, half.producer, half.last_error = self.deadline_ms, self.producer, self.last_error
            half.flushes = list(self.flushes)
        for flush in self.flushes:
            flush.left += 1
        if self.base_sequence >= 0:
            halves[0].base_sequence = self.base_sequence
            halves[1].base_sequence = after(self.base_sequence, middle)
        return halves


@dataclass(slots=True)
class Delivery:
    """Result of one batch: `base_offset` is the offset of its first record, -1 with acks=0 or after an error."""

    tp: TopicPartition
    fields: Sequence[RecordFields]
    """The records as plain tuples."""
    base_offset: int
    timestamp_ms: int
    """Append time of topics with LogAppendTime, else -1."""
    error: KctlError | None = None

    @property
    def count(self) -> int:
        """How many records the batch has."""
        return len(self.fields)

    @property
    def records(self) -> list[Record]:
        """The records of the batch."""
        return list(map(Record._make, self.fields))

    def metadata(self) -> list[RecordMetadata]:
        """Return the metadata of each record; without an error only."""
        offsets = repeat(-1) if self.base_offset < 0 else count(self.base_offset)
        times = [record[TIMESTAMP] for record in self.fields] if self.timestamp_ms < 0 else repeat(self.timestamp_ms)
        columns = (repeat(self.tp.topic, len(self.fields)), repeat(self.tp.partition), offsets, times)
        return list(map(tuple.__new__, repeat(RecordMetadata), zip(*columns, strict=False)))


def after(sequence: int, record_count: int) -> int:
    """Return the sequence number of the record that many records later; 2**31-1 is followed by 0."""
    return (sequence + record_count) & 0x7FFFFFFF


def size_of(record: Record) -> int:
    """Return the size of a record in bytes, or a little more."""
    size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    if record.headers:
        size += size_of_headers(record.headers)
    return size


def size_of_headers(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return the largest size that headers may take in a record."""
    return sum(
        (len(name) if name.isascii() else len(name.encode())) + len(value or b"") + HEADER_OVERHEAD
        for name, value in headers
    )

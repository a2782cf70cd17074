"""The entries of a dumped file: batches, index entries, checkpoint entries, properties and problems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kctl.limits import PROBLEM_TEXT_MAX
from kctl.records import legacy
from kctl.records.batch import iterate_records, records_region
from kctl.records.header import CODEC_MASK, HEADER_SIZE, BatchHeader, CorruptBatch, Record, parse_header
from kctl.storage.files import File
from kctl.storage.producer_state import SnapshotEntry
from kctl.storage.transaction_index import AbortedTransaction

MAGIC = 2


class BatchLine:
    """A batch in a log; `header.position` is its position in the file."""

    __slots__ = ("_file", "_view", "header", "is_sound")

    def __init__(self, header: BatchHeader, *, is_sound: bool, view: memoryview | None, file: File) -> None:
        self.header = header
        self.is_sound = is_sound
        """True if the checksum is right."""
        self._view = view
        self._file = file

    def data(self) -> memoryview:
        """Return all bytes of the batch; a large batch is read on demand."""
        if self._view is None:
            return memoryview(self._file.read_at(self.header.position, self.header.size))
        return self._view

    def region(self) -> bytes:
        """Return the uncompressed records of a batch of magic 2.  Raises CorruptBatch."""
        data, header = self.data(), self.header
        if not header.attributes & CODEC_MASK and len(data) == header.size:
            return bytes(data[HEADER_SIZE:])
        return bytes(records_region(data, parse_header(data)))

    def records(self) -> Iterator[Record]:
        """Yield the records.  Raises CorruptBatch, with a position in the file, at the first malformed record."""
        data = self.data()
        try:
            if self.header.magic == MAGIC:
                yield from iterate_records(data)
            else:
                yield from legacy.iterate_messages(data, legacy.parse_message(data))
        except CorruptBatch as error:
            raise CorruptBatch(self.header.position, error.reason) from error


@dataclass(frozen=True, slots=True)
class OffsetIndexLine:
    """An entry of an offset index: look-ups of `offset` or more start at `position`."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeIndexLine:
    """An entry of a time index: no record before `offset` has a timestamp larger than `timestamp` (ms)."""

    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True)
class EpochLine:
    """An entry of a leader epoch checkpoint: the first offset of an epoch."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """An entry of an offset checkpoint."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class PropertyLine:
    """A name and its value in a text file."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in a file, as a sentence; `size` bytes at `position` of the file where that is known."""

    reason: str
    position: int | None = None
    size: int | None = None
    is_unreadable: bool = False
    """True if the operating system refused to open or read the file."""

    def __post_init__(self) -> None:
        if len(self.reason) > PROBLEM_TEXT_MAX:  # The reason may quote bytes of the file.
            object.__setattr__(self, "reason", f"{self.reason[:PROBLEM_TEXT_MAX]}...")


Line = (
    BatchLine
    | OffsetIndexLine
    | TimeIndexLine
    | SnapshotEntry
    | AbortedTransaction
    | EpochLine
    | CheckpointLine
    | PropertyLine
    | Problem
)

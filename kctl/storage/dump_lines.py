"""What dumping a file of a log tells, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kctl.limits import PROBLEM_TEXT_MAX
from kctl.records import legacy
from kctl.records.batch import iterate_records
from kctl.records.header import BatchHeader, CorruptBatch, Record
from kctl.storage.files import File
from kctl.storage.producer_state import SnapshotEntry
from kctl.storage.transaction_index import AbortedTransaction

MAGIC = 2


class BatchLine:
    """A batch in a log; `header.position` is that in the file."""

    __slots__ = ("_file", "_view", "header", "is_sound")

    def __init__(self, header: BatchHeader, *, is_sound: bool, view: memoryview | None, file: File) -> None:
        self.header = header
        self.is_sound = is_sound
        """Whether the bytes have the checksum that the header claims."""
        self._view = view
        self._file = file

    def data(self) -> memoryview:
        """All bytes of the batch.  What is large is read only when somebody asks for it."""
        if self._view is None:
            return memoryview(self._file.read_at(self.header.position, self.header.size))
        return self._view

    def records(self) -> Iterator[Record]:
        """The records.  Raises CorruptBatch, positioned in the file, where they stop making sense."""
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
    """Look-ups of `offset` or more start at `position`."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeIndexLine:
    """No record before `offset` is later than `timestamp`."""

    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True)
class EpochLine:
    """Records from `start_offset` on were written under the leader of `epoch`."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """What an offset checkpoint says of a partition."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class PropertyLine:
    """A name and its value in a small text file."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be, in words; `size` bytes at `position` of the file where that is known."""

    reason: str
    position: int | None = None
    size: int | None = None
    is_unreadable: bool = False
    """The operating system refused to open or read the file."""

    def __post_init__(self) -> None:
        if len(self.reason) > PROBLEM_TEXT_MAX:  # It quotes what it has found.
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

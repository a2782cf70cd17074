"""What can become of a planned file: the values and errors that travel from executors to the driver."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kctl.errors import KctlError


class CorruptRecords(KctlError):
    """The records of a batch contradict the format; nothing of the batch is used."""


class DataLoss(KctlError):
    """Offsets that a run had to export are gone; exit code 3."""


class Failure(StrEnum):
    """Why a task has no result."""

    DATA_LOSS = "data loss"
    UNREACHABLE = "unreachable"
    FAILED = "failed"


class PartOutcome(NamedTuple):
    """What became of one range of a file."""

    records: int = 0
    bytes_in: int = 0
    """Size of the fetched batches as they are on the wire; 0 when the file was there already."""
    lost: int = 0
    """Offsets of the range that the broker no longer has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutcome:
    """What a task reports about its file.

    Failures are values, because Spark would try again what raises: a lost broker was waited for already, and the rest
    does not heal.  What Spark does try again is a worker process that died.
    """

    path: str = ""
    """Relative to the target folder; empty when the ranges held no records and there is no file."""
    parts: tuple[PartOutcome, ...] = ()
    """One per range of the file, in its order; nothing when the task failed."""
    bytes_out: int = 0
    """Size of the Parquet file."""
    is_reused: bool = False
    """Whether an earlier, interrupted attempt had finished the file."""
    failure: Failure | None = None
    message: str = ""

    @property
    def records(self) -> int:
        return sum(part.records for part in self.parts)

    @property
    def bytes_in(self) -> int:
        return sum(part.bytes_in for part in self.parts)

    @property
    def lost(self) -> int:
        return sum(part.lost for part in self.parts)

"""What can become of a planned file: the values and errors that travel from executors to the driver."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutcome:
    """What a task reports about its file.

    Failures are values, because Spark would try again what raises: a lost broker was waited for already, and the rest
    does not heal.  What Spark does try again is a worker process that died.
    """

    path: str = ""
    """Relative to the target folder; empty when the range held no records and there is no file."""
    records: int = 0
    bytes_in: int = 0
    """Size of the fetched batches as they are on the wire; 0 when the file was there already."""
    bytes_out: int = 0
    """Size of the Parquet file."""
    lost: int = 0
    """Offsets at the start of the range that the broker no longer has."""
    is_reused: bool = False
    """Whether an earlier, interrupted attempt had finished the file."""
    failure: Failure | None = None
    message: str = ""

"""What can become of a planned file: the values and errors that travel from executors to the driver."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.errors import KctlError


class CorruptRecords(KctlError):  # noqa: N818 - named like CorruptLog
    """The records of a batch contradict the format; nothing of the batch is used."""


class DataLoss(KctlError):  # noqa: N818 - an outcome, not a defect
    """Offsets that a run had to export are gone; exit code 3."""


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What a task reports about its file.

    Failures that a retry cannot heal are values, so that Spark does not try them again.
    """

    path: str
    """Relative to the target folder; empty when the range held no records and there is no file."""
    records: int = 0
    bytes_in: int = 0
    """Size of the fetched batches as they are on the wire; 0 when the file was there already."""
    bytes_out: int = 0
    """Size of the Parquet file."""
    lost: int = 0
    """Offsets at the start of the range that the broker no longer has."""
    reused: bool = False
    """Whether an earlier, interrupted attempt had finished the file."""
    failure: str = ""
    data_loss: str = ""
    """Why the range cannot be read any more; under --on-data-loss=fail the batch is not committed."""

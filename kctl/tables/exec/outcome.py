"""Results and errors of a planned file, sent from executors to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.tables.exec.selection.partitioning import Values


class CorruptRecords(KctlError):
    """A batch is invalid; none of its records is used."""


class DataLoss(KctlError):
    """Offsets to export no longer exist; exit status 3."""


class BadRecords(KctlError):
    """A record cannot be decoded, and --on-bad-record is fail; exit status 3."""


class TooManyMisfits(KctlError):
    """More values than --max-misfits have another type than their column; exit status 3."""


class Failure(StrEnum):
    """Why a task has no result."""

    DATA_LOSS = "data loss"
    UNREACHABLE = "unreachable"
    BAD_RECORDS = "bad records"
    CORRUPT = "corrupt records"
    FAILED = "failed"


class RangeFailure(NamedTuple):
    """Why a range of a task cannot be exported, while others can be."""

    tp: TopicPartition
    failure: Failure
    message: str


class Unreadable(NamedTuple):
    """Offsets [start, end) of the topic that were left out because their batches are corrupt (--on-corrupt-batch)."""

    tp: TopicPartition
    start: int
    end: int
    size: int | None
    """Bytes of the batches; None if their size cannot be told either."""
    reason: str


class Misfit(NamedTuple):
    """Values of JSON that are in the column of the rest, because they have another type than their column, or none."""

    topic: str
    column: str
    """As value.items[].price."""
    type: str
    """Of the column; empty if there is none for these values."""
    values: int
    partition: int
    offset: int
    """Of the first record that has one; the partition and offset are those of one task, so that others may be older."""


MISFITS_MAX = 100
"""Columns that the result of a task names; the others are one."""
OTHER_COLUMNS = "other columns"


TOPIC_MISFITS_MAX = 20
"""Columns of a topic that commits name for all batches; the others are one."""


class MisfitCount:
    """Counts misfits by column."""

    def __init__(self, columns_max: int = MISFITS_MAX) -> None:
        self._columns_max = columns_max
        self._by_column: dict[tuple[str, str, str], Misfit] = {}

    def add(self, misfit: Misfit) -> None:
        """Add values; the first record of a column is the one that was added first."""
        column = misfit[:3]
        if column not in self._by_column and len(self._by_column) >= self._columns_max:
            misfit = misfit._replace(column=OTHER_COLUMNS, type="")
            column = misfit[:3]
        before = self._by_column.get(column)
        self._by_column[column] = before._replace(values=before.values + misfit.values) if before else misfit

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """The counts, in the order in which their columns were added."""
        return tuple(self._by_column.values())


def all_misfits(
    before: Mapping[str, tuple[Misfit, ...]], outcomes: Iterable[FileOutcome]
) -> dict[str, tuple[Misfit, ...]]:
    """Return the misfits of all batches by topic, which are those before and those of a batch."""
    after = dict(before)
    for outcome in outcomes:
        for misfit in outcome.misfits:
            count = MisfitCount(TOPIC_MISFITS_MAX)
            for counted in (*after.get(misfit.topic, ()), misfit):
                count.add(counted)
            after[misfit.topic] = count.misfits
    return after


UNREADABLE_RANGES_MAX = 1_000
"""Ranges that the result of a task names; PartOutcome counts the offsets of all."""


class PartOutcome(NamedTuple):
    """Result of one range of a file."""

    records: int = 0
    bytes_in: int = 0
    """Size of the fetched batches, also by an earlier attempt; 0 if an earlier version of kctl wrote the file."""
    lost: int = 0
    """Offsets of the range that the broker no longer has."""
    bad: int = 0
    """Records in the dead letters."""
    filtered: int = 0
    """Records for which --where is not true."""
    unreadable: int = 0
    """Offsets of corrupt batches that were left out."""


class WrittenFile(NamedTuple):
    """A data file of a task."""

    path: str
    """Relative to the target."""
    size: int
    records: int
    partition: Values = ()
    """The values of the partition columns."""


REASONS_MAX = 20
"""Different reasons that the result of a task has."""
OTHER_REASONS = "other reasons"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutcome:
    """Result of a task.

    Failures are values, because Spark repeats tasks that raise, which does not help: tasks retry on lost connections
    themselves.  Spark repeats only tasks whose worker process died.
    """

    path: str = ""
    """The planned path; empty if there were no records and there is no file."""
    written: tuple[WrittenFile, ...] = ()
    """The files; one, with the planned path, unless there are partitions."""
    parts: tuple[PartOutcome, ...] = ()
    """One per range of the file, in order; empty if the task failed."""
    bytes_out: int = 0
    """Size of the files."""
    dead_letters: WrittenFile | None = None
    """The file with the records that could not be decoded."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why, with numbers of records; empty if the file existed."""
    is_reused: bool = False
    """Whether an earlier, interrupted attempt had finished the file."""
    failure: Failure | None = None
    message: str = ""
    failed: tuple[RangeFailure, ...] = ()
    """The ranges because of which the task failed; empty if that has another reason, such as a full disk."""
    unreadable: tuple[Unreadable, ...] = ()
    """At most UNREADABLE_RANGES_MAX."""
    misfits: tuple[Misfit, ...] = ()

    @property
    def records(self) -> int:
        """Number of records in the file."""
        return sum(part.records for part in self.parts)

    @property
    def bytes_in(self) -> int:
        """Size of the fetched batches."""
        return sum(part.bytes_in for part in self.parts)

    @property
    def lost(self) -> int:
        """Offsets of all ranges that the brokers no longer have."""
        return sum(part.lost for part in self.parts)

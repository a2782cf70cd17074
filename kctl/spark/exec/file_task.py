"""The inputs of a task that writes one file.

The driver imports this module, and not numpy and pyarrow, which take longer than a small export.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kctl.client.settings import ClientSettings
from kctl.spark.exec.column_types import Columns
from kctl.spark.exec.fetch import OffsetRange
from kctl.spark.exec.header_form import HEADER_LIST, HeaderForm
from kctl.spark.exec.partitioning import Partitioning, Values
from kctl.spark.exec.row_selection import ALL_ROWS, RowSelection

DEAD_LETTERS = "_dead_letters"


def dead_letters_path(path: str) -> str:
    """The path of the records that could not be decoded, for a data file or its directory."""
    return f"{DEAD_LETTERS}/{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """All inputs of a task; pickled by the driver."""

    settings: ClientSettings
    target: str
    """A folder or a URL; without credentials, which each process finds itself."""
    path: str
    """Relative to the target."""
    ranges: tuple[OffsetRange, ...]
    """All of one topic."""
    include_headers: bool
    compression: str
    headers: HeaderForm = HEADER_LIST
    is_for_table: bool = False
    """Whether the file is part of an Iceberg or Delta table."""
    incarnation: int = 0
    """In a table, it goes into a column of this name unless it is 0."""
    partition_by: Partitioning = field(default_factory=Partitioning)
    rows: RowSelection = ALL_ROWS
    columns: Columns = field(default_factory=Columns)
    keeps_bad: bool = False
    """Whether records that cannot be decoded go into the dead letters; else they end the task."""
    letters_have_headers: bool = False
    """Whether dead letters have headers, also if the data files have none."""
    skips_corrupt: bool = False
    """Whether corrupt batches are left out and counted (--on-corrupt-batch=skip)."""
    may_skip: bool
    """Whether missing offsets are skipped and counted (--on-data-loss=warn)."""

    @property
    def identity(self) -> str:
        """The footer entry by which a file is identified as the result of this task."""
        return "; ".join(f"{one.tp} [{one.start}, {one.end}) {one.topic_id}" for one in self.ranges)

    @property
    def has_list(self) -> bool:
        """Whether the files of the task are listed, see file_list."""
        return bool(self.partition_by) and not self.is_for_table

    def path_of(self, values: Values) -> str:
        """The path of the file of a partition."""
        by = self.partition_by
        if not by:
            return self.path
        return by.path_in_table(self.path, values) if self.is_for_table else by.path(self.path, values)

    @property
    def offset_count(self) -> int:
        """Number of offsets of all ranges; an upper bound of the number of records."""
        return sum(one.end - one.start for one in self.ranges)

"""Which records and columns an export has.  Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kctl.errors import UsageError
from kctl.spark.exec.column_types import Columns
from kctl.spark.exec.partitioning import Partitioning
from kctl.spark.exec.row_filter import parse_where, type_of, typed

HEADERS = "headers"
_COLUMN = re.compile(r"[^\s,.]+(\.[^\s,.]+)*")


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The options --select and --where.  Raises UsageError."""

    select: tuple[str, ...] = ()
    """Columns beside topic, partition and offset; empty: all."""
    where: str = ""
    """See row_filter; empty: all records."""

    def __post_init__(self) -> None:
        for name in self.select:
            if not _COLUMN.fullmatch(name):
                raise UsageError(f"--select: {name!r} is not the name of a column")
        if self.where:
            parse_where(self.where)

    def check(self, columns: Columns, partition_by: Partitioning, *, include_headers: bool) -> None:
        """Raises UsageError for columns that a topic does not have, and if the partitions need one that is left out."""
        if self.where:
            typed(parse_where(self.where), columns)
        for name in self.select:
            if name != HEADERS:
                type_of(tuple(name.split(".")), columns, "--select")
            elif not include_headers:
                raise UsageError("--select: headers requires --include-headers")
        source = ".".join(("value", *partition_by.field)) if partition_by.field else "timestamp"
        if self.select and partition_by and not any(f"{source}.".startswith(f"{name}.") for name in self.select):
            raise UsageError(f"--select leaves out {source}, which --partition-by needs: add it")


ALL_ROWS = RowSelection()

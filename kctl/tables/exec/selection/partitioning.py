"""How the files of an export are partitioned, and the names of partitions as Hive and Spark write them.  Pure.

DIR/orders/date=2026-11-23/hour=07/...        --partition-by hour
DIR/orders/country=A%2FB/...                  --partition-by country, a field of the decoded values
DIR/orders/country=__HIVE_DEFAULT_PARTITION__/...    null, or the empty string
DIR/orders/timestamp_day=2026-11-23/id_bucket=5/...  --partition-by day(timestamp),bucket(16,id)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kctl.errors import UsageError
from kctl.tables.exec.schema.column_types import Columns, Struct, Type, check_path, kind_of
from kctl.tables.exec.selection.transforms import SOURCE_TYPES, Term, parse_terms

NONE, DATE, HOUR = "none", "date", "hour"
PARTITION_COLUMNS_MAX = 5
HOUR_US = 3_600_000_000
NULL_NAME = "__HIVE_DEFAULT_PARTITION__"
NAME_BYTES_MAX = 255
"""Of a directory in common file systems."""
TAKEN_NAMES = frozenset(
    {
        "key",
        "key_rest",
        "key_raw",
        "value",
        "value_rest",
        "value_raw",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestamptype",
    }
    | {"headers", "incarnation"}
)
"""Columns of the files in lower case; readers disagree about a column that is in both, the path and the file."""

_ESCAPED = frozenset(map(chr, range(32))) | frozenset("\"#%'*/:=?\\\x7f{[]^")
"""ExternalCatalogUtils.charToEscape of Spark, and NUL."""

Values = tuple[str | None, ...]
"""The values of the partition columns of a file, as text."""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The option --partition-by.  Raises UsageError."""

    by: str = NONE
    """none, date, hour, the path of a field in the decoded value, or a list of transforms and fields."""
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        if self.time_zone != "UTC":
            if not self.unit_us:
                raise UsageError("--time-zone is an option of --partition-by date and hour")
            try:
                ZoneInfo(self.time_zone)
            except (OSError, ValueError, ZoneInfoNotFoundError):
                raise UsageError(
                    f"--time-zone {self.time_zone}: no such time zone; use a name such as Europe/Berlin"
                ) from None
        if len(self.terms) > PARTITION_COLUMNS_MAX:
            raise UsageError(f"--partition-by {self.by}: at most {PARTITION_COLUMNS_MAX} partitions are possible")
        for term in self.terms:
            if term.column.lower() in TAKEN_NAMES:
                raise UsageError(
                    f"--partition-by {self.by}: the files have a column {term.column}, which may not be a partition too"
                )

    def __bool__(self) -> bool:
        """Return whether there are partitions."""
        return self.by != NONE

    @property
    def unit_us(self) -> int:
        """Microseconds of a partition by time; 0 for others."""
        return {DATE: 24 * HOUR_US, HOUR: HOUR_US}.get(self.by, 0)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The transforms and fields; empty for date and hour, which are days and hours of a time zone."""
        return () if self.by in {NONE, DATE, HOUR} else parse_terms(self.by)

    @property
    def columns(self) -> tuple[str, ...]:
        """The partition columns: a date and an hour from 0 to 23, or those of the terms."""
        times = {NONE: (), DATE: ("date",), HOUR: ("date", "hour")}.get(self.by)
        return tuple(term.column for term in self.terms) if times is None else times

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of the export that decide about the partition."""
        return ("timestamp",) if self.unit_us else tuple(term.path for term in self.terms)

    def check(self, topic: str, columns: Columns) -> None:
        """Raise UsageError if a field does not exist, or is not suitable."""
        for term in self.terms:
            if not term.is_of_record:
                self._check_type(term, topic, columns)

    def _check_type(self, term: Term, topic: str, columns: Columns) -> None:
        type_: Type = columns.value.type
        check_path(("value", *term.source), type_, f"--partition-by {self.by}")
        for name in term.source:
            found = dict(type_.fields).get(name) if isinstance(type_, Struct) else None
            if found is None:
                raise UsageError(
                    f"--partition-by {self.by}: the decoded values of topic {topic} have no such field; --dry-run "
                    "without this option shows the fields"
                )
            type_ = found
        if type_ not in (suitable := SOURCE_TYPES[term.transform]):
            raise UsageError(
                f"--partition-by {self.by}: {'.'.join(term.source)} is {kind_of(type_)}, and must be "
                f"{', '.join(sorted(suitable))}{_TIME_HINT if type_ == 'string' and term.is_time else ''}"
            )

    def names(self, values: Values) -> list[str]:
        """Return the directories of a partition."""
        return [f"{escaped(column)}={escaped(value)}" for column, value in zip(self.columns, values, strict=True)]

    def is_short(self, values: Values) -> bool:
        """Return whether the directories of the partition can be created."""
        return all(len(name.encode()) <= NAME_BYTES_MAX for name in self.names(values))

    def path(self, path: str, values: Values) -> str:
        """Return the path of a file in a folder, for the planned path."""
        directory, _, name = path.rpartition("/")
        return "/".join((directory, *self.names(values), name))

    def path_in_table(self, path: str, values: Values) -> str:
        """Return the path of a file of a table, for the planned path."""
        if not self:
            return path
        if self.unit_us:
            text = "T".join(value or "" for value in values)
        else:
            text = hashlib.sha256(repr(values).encode()).hexdigest()[:16]
        stem, dot, suffix = path.rpartition(".")
        return f"{stem}+{text}{dot}{suffix}"


_TIME_HINT = "; truncate(10,FIELD) is the day of a text such as 2026-11-30T07:00:00Z, truncate(7,FIELD) its month"
NO_PARTITIONS = Partitioning()


def escaped(text: str | None) -> str:
    """Return a name or value as a part of a directory's name."""
    if not text:
        return NULL_NAME
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in text)


def without_partitions(path: str) -> str:
    """Return the planned path of a file in a folder: without the directories of partitions."""
    parts: Sequence[str] = path.split("/")
    return f"{parts[0]}/{parts[-1]}"

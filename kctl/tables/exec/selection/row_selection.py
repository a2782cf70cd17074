"""Which records and columns an export has.  Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kctl.admin.records.where import parse_where
from kctl.errors import UsageError
from kctl.limits import EXPORT_COLUMNS_MAX
from kctl.tables.exec.schema.column_types import Columns, Struct, Type, is_column_name, raw_name
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.selection.row_filter import RECORD_TYPES, type_of, typed

HEADERS = "headers"
_COLUMN = re.compile(r"[^\s,.]+(\.[^\s,.]+)*")
_WILDCARDS = frozenset("*?")


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The options --select and --where.  Raises UsageError."""

    select: tuple[str, ...] = ()
    """Columns beside topic, partition and offset, or patterns with * and ? for a part of a name; empty: all."""
    where: str = ""
    """A condition of kctl.admin.records.conditions on columns; empty: all records."""

    def __post_init__(self) -> None:
        for name in self.select:
            if not _COLUMN.fullmatch(name):
                raise UsageError(f"--select: {name!r} is not the name of a column")
        if self.where:
            parse_where(self.where)

    def check(self, columns: Columns, partition_by: Partitioning, *, include_headers: bool) -> None:
        """Raise UsageError for columns that a topic does not have, and if the partitions need one that is left out."""
        if self.where:
            typed(parse_where(self.where), columns)
        for name in self.select:
            if _WILDCARDS & set(name):
                self._check_pattern(name, columns)
            elif name != HEADERS:
                type_of(tuple(name.split(".")), columns, "--select")
            elif not include_headers:
                raise UsageError("--select: headers requires --include-headers")
        for source in partition_by.sources:
            if not self.has(source):
                raise UsageError(f"--select leaves out {source}, which --partition-by needs: add it")

    @staticmethod
    def _check_pattern(pattern: str, columns: Columns) -> None:
        first, *rest = pattern.split(".")
        types = {"key": columns.key.type, "value": columns.value.type, **RECORD_TYPES}
        if not any(fnmatchcase(name, first) and _has_match(rest, type_) for name, type_ in types.items()):
            raise UsageError(f"--select: no column matches {pattern}")

    def has(self, path: str) -> bool:
        """Return whether a column is selected, itself or in one that is."""
        parts = path.split(".")
        return not self.select or parts[0] in IDENTITY or any(_is_above(name.split("."), parts) for name in self.select)


def _is_above(patterns: list[str], parts: list[str]) -> bool:
    return len(patterns) <= len(parts) and all(map(fnmatchcase, parts, patterns))


def _has_match(patterns: list[str], type_: Type) -> bool:
    if not patterns:
        return True
    fields = type_.fields if isinstance(type_, Struct) else ()
    return any(fnmatchcase(name, patterns[0]) and _has_match(patterns[1:], field) for name, field in fields)


IDENTITY = frozenset({"topic", "partition", "offset", "incarnation", raw_name("key"), raw_name("value")})
"""Columns that exports always have."""

ALL_ROWS = RowSelection()


# Which form the headers of records have in an export, or a query of Spark. Pure.


LIST = "list"
MAP = "map"
COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class HeaderForm:
    """The form of the column `headers`.  Raises UsageError."""

    form: str = LIST
    """LIST keeps all entries in their order; MAP has the last value of each name; COLUMNS is a struct of some names."""
    names: tuple[str, ...] = ()
    """The headers that are columns; others are left out."""

    @classmethod
    def parse(cls, text: str) -> HeaderForm:
        """Read `list`, `map` or `columns:NAME,NAME`."""
        form, colon, names = text.partition(":")
        if form in {LIST, MAP} and not colon:
            return cls(form)
        if form == COLUMNS and names:
            return cls(COLUMNS, tuple(name.strip() for name in names.split(",")))
        raise UsageError(f"the form of headers is list, map or columns:NAME,NAME, not '{text}'")

    def __post_init__(self) -> None:
        for name in self.names:
            if not is_column_name(name):
                raise UsageError(
                    f"headers: tables do not accept {name!r} as the name of a column; use map, or rename the header"
                )
        if len({name.lower() for name in self.names}) < len(self.names):
            raise UsageError("headers: a name is there twice; names of columns are compared without case")
        if len(self.names) > EXPORT_COLUMNS_MAX:
            raise UsageError(f"headers: at most {EXPORT_COLUMNS_MAX} headers can be columns")

    @property
    def is_list(self) -> bool:
        """Whether it is the default."""
        return self.form == LIST

    @property
    def text(self) -> str:
        """As it is given on the command line."""
        return f"{self.form}:{','.join(self.names)}" if self.names else self.form


HEADER_LIST = HeaderForm()

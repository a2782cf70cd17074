"""Rows, their columns, and values as the text of one cell.  Pure.

A row is a NamedTuple, which a command declares beside its columns.  Its fields are the members of the JSON object, in
this order and under these names; a column shows the field of its name, and is empty where the row has no such field.

    class OffsetRow(NamedTuple):
        topic: str
        offset: int | None
        error: str | None = None
        message: str | None = None

    console.show((Column("topic"), Column("offset", numeric=True), *ERROR_COLUMNS), [OffsetRow("orders", 7)])

A field that holds rows (`partitions: list[PartitionRow]`) becomes a list of JSON objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from kctl.quantities import NOTHING
from kctl.terminal_text import escape_cell, escape_lines


class TypedRow(Protocol):
    """Any NamedTuple."""

    @property
    def _fields(self) -> tuple[str, ...]: ...
    def _asdict(self) -> dict[str, Any]: ...


Row = TypedRow | Mapping[str, Any]
"""A mapping is a row whose names are known at run time only, such as a decoded record."""

EMPTY = '""'
_ESCAPED_LOOKALIKES = {NOTHING: "\\x2d", EMPTY: "\\x22\\x22"}
"""Strings that would look like the cell of null or of the empty string."""
_MUST_BE_QUOTED = frozenset('",\n')


class Column:
    """One column of a table: the field of the row, and how title and cells are formatted.

    `wraps`: prose or a list, which may be wrapped if the terminal is narrow; names and ids are never wrapped.
    `is_rare`: a table omits the column if it is empty in all rows; plain always has it.
    `drop_order`: 0 for a column that is always shown; the others are left out in this order, 1 first, until the rows
    of a table fit the terminal.
    `trouble`: whether a cell with this text is red on a terminal; nothing else is coloured.
    """

    __slots__ = ("drop_order", "is_rare", "name", "numeric", "title", "trouble", "wraps")

    def __init__(
        self,
        name: str,
        title: str | None = None,
        *,
        numeric: bool = False,
        wraps: bool = False,
        is_rare: bool = False,
        drop_order: int = 0,
        trouble: Callable[[str], bool] | None = None,
    ) -> None:
        self.name = name
        self.title = title or name.upper().replace("_", "-")
        self.numeric = numeric
        self.wraps = wraps
        self.is_rare = is_rare
        self.drop_order = drop_order
        self.trouble = trouble


def is_present(text: str) -> bool:
    """True for the text of a cell that is not empty."""
    return text not in {"", NOTHING}


ERROR_COLUMNS = (Column("error", is_rare=True, trouble=is_present), Column("message", wraps=True, is_rare=True))
"""The last two columns of every row about one item: the name of a Kafka error and its message; empty on success."""


def as_mapping(row: Row) -> Mapping[str, Any]:
    """The fields of a row by name, in order; rows within rows become mappings too."""
    return row if isinstance(row, Mapping) else _fields_of(row)


def _fields_of(row: TypedRow) -> dict[str, Any]:
    fields = row._asdict()
    for name, value in fields.items():
        if isinstance(value, (list, tuple)):
            fields[name] = _nested(value)
    return fields


def _nested(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return _fields_of(value)
    return [_nested(one) if isinstance(one, (list, tuple)) else one for one in value]


def cell(value: object) -> str:
    """A value as one cell.

    Null and empty lists are `-`, the empty string is `""`; control characters are escaped and backslashes doubled.  A
    list is joined by commas, which are escaped within its elements.  A mapping is `name=value` joined by commas, and
    `name` alone if the value is null.
    """
    match value:
        case None:
            return NOTHING
        case "":
            return EMPTY
        case str():
            return _ESCAPED_LOOKALIKES.get(value) or escape_cell(value)
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case dict():
            return ",".join(_pair(name, inner) for name, inner in value.items()) or NOTHING
        case list() | tuple():
            return ",".join(cell(inner).replace(",", "\\x2c") for inner in value) or NOTHING
        case _:
            return escape_cell(str(value))


def _pair(name: object, value: object) -> str:
    shown = escape_cell(str(name)).replace("=", "\\x3d")
    if value is None:
        return shown
    return f"{shown}={escape_cell(value) if isinstance(value, str) else cell(value)}"


def csv_line(values: Iterable[object]) -> str:
    """One record of RFC 4180, with its line break.

    Null and empty lists are empty fields; an empty string is `""`, which some readers treat differently.  Lists and
    mappings are as in `cell`.  Control characters in texts are escaped, except for line feeds and tabs.
    """
    return ",".join(map(csv_field, values)) + "\r\n"


def csv_field(value: object) -> str:
    """One field of `csv_line`."""
    if value is None:
        return ""
    if not isinstance(value, str):
        text = cell(value)
        if text == NOTHING:
            return ""
    elif not value:
        return EMPTY
    else:
        text = escape_lines(value)
    if _MUST_BE_QUOTED.isdisjoint(text):
        return text
    return '"' + text.replace('"', '""') + '"'

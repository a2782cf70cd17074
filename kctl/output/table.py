"""Rows, their columns and cells, and the layout of a table for the width of a terminal.  Pure."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from types import UnionType
from typing import Annotated, Any, NamedTuple, Protocol, get_type_hints

from kctl.output.quantities import NOTHING
from kctl.output.terminal_text import Paint, display_width, escape_cell, escape_lines, pad, word_width, wrap

# Rows, their columns, and values as the text of one cell. Pure.
#
# A row is a NamedTuple, and the only declaration of what a command shows. Its fields are the members of the JSON
# object, in this order and under these names, and the columns of table, plain and CSV. `Annotated` has what the type
# does not say: how a column differs from the usual one, that a field is no column, and the documentation of a field,
# which `--schema` shows.
#
#     class OffsetRow(NamedTuple):
#         topic: str
#         offset: int | None
#         timestamp_ms: Annotated[int | None, JSON_ONLY]
#         time: Annotated[str | None, Column(drop_order=1), "The timestamp as RFC 3339."]
#         error: ErrorName = None
#         message: ErrorText = None
#
#     console.show(OffsetRow, [OffsetRow("orders", 7, None, None)])
#
# A field that holds rows (`partitions: list[PartitionRow]`) becomes a list of JSON objects.


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
SPECIAL_CELL_CHARACTERS_MAX = max(map(len, _ESCAPED_LOOKALIKES))
"""The length of the longest of them."""


class Column:
    """One column of a table: the field of the row, and how title and cells are formatted.

    `name`: the name in CSV, and the title in capitals; by default that of the field.
    `numeric`: aligned to the right; by default if the field is a number.
    `wraps`: prose or a list, which may be wrapped if the terminal is narrow; names and ids are never wrapped.
    `spills`: a cell with a word that is too long for the column is written below its row, so that one long value does
    not turn all rows into blocks.
    `is_rare`: a table omits the column if it is empty in all rows; plain always has it.
    `drop_order`: 0 for a column that is always shown; the others are left out in this order, 1 first, until the rows
    of a table fit the terminal.
    `trouble`: whether a cell with this text is red on a terminal; nothing else is coloured.
    `shown`: the value of the cell, from a value of the field that is not null.
    `after`: the field whose column this one follows, where the order of the columns is not that of the fields.
    """

    __slots__ = (
        *("after", "drop_order", "field", "is_rare", "name", "numeric", "shown", "spills", "title", "trouble", "wraps"),
    )

    def __init__(
        self,
        name: str = "",
        title: str | None = None,
        *,
        numeric: bool | None = None,
        wraps: bool = False,
        spills: bool = False,
        is_rare: bool = False,
        drop_order: int = 0,
        trouble: Callable[[str], bool] | None = None,
        shown: Callable[[Any], object] | None = None,
        after: str | None = None,
    ) -> None:
        self.name = self.field = name
        self.title = title or _title(name)
        self.numeric = numeric
        self.wraps = wraps
        self.spills = spills
        self.is_rare = is_rare
        self.drop_order = drop_order
        self.trouble = trouble
        self.shown = shown
        self.after = after

    def value(self, fields: Mapping[str, Any]) -> Any:
        """Return the value of the cell in a row with these fields; None where the row has no such field."""
        value = fields.get(self.field)
        return value if value is None or self.shown is None else self.shown(value)

    def with_drop_order(self, drop_order: int) -> Column:
        """Return the same column with another place in the order in which columns are left out."""
        column = copy.copy(self)
        column.drop_order = drop_order
        return column

    def for_field(self, field: str, hint: Any) -> Column:
        """Return the column of this field, whose type is `hint`."""
        column = copy.copy(self)
        column.field = field
        column.name = self.name or field
        column.title = self.title or _title(column.name)
        if column.numeric is None:
            alternatives = hint.__args__ if isinstance(hint, UnionType) else (hint,)
            column.numeric = not _NUMBERS.isdisjoint(alternatives)
        return column


def _title(name: str) -> str:
    return name.upper().replace("_", "-")


_NUMBERS = frozenset({int, float})

JSON_ONLY = object()
"""Marks a field that is no column: `internal: Annotated[bool, JSON_ONLY]`."""


def is_present(text: str) -> bool:
    """Return True for the text of a cell that is not empty."""
    return text not in {"", NOTHING}


def nonzero(number: int) -> int | None:
    """Return the number, or None for 0: `lost: Annotated[int, Column(is_rare=True, shown=nonzero)]`."""
    return number or None


ErrorName = Annotated[str | None, Column(is_rare=True, trouble=is_present)]
"""The name of the Kafka error of an item, the last field but one of every row about one item; None on success."""
ErrorText = Annotated[str | None, Column(wraps=True, is_rare=True)]
"""The message of the error of an item; None on success."""


class Field(NamedTuple):
    """A field of a row, as its annotation declares it."""

    name: str
    type: Any
    """Without `Annotated`."""
    column: Column | None
    """None for a field that is in JSON only."""
    documentation: str | None


@functools.cache
def fields_of(row: type[TypedRow]) -> tuple[Field, ...]:
    """Return the fields of a row.  Its annotations may name Mapping and Sequence without importing them."""
    hints = get_type_hints(row, localns={"Mapping": Mapping, "Sequence": Sequence}, include_extras=True)
    return tuple(_field(name, hint) for name, hint in hints.items())


def _field(name: str, hint: Any) -> Field:
    notes = getattr(hint, "__metadata__", ())
    plain = hint.__origin__ if notes else hint
    declared = next((note for note in notes if isinstance(note, Column)), _USUAL)
    documentation = next((note for note in notes if isinstance(note, str)), None)
    return Field(name, plain, None if JSON_ONLY in notes else declared.for_field(name, plain), documentation)


_USUAL = Column()


@functools.cache
def columns_of(row: type[TypedRow], *omitted: str) -> tuple[Column, ...]:
    """Return the columns of a row, without those of the omitted fields."""
    columns = [field.column for field in fields_of(row) if field.column is not None and field.name not in omitted]
    for moved in [column for column in columns if column.after is not None]:
        columns.remove(moved)
        columns.insert(1 + next(at for at, column in enumerate(columns) if column.field == moved.after), moved)
    return tuple(columns)


def as_mapping(row: Row) -> Mapping[str, Any]:
    """Return the fields of a row by name, in order; rows within rows become mappings too."""
    return row if isinstance(row, Mapping) else _read_fields(row)


def _read_fields(row: TypedRow) -> dict[str, Any]:
    fields = row._asdict()
    for name, value in fields.items():
        if isinstance(value, (list, tuple)):
            fields[name] = _nested(value)
    return fields


def _nested(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return _read_fields(value)
    return [_nested(item) if isinstance(item, (list, tuple)) else item for item in value]


def cell(value: object) -> str:
    """Return a value as one cell.

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
    """Return one record of RFC 4180, with its line break.

    Null and empty lists are empty fields; an empty string is `""`, which some readers treat differently.  Lists and
    mappings are as in `cell`.  Control characters in texts are escaped, except for line feeds and tabs.
    """
    return ",".join(map(csv_field, values)) + "\r\n"


def csv_field(value: object) -> str:
    """Return one field of `csv_line`."""
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
    if "," not in text and '"' not in text and "\n" not in text:
        return text
    return '"' + text.replace('"', '""') + '"'


# Lays out a table for the width of a terminal. Pure.
#
# Uses the first layout that fits: each row on one line; wrapping columns broken between words into several lines; the
# same without columns that are empty in all rows; the same without as many of the columns that may be left out as
# necessary; a block for each row, with one line per column, except rare columns that are empty in the row. Words are
# never broken. Without a width each row is one line.


GAP = 2
WRAPPED_WIDTH_MIN = 16
"""Wrapped columns narrower than this are hard to read."""


class TableLayout:
    """Column widths computed from the first rows; later rows use the same widths."""

    def __init__(
        self,
        titles: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        numeric: Sequence[bool],
        wraps: Sequence[bool],
        width: int | None,
        is_complete: bool,
        drop_order: Sequence[int] = (),
        rare: Sequence[bool] = (),
        spills: Sequence[bool] = (),
    ) -> None:
        """`width` is that of the terminal, None for no limit; `is_complete` means that no rows follow.

        `drop_order` has a number for each column: 0 if it is always shown, else its place in the order in which columns
        are left out.  `rare` tells of each column whether blocks have it only where it is not empty, and `spills`
        whether cells that are too long for it are written below their row.
        """
        self._titles = titles
        self._numeric = numeric
        self._wraps = wraps
        self._rare = rare or [False] * len(titles)
        self._spills = spills or [False] * len(titles)
        self._width = width
        self._shown = list(range(len(titles)))
        self._has_blocks = False
        self._widths = self._fit(rows, is_complete=is_complete)
        if self._widths is None and is_complete:
            self._shown = [at for at in self._shown if any(row[at] != NOTHING for row in rows)]
            self._widths = self._fit(rows, is_complete=is_complete)
        self.left_out: list[str] = []
        """The titles of the columns that are not shown because the terminal is too narrow."""
        if self._widths is None:
            self._leave_out(drop_order or [0] * len(titles), rows, is_complete=is_complete)

    def _leave_out(self, order: Sequence[int], rows: Sequence[Sequence[str]], *, is_complete: bool) -> None:
        """Leave out columns until the others fit; none if they do not fit without all of those either."""
        every = self._shown
        optional = sorted((at for at in every if order[at]), key=lambda at: order[at])
        for count in range(1, len(optional) + 1):
            self._shown = [at for at in every if at not in optional[:count]]
            self._widths = self._fit(rows, is_complete=is_complete)
            if self._widths is not None:
                self.left_out = [self._titles[at] for at in every if at in optional[:count]]
                return
        self._shown = every

    def head(self, paint: Paint) -> Iterator[str]:
        """Yield the line of titles; no line if rows are blocks."""
        if self._widths is not None:
            yield from self._lines(self._widths, self._titles, paint)

    def row(self, cells: Sequence[str], paint: Paint) -> Iterator[str]:
        """Yield the lines of one row."""
        if self._widths is not None:
            yield from self._lines(self._widths, cells, paint)
            return
        if self._has_blocks:
            yield ""
        self._has_blocks = True
        shown = [at for at in self._shown if not self._rare[at] or cells[at] != NOTHING]
        yield from block_lines(
            [self._titles[at] for at in shown],
            [cells[at] for at in shown],
            wraps=[self._wraps[at] for at in shown],
            width=self._width,
            paint=lambda index, text: paint(shown[index], text),
        )

    def _fit(self, rows: Sequence[Sequence[str]], *, is_complete: bool) -> list[int] | None:
        """Return the widths of the shown columns, or None if their longest words do not fit side by side."""
        texts = [[self._titles[at], *(row[at] for row in rows)] for at in self._shown]
        natural = [max(map(display_width, column)) for column in texts]
        if self._width is None:
            return natural
        space = self._width - GAP * (len(self._shown) - 1)
        if is_complete and sum(natural) <= space:
            return natural
        wraps = [self._wraps[at] for at in self._shown]
        least = [
            min(width, WRAPPED_WIDTH_MIN)
            if self._spills[at]
            else min(width, max(WRAPPED_WIDTH_MIN, *map(word_width, column)))
            if may_wrap
            else width
            for at, column, width, may_wrap in zip(self._shown, texts, natural, wraps, strict=True)
        ]
        if sum(least) > space:
            return None
        # If more rows follow, wrapping columns use all the remaining space.
        most = [
            max(width, self._width) if may_wrap and not is_complete else width
            for width, may_wrap in zip(natural, wraps, strict=True)
        ]
        return _shared(space, least, most)

    def _lines(self, widths: Sequence[int], cells: Sequence[str], paint: Paint) -> Iterator[str]:
        below = [
            at
            for at, width in zip(self._shown, widths, strict=True)
            if self._spills[at] and word_width(cells[at]) > width
        ]
        wrapped = [
            [""] if at in below else wrap(cells[at], width) if self._wraps[at] else [cells[at]]
            for at, width in zip(self._shown, widths, strict=True)
        ]
        for texts in zip_longest(*wrapped, fillvalue=""):
            last = max((index for index, text in enumerate(texts) if text), default=-1)
            line = [
                paint(at, pad(text, 0 if index == last and not self._numeric[at] else width, right=self._numeric[at]))
                for index, (at, text, width) in enumerate(zip(self._shown, texts, widths, strict=True))
                if index <= last
            ]
            yield (" " * GAP).join(line)
        for at in below:
            for text in wrap(cells[at], (self._width or 0) - 2 * GAP):
                yield " " * 2 * GAP + paint(at, text)


def block_lines(
    titles: Sequence[str], cells: Sequence[str], *, wraps: Sequence[bool], width: int | None, paint: Paint
) -> Iterator[str]:
    """Yield one line per cell, with its title in front.  A cell that does not fit beside its title starts on the next
    line.

    There, a cell wider than the terminal is wrapped between words even if its column does not wrap.
    """
    title_width = max(map(display_width, titles), default=0) + GAP
    for index, (title, text, may_wrap) in enumerate(zip(titles, cells, wraps, strict=True)):
        beside = pad(title, title_width)
        if width is None or display_width(text) <= width - title_width:
            yield beside + paint(index, text)
        elif may_wrap and word_width(text) <= width - title_width:
            for line in wrap(text, width - title_width):
                yield beside + paint(index, line)
                beside = " " * title_width
        else:
            yield title
            indent = GAP if word_width(text) <= width - GAP else 0
            for line in wrap(text, width - indent):
                yield " " * indent + paint(index, line)


def _shared(space: int, least: Sequence[int], most: Sequence[int]) -> list[int]:
    """Return the widths between `least` and `most` that add up to at most `space`; columns that need least come
    first.
    """
    widths = list(least)
    left = space - sum(least)
    by_need = sorted(range(len(widths)), key=lambda index: most[index] - least[index])
    for position, index in enumerate(by_need):
        grown = min(most[index] - least[index], left // (len(by_need) - position))
        widths[index] += grown
        left -= grown
    return widths

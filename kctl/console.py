"""The only module that prints: rows in four formats, notes, errors and progress; data to stdout, messages to stderr.

    table   columns for people, fitted to the width of the terminal; the default when stdout is a terminal
    plain   one row per line, columns separated by tabs, `-` for null, no header unless requested; the default otherwise
    json    exactly one JSON document per command, also when it fails: {"error": {"code", "message", "retryable"}}
    jsonl   one JSON object per line, written as it becomes known

Names, keys, values and error texts come from clients and brokers.  Everything is escaped here, so that none of it
reaches a terminal as a control sequence.  The exceptions are `verbatim` and `data`, and those only where stdout is no
terminal.

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

import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TextIO

from kctl.table_layout import NOTHING, TableLayout, block_lines
from kctl.terminal_text import cut, escape, escape_cell, escape_json, escape_lines

if TYPE_CHECKING:
    import json

LAID_OUT_ROWS_MAX = 200
"""Number of rows that a table buffers to determine the widths of its columns."""
TERMINAL_WIDTH_DEFAULT = 80
PROGRESS_INTERVAL_S = 0.1
PROGRESS_LINE_INTERVAL_S = 10.0


class TypedRow(Protocol):
    """Any NamedTuple."""

    @property
    def _fields(self) -> tuple[str, ...]: ...
    def _asdict(self) -> dict[str, Any]: ...


Row = TypedRow | Mapping[str, Any]
"""A mapping is a row whose names are known at run time only, such as a decoded record."""

EMPTY = '""'
_ESCAPED_LOOKALIKES = {NOTHING: "\\x2d", EMPTY: "\\x22\\x22"}
"""Texts that would be mistaken for the cell of null or of the empty text."""


class Format(Enum):
    """The output format."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"
    JSONL = "jsonl"


class Column:
    """One column of a table: the field of the row, and how title and cells are formatted.

    `wraps`: prose or a list, which may be wrapped if the terminal is narrow; names and ids are never wrapped.
    `is_rare`: a table omits the column if it is empty in all rows; plain always has it.
    """

    __slots__ = ("is_rare", "name", "numeric", "title", "wraps")

    def __init__(
        self,
        name: str,
        title: str | None = None,
        *,
        numeric: bool = False,
        wraps: bool = False,
        is_rare: bool = False,
    ) -> None:
        self.name = name
        self.title = title or name.upper().replace("_", "-")
        self.numeric = numeric
        self.wraps = wraps
        self.is_rare = is_rare


ERROR_COLUMNS = (Column("error", is_rare=True), Column("message", wraps=True, is_rare=True))
"""The last two columns of every row about one item: the name of a Kafka error and its message; empty on success."""


class Console:
    """The output of one command.  Owner: the command."""

    default_format: ClassVar[Format | None] = None
    """The format of this process without --format: that of a profile.  None depends on whether stdout is a terminal."""

    def __init__(
        self,
        stdout: TextIO,
        stderr: TextIO,
        *,
        format: Format | None = None,  # noqa: A002 - the option's name
        header: bool = False,
        color: bool = True,
        quiet: bool = False,
        stdin: TextIO | None = None,
    ) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.stdin = stdin
        self.format = format or (Format.TABLE if stdout.isatty() else Format.PLAIN)
        self.header = header
        self.quiet = quiet
        self.color = color

    @classmethod
    def standard(
        cls,
        format: str | None = None,  # noqa: A002 - the option's name
        *,
        header: bool = False,
        no_color: bool = False,
        quiet: bool = False,
    ) -> Console:
        """The console of this process.  NO_COLOR, TERM=dumb and --no-color disable colours."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        color = not no_color and uses_colors()
        chosen = Format(format) if format else cls.default_format
        return cls(sys.stdout, sys.stderr, format=chosen, header=header, color=color, quiet=quiet, stdin=sys.stdin)

    @property
    def is_machine_readable(self) -> bool:
        """True for `--format json` and `--format jsonl`."""
        return self.format in {Format.JSON, Format.JSONL}

    def show(self, columns: Sequence[Column], items: Iterable[Row], *, rows: Iterable[Row] | None = None) -> None:
        """Show a list.  `items` are the JSON objects; `rows`, if given, are their flat form for table and plain."""
        if self.format is Format.JSON:
            self._json([as_mapping(item) for item in items])
        elif self.format is Format.JSONL:
            for item in items:
                self.stdout.write(_dumps(as_mapping(item)) + "\n")
        else:
            with self.stream(columns) as stream:
                for row in items if rows is None else rows:
                    stream.write(row)

    def show_one(self, item: Row) -> None:
        """Show one object: one JSON object, or a name and a value per line."""
        fields = as_mapping(item)
        if self.format is Format.JSON:
            self._json(fields)
        elif self.format is Format.JSONL:
            self.stdout.write(_dumps(fields) + "\n")
        elif self.format is Format.PLAIN:
            for name, value in fields.items():
                self.stdout.write(f"{cell(name)}\t{cell(value)}\n")
        else:
            titles = [cell(name.replace("_", "-")) for name in fields]
            cells = [cell(value) for value in fields.values()]
            lines = block_lines(titles, cells, wraps=[True] * len(fields), width=self.width, paint=_unpainted)
            self.stdout.writelines(line + "\n" for line in lines)

    def stream(self, columns: Sequence[Column]) -> RowStream:
        """Show rows one by one in constant memory, except for table (needs the widths) and json (is one document)."""
        match self.format:
            case Format.JSON:
                return _JsonStream(self, columns)
            case Format.JSONL:
                return _JsonLinesStream(self, columns)
            case Format.PLAIN:
                return _PlainStream(self, columns)
            case Format.TABLE:
                return _TableStream(self, columns)

    @property
    def width(self) -> int | None:
        """Columns of the terminal of stdout; None for a pipe or a file, where lines have no limit."""
        return terminal_width(self.stdout) if self.stdout.isatty() else None

    def text(self, text: str) -> None:
        """Write kctl's own lines: help, a version, a script, an empty line."""
        self.verbatim(text if text.endswith("\n") else text + "\n")

    def verbatim(self, text: str) -> None:
        """Write text in the format of another program, or data; unchanged except on a terminal."""
        self.stdout.write(escape_lines(text) if self.stdout.isatty() else text)

    def data(self, data: bytes) -> None:
        """Write bytes in a format that the user gave; unchanged except on a terminal.  The command writes no text."""
        if self.stdout.isatty():
            self.stdout.write(escape_lines(data.decode(errors="surrogateescape")))
        else:
            self.stdout.buffer.write(data)

    def note(self, text: str) -> None:
        """Write a note to stderr; --quiet suppresses it."""
        if not self.quiet:
            self.stderr.write(escape(text) + "\n")

    def warn(self, text: str) -> None:
        """Write a warning to stderr; the command continues."""
        self.stderr.write(f"kctl: warning: {escape(text)}\n")

    def complain(self, text: str) -> None:
        """Write lines to stderr in the format of another program."""
        self.stderr.write(escape_lines(text) + "\n")

    def fail(self, code: str, message: str, *, retryable: bool = False) -> None:
        """Write the error that ends the command to stderr, and with json also as the document on stdout."""
        if self.format is Format.JSON:
            self._json({"error": {"code": code, "message": message, "retryable": retryable}})
        self.stderr.write(f"kctl: {escape(message)}\n")

    @property
    def can_ask(self) -> bool:
        """Whether there is a terminal to ask on."""
        return self.stdin is not None and self.stdin.isatty() and self.stderr.isatty()

    def confirm(self, question: str) -> bool | None:
        """Ask for confirmation on the terminal; None if there is no terminal."""
        answer = self.ask(f"{question} [y/N]")
        return None if answer is None else answer.lower() in {"y", "yes"}

    def ask(self, question: str) -> str | None:
        """The line that the user types on the terminal after the question; None if there is no terminal."""
        if self.stdin is None or not self.can_ask:
            return None
        self.stderr.write(f"{escape(question)} ")
        self.stderr.flush()
        return self.stdin.readline().strip()

    def progress(self, label: str, total: int | None = None, *, unit: str = "") -> Progress:
        """A line on stderr with the progress of a long command; --quiet suppresses it."""
        return Progress(self, label, total, unit)

    def clear_screen(self) -> None:
        """Clear the terminal before a table is shown again; elsewhere the tables follow each other."""
        if self.format is Format.TABLE and self.stdout.isatty():
            self.stdout.write("\x1b[H\x1b[2J")

    def flush(self) -> None:
        """Write buffered output to the reader."""
        self.stdout.flush()
        self.stderr.flush()

    def _json(self, document: object) -> None:
        self.stdout.write(_dumps(document, indent=2 if self.stdout.isatty() else None) + "\n")


class RowStream:
    """An unfinished list.  Use as a context manager; if it is left by an exception, nothing more is written."""

    def __init__(self, console: Console, columns: Sequence[Column]) -> None:
        self.console = console
        self.columns = columns

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.finish()

    def write(self, row: Row) -> None:
        """Add one row; fields without a column are in JSON only."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write the rows so far to the reader."""
        self.console.stdout.flush()

    def finish(self) -> None:
        """End the list."""


class _JsonStream(RowStream):
    def __init__(self, console: Console, columns: Sequence[Column]) -> None:
        super().__init__(console, columns)
        self._rows: list[Mapping[str, Any]] = []

    def write(self, row: Row) -> None:
        self._rows.append(as_mapping(row))

    def finish(self) -> None:
        self.console.stdout.write(_dumps(self._rows, indent=2 if self.console.stdout.isatty() else None) + "\n")


class _JsonLinesStream(RowStream):
    def write(self, row: Row) -> None:
        self.console.stdout.write(_dumps(as_mapping(row)) + "\n")


class _PlainStream(RowStream):
    def __init__(self, console: Console, columns: Sequence[Column]) -> None:
        super().__init__(console, columns)
        if console.header:
            console.stdout.write("\t".join(column.title for column in columns) + "\n")

    def write(self, row: Row) -> None:
        fields = as_mapping(row)
        self.console.stdout.write("\t".join(cell(fields.get(column.name)) for column in self.columns) + "\n")


class _TableStream(RowStream):
    """Buffers rows until the end, a flush or LAID_OUT_ROWS_MAX of them; then writes each row as it comes."""

    def __init__(self, console: Console, columns: Sequence[Column]) -> None:
        super().__init__(console, columns)
        self._held: list[list[str]] = []
        self._layout: TableLayout | None = None

    def write(self, row: Row) -> None:
        fields = as_mapping(row)
        cells = [cell(fields.get(column.name)) for column in self.columns]
        if self._layout is not None:
            self._put(self._layout.row(cells, self._paint))
            return
        self._held.append(cells)
        if len(self._held) > LAID_OUT_ROWS_MAX:
            self._release(is_complete=False)

    def flush(self) -> None:
        if self._held:
            self._release(is_complete=False)
        super().flush()

    def finish(self) -> None:
        if self._layout is None:
            self._drop_empty_rare_columns()
            self._release(is_complete=True)

    def _drop_empty_rare_columns(self) -> None:
        shown = [
            index
            for index, column in enumerate(self.columns)
            if not column.is_rare or any(cells[index] != NOTHING for cells in self._held)
        ]
        self.columns = [self.columns[index] for index in shown]
        self._held = [[cells[index] for index in shown] for cells in self._held]

    def _release(self, *, is_complete: bool) -> None:
        self._layout = TableLayout(
            [column.title for column in self.columns],
            self._held,
            numeric=[column.numeric for column in self.columns],
            wraps=[column.wraps for column in self.columns],
            width=self.console.width,
            is_complete=is_complete,
        )
        self._put(self._layout.head(self._paint_title))
        for cells in self._held:
            self._put(self._layout.row(cells, self._paint))
        self._held.clear()

    def _put(self, lines: Iterable[str]) -> None:
        self.console.stdout.writelines(line + "\n" for line in lines)

    def _paint_title(self, _: int, text: str) -> str:
        return self._styled("bold", text)

    def _paint(self, index: int, text: str) -> str:
        is_error = self.columns[index].name == "error" and text.strip() not in {"", NOTHING}
        return self._styled("red", text) if is_error else text

    def _styled(self, style: str, text: str) -> str:
        if not (self.console.color and self.console.stdout.isatty()):
            return text
        from rich.style import Style  # noqa: PLC0415 - plain, json and jsonl do without rich

        return Style.parse(style).render(text)


class Progress:
    """Progress of a long command: one line that is redrawn on a terminal, elsewhere a new line after each interval."""

    def __init__(
        self, console: Console, label: str, total: int | None, unit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._label = escape(label)
        self._total = total
        self._unit = unit
        self._clock = clock
        self._is_drawn = False
        self._interval_s = PROGRESS_INTERVAL_S if console.stderr.isatty() else PROGRESS_LINE_INTERVAL_S
        self._next_s = clock() + self._interval_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def hide(self) -> None:
        """Erases the line from a terminal, before other output; the next update may draw it again."""
        if self._is_drawn and self._console.stderr.isatty():
            self._console.stderr.write("\r\x1b[K")
            self._console.stderr.flush()
        self._is_drawn = False

    def update(self, done: int, *, total: int | None = None, note: str = "") -> None:
        """`done` of `total` is complete; may be called often.  `total` may grow."""
        self._total = self._total if total is None else total
        now_s = self._clock()
        if self._console.quiet or now_s < self._next_s:
            return
        self._next_s = now_s + self._interval_s
        self._is_drawn = True
        of_total = f" of {self._total:,} ({done * 100 // self._total}%)" if self._total else ""
        line = f"{self._label} {done:,}{of_total} {self._unit}".rstrip() + (f", {escape(note)}" if note else "")
        stderr = self._console.stderr
        # A line that reaches the last column would be wrapped, and redrawing would leave a copy of it.
        stderr.write(f"\r\x1b[K{cut(line, terminal_width(stderr) - 1)}" if stderr.isatty() else line + "\n")
        stderr.flush()


def uses_colors() -> bool:
    """False if NO_COLOR is set or TERM is dumb."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width(stream: TextIO) -> int:
    """Columns of the terminal: COLUMNS if it is set, else as the terminal reports."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdecimal() and 0 < len(given) < 6 and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or TERMINAL_WIDTH_DEFAULT
    except (OSError, ValueError):
        return TERMINAL_WIDTH_DEFAULT


def as_mapping(row: Row) -> Mapping[str, Any]:
    """The fields of a row by name, in order; rows within rows become mappings too."""
    if isinstance(row, Mapping):
        return row
    fields = row._asdict()
    for name, value in fields.items():
        if isinstance(value, (list, tuple)):
            fields[name] = _nested(value)
    return fields


def _nested(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return as_mapping(value)
    return [_nested(one) for one in value] if isinstance(value, (list, tuple)) else value


def cell(value: object) -> str:
    """A value as one cell.

    Null and empty lists are `-`, the empty text is `""`; control characters are escaped and backslashes doubled.  A
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


def _unpainted(_: int, text: str) -> str:
    return text


def _dumps(value: object, indent: int | None = None) -> str:
    return escape_json(_json_encoder(indent).encode(value))


@functools.cache
def _json_encoder(indent: int | None) -> json.JSONEncoder:
    """Cached, because creating an encoder takes as long as encoding a record."""
    import json  # noqa: PLC0415 - not needed for tables

    return json.JSONEncoder(ensure_ascii=False, indent=indent, separators=(",", ": ") if indent else (",", ":"))

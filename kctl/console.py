"""The only module that prints: rows in four formats, notes, errors and progress.  Data goes to stdout, talk to stderr.

    table   aligned columns for people; the default when stdout is a terminal (the only place where rich is used)
    plain   one row per line, columns separated by tabs, `-` for nothing, no header unless asked; the default otherwise
    json    exactly one JSON document per command, also when it fails: {"error": {"code", "message", "retryable"}}
    jsonl   one JSON object per line, written as it becomes known

rich is not used for anything that a program may read: it cuts columns to the width of the terminal and takes text in
square brackets for markup.  Above RICH_ROWS_MAX rows it would also take seconds.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Self, TextIO

if TYPE_CHECKING:
    import json

RICH_ROWS_MAX = 200
WRAPPED_WIDTH_MIN = 16
PROGRESS_INTERVAL_S = 0.1
PROGRESS_LINE_INTERVAL_S = 10.0

Row = Mapping[str, Any]

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\\\u2028\u2029\udc80-\udcff]")
"""Also the surrogates that stand for bytes which are no UTF-8."""
_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\"}


class Format(Enum):
    """How a command shows what it found."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"
    JSONL = "jsonl"


class Column:
    """One column of a table: the key in each row and how its title and cells look.

    `wraps`: prose or a list, which may go on in the next line where a terminal is narrow; names and ids stay whole.
    `is_rare`: people need no such column where it is empty in all rows; programs read plain, where columns always stay.
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
"""The last two columns of every row about one item: a bare Kafka error name and what it means; empty on success."""


class Console:
    """Where one command shows its results.  Owner: the command."""

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
        """The console of this process.  Colour is off for NO_COLOR, TERM=dumb and when asked."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        color = not no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        chosen = Format(format) if format else None
        return cls(sys.stdout, sys.stderr, format=chosen, header=header, color=color, quiet=quiet, stdin=sys.stdin)

    @property
    def is_machine_readable(self) -> bool:
        return self.format in {Format.JSON, Format.JSONL}

    def show(self, columns: Sequence[Column], items: Iterable[Row], *, rows: Iterable[Row] | None = None) -> None:
        """Show a list.  `items` is what JSON tells; `rows`, where given, is the flat view of it for table and plain."""
        if self.format is Format.JSON:
            self._json(list(items))
        elif self.format is Format.JSONL:
            for item in items:
                self.stdout.write(_dumps(item) + "\n")
        else:
            with self.stream(columns) as stream:
                for row in items if rows is None else rows:
                    stream.write(row)

    def show_one(self, item: Row) -> None:
        """Show a single thing: one JSON object, or a name and a value per line."""
        if self.format is Format.JSON:
            self._json(item)
        elif self.format is Format.JSONL:
            self.stdout.write(_dumps(item) + "\n")
        elif self.format is Format.PLAIN:
            for name, value in item.items():
                self.stdout.write(f"{name}\t{cell(value)}\n")
        else:
            width = max((len(name) for name in item), default=0)
            for name, value in item.items():
                self.stdout.write(f"{name.replace('_', '-').ljust(width)}  {cell(value)}\n")

    def stream(self, columns: Sequence[Column]) -> RowStream:
        """Rows one by one in constant memory, except for table (needs the widths) and json (is one document)."""
        match self.format:
            case Format.JSON:
                return _JsonStream(self, columns)
            case Format.JSONL:
                return _JsonLinesStream(self, columns)
            case Format.PLAIN:
                return _PlainStream(self, columns)
            case Format.TABLE:
                return _TableStream(self, columns)

    def text(self, text: str) -> None:
        """Text that was asked for: help, a version, a script."""
        self.stdout.write(text if text.endswith("\n") else text + "\n")

    def verbatim(self, text: str) -> None:
        """Text that another program is to take for that of a third: not a byte more."""
        self.stdout.write(text)

    def note(self, text: str) -> None:
        """A line of talk; --quiet hides it."""
        if not self.quiet:
            self.stderr.write(escape_controls(text) + "\n")

    def warn(self, text: str) -> None:
        """Something the user should know although the command goes on."""
        self.stderr.write(f"kctl: warning: {escape_controls(text)}\n")

    def fail(self, code: str, message: str, *, retryable: bool = False) -> None:
        """Say why the whole command failed; under json the document on stdout says it too."""
        if self.format is Format.JSON:
            self._json({"error": {"code": code, "message": message, "retryable": retryable}})
        self.stderr.write(f"kctl: {escape_controls(message)}\n")

    def confirm(self, question: str) -> bool | None:
        """Ask on the terminal; None where there is nobody to ask."""
        if self.stdin is None or not self.stdin.isatty() or not self.stderr.isatty():
            return None
        self.stderr.write(f"{escape_controls(question)} [y/N] ")
        self.stderr.flush()
        return self.stdin.readline().strip().lower() in {"y", "yes"}

    def progress(self, label: str, total: int | None = None, *, unit: str = "") -> Progress:
        """A line on stderr that tells how far a long command is; silent under --quiet."""
        return Progress(self, label, total, unit)

    def flush(self) -> None:
        """Hand everything written so far to the reader."""
        self.stdout.flush()
        self.stderr.flush()

    def _json(self, document: object) -> None:
        self.stdout.write(_dumps(document, indent=2 if self.stdout.isatty() else None) + "\n")


class RowStream:
    """A list under way.  Use as a context manager; leaving it by an exception writes nothing more."""

    def __init__(self, console: Console, columns: Sequence[Column]) -> None:
        self.console = console
        self.columns = columns

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.finish()

    def write(self, row: Row) -> None:
        """Add one row; keys that are not columns show up in JSON only."""
        raise NotImplementedError

    def flush(self) -> None:
        """Everything known so far can be seen by the reader."""
        self.console.stdout.flush()

    def finish(self) -> None:
        """Nothing more will come."""


class _JsonStream(RowStream):
    def __init__(self, console: Console, columns: Sequence[Column]) -> None:
        super().__init__(console, columns)
        self._rows: list[Row] = []

    def write(self, row: Row) -> None:
        self._rows.append(row)

    def finish(self) -> None:
        self.console.stdout.write(_dumps(self._rows, indent=2 if self.console.stdout.isatty() else None) + "\n")


class _JsonLinesStream(RowStream):
    def write(self, row: Row) -> None:
        self.console.stdout.write(_dumps(row) + "\n")


class _PlainStream(RowStream):
    def __init__(self, console: Console, columns: Sequence[Column]) -> None:
        super().__init__(console, columns)
        if console.header:
            console.stdout.write("\t".join(column.title for column in columns) + "\n")

    def write(self, row: Row) -> None:
        self.console.stdout.write("\t".join(cell(row.get(column.name)) for column in self.columns) + "\n")


class _TableStream(RowStream):
    """Gathers rows for the widths to the end, a flush or RICH_ROWS_MAX of them; then writes rows as they come."""

    def __init__(self, console: Console, columns: Sequence[Column]) -> None:
        super().__init__(console, columns)
        self._held: list[list[str]] = []
        self._widths: list[int] | None = None

    def write(self, row: Row) -> None:
        cells = [cell(row.get(column.name)) for column in self.columns]
        if self._widths is not None:
            self._line(cells)
            return
        self._held.append(cells)
        if len(self._held) > RICH_ROWS_MAX:
            self._release()

    def flush(self) -> None:
        if self._held:
            self._release()
        super().flush()

    def finish(self) -> None:
        if self._widths is not None:
            return
        self._drop_empty_rare_columns()
        if not (self._held and self.console.stdout.isatty() and _rich_table(self.console, self.columns, self._held)):
            self._release()

    def _drop_empty_rare_columns(self) -> None:
        shown = [
            index
            for index, column in enumerate(self.columns)
            if not column.is_rare or any(cells[index] != "-" for cells in self._held)
        ]
        self.columns = [self.columns[index] for index in shown]
        self._held = [[cells[index] for index in shown] for cells in self._held]

    def _release(self) -> None:
        titles = [column.title for column in self.columns]
        self._widths = [max(map(len, texts)) for texts in zip(titles, *self._held, strict=True)]
        self._line(titles)
        for cells in self._held:
            self._line(cells)
        self._held.clear()

    def _line(self, cells: Sequence[str]) -> None:
        assert self._widths is not None
        padded = [
            text.rjust(width) if column.numeric else text.ljust(width)
            for text, width, column in zip(cells, self._widths, self.columns, strict=True)
        ]
        self.console.stdout.write("  ".join(padded).rstrip() + "\n")


class Progress:
    """How far a long command is: one line that is redrawn on a terminal, a line now and then elsewhere."""

    def __init__(
        self, console: Console, label: str, total: int | None, unit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._label = label
        self._total = total
        self._unit = unit
        self._clock = clock
        self._is_drawn = False
        self._interval_s = PROGRESS_INTERVAL_S if console.stderr.isatty() else PROGRESS_LINE_INTERVAL_S
        self._next_s = clock() + self._interval_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_drawn and self._console.stderr.isatty():
            self._console.stderr.write("\r\x1b[K")

    def update(self, done: int, *, total: int | None = None, note: str = "") -> None:
        """`done` of `total` is behind us; cheap to call often.  `total` is for what grows while it is worked on."""
        self._total = self._total if total is None else total
        now_s = self._clock()
        if self._console.quiet or now_s < self._next_s:
            return
        self._next_s = now_s + self._interval_s
        self._is_drawn = True
        of_total = f" of {self._total:,} ({done * 100 // self._total}%)" if self._total else ""
        line = f"{self._label} {done:,}{of_total} {self._unit}".rstrip() + (f", {note}" if note else "")
        self._console.stderr.write(f"\r\x1b[K{line}" if self._console.stderr.isatty() else line + "\n")
        self._console.stderr.flush()


def cell(value: object) -> str:
    """A value as one cell: controls escaped and backslashes doubled, lists joined by commas, `-` for nothing."""
    match value:
        case None | "":
            return "-"
        case str():
            if value.isprintable() and "\\" not in value:
                return value
            return _UNSAFE.sub(_escape, value)
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case dict():
            return ",".join(f"{key}={'' if inner is None else cell(inner)}" for key, inner in value.items()) or "-"
        case list() | tuple():
            return ",".join(map(cell, value)) or "-"
        case _:
            return str(value)


def escape_controls(text: str) -> str:
    """Text that cannot break out of its line or steer a terminal."""
    return _CONTROLS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return _ESCAPES.get(character) or (
        f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}"
    )


def _dumps(value: object, indent: int | None = None) -> str:
    return _json_encoder(indent).encode(value)


@functools.cache
def _json_encoder(indent: int | None) -> json.JSONEncoder:
    """Kept, because making one takes as long as encoding a record."""
    import json  # noqa: PLC0415 - not needed for tables

    return json.JSONEncoder(ensure_ascii=False, indent=indent, separators=(",", ": ") if indent else (",", ":"))


def _rich_table(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> bool:
    """Write the table for people; False, and nothing written, when the terminal is too narrow for its names and ids."""
    import rich.console  # noqa: PLC0415 - costs more than the rest of a command; only people at a terminal pay
    import rich.table  # noqa: PLC0415 - same
    import rich.text  # noqa: PLC0415 - same

    printer = rich.console.Console(
        file=console.stdout,
        no_color=not console.color,
        color_system="auto" if console.color else None,
        markup=False,
        emoji=False,
        highlight=False,
    )
    widths = [max(map(len, texts)) for texts in zip([column.title for column in columns], *rows, strict=True)]
    needed = [
        min(width, WRAPPED_WIDTH_MIN) if column.wraps else width for column, width in zip(columns, widths, strict=True)
    ]
    if sum(needed) + 2 * len(columns) > printer.width:
        return False
    table = rich.table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            rich.text.Text(column.title),
            justify="right" if column.numeric else "left",
            overflow="fold",
            no_wrap=not column.wraps,
        )
    for cells in rows:
        table.add_row(*(_styled(column, text) for column, text in zip(columns, cells, strict=True)))
    printer.print(table)
    return True


def _styled(column: Column, text: str) -> Any:
    import rich.text  # noqa: PLC0415 - see above

    return rich.text.Text(text, style="red" if column.name == "error" and text != "-" else "")

"""The only module that prints: rows in six formats, notes, errors and progress; data to stdout, messages to stderr.

    table   columns for people, fitted to the width of the terminal; the default when stdout is a terminal
    plain   one row per line, columns separated by tabs, `-` for null, no header unless requested; the default otherwise
    json    exactly one JSON document per command, also when it fails: {"error": {"code", "message", "retryable"}}
    jsonl   one JSON object per line, written as it becomes known
    yaml    the document of json, as YAML
    csv     the rows of plain as RFC 4180, always with a header

Names, keys, values and error texts come from clients and brokers.  Everything is escaped here, so that none of it
reaches a terminal as a control sequence.  The exceptions are `verbatim` and `data`, and those only where stdout is no
terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, TextIO, cast

from kctl.output.progress_line import Progress, terminal_height, terminal_width
from kctl.output.quantities import readable
from kctl.output.row_streams import CsvStream, DocumentStream, JsonLinesStream, PlainStream, RowStream, TableStream
from kctl.output.table import (
    JSON_ONLY,
    Column,
    ErrorName,
    ErrorText,
    Row,
    TypedRow,
    as_mapping,
    block_lines,
    cell,
    columns_of,
    is_present,
    nonzero,
)
from kctl.output.terminal_text import escape, escape_json, escape_lines
from kctl.system.standard_streams import discard

__all__ = [
    "JSON_ONLY",
    "Column",
    "Columns",
    "Console",
    "ErrorName",
    "ErrorText",
    "Format",
    "Progress",
    "Row",
    "RowStream",
    "TypedRow",
    "as_mapping",
    "cell",
    "columns_of",
    "is_present",
    "nonzero",
    "terminal_height",
    "terminal_width",
    "uses_colors",
]


Columns = type[TypedRow] | Sequence[Column]
"""A type of rows, whose annotations declare its columns, or columns that are known at run time only."""


class Format(Enum):
    """The output format."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    CSV = "csv"

    @property
    def is_document(self) -> bool:
        """True if the whole output is one document."""
        return self in {Format.JSON, Format.YAML}


class _Enduring:
    """A stream that may fail: everything that follows is discarded, and the command continues."""

    def __init__(self, stream: TextIO, failure: type[OSError]) -> None:
        """With BrokenPipeError as `failure`, only its reader may leave."""
        self._stream = stream
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except self._failure:
            discard(self._stream)
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except self._failure:
            discard(self._stream)


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
        header: bool | None = None,
        color: bool = True,
        quiet: bool = False,
        human: bool = False,
        stdin: TextIO | None = None,
    ) -> None:
        self.stdout = stdout
        self.stderr = cast("TextIO", _Enduring(stderr, OSError))
        self.stdin = stdin
        self.format = format or (Format.TABLE if stdout.isatty() else Format.PLAIN)
        self.header = header
        """Whether lists begin with titles; None for those of tables and csv only."""
        self.quiet = quiet
        self.color = color
        self.is_human = human
        """Sizes, durations and counts are shown as short text in table and plain."""
        self.listed: int | None = None
        """Number of items of the last list; None before a list is shown."""
        self.stamp: str | None = None
        """With --watch, the time of the round, which each object of jsonl has as `watched_at`."""
        self.has_output = False
        """True once the document of json or yaml, or text in another format, is written."""
        self.csv_header: tuple[str, ...] | None = None
        """The last header that was written; owned by `CsvStream`."""

    @classmethod
    def standard(
        cls,
        format: str | None = None,  # noqa: A002 - the option's name
        *,
        header: bool | None = None,
        no_color: bool = False,
        quiet: bool = False,
        human: bool = False,
    ) -> Console:
        """Return the console of this process.  NO_COLOR, TERM=dumb and --no-color disable colours."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        color = not no_color and uses_colors()
        chosen = Format(format) if format else cls.default_format
        return cls(
            sys.stdout,
            sys.stderr,
            format=chosen,
            header=header,
            color=color,
            quiet=quiet,
            human=human,
            stdin=sys.stdin,
        )

    def outlive_reader(self) -> None:
        """Continue when the reader of stdout leaves: for commands whose purpose is not their output."""
        self.stdout = cast("TextIO", _Enduring(self.stdout, BrokenPipeError))

    @property
    def is_machine_readable(self) -> bool:
        """True for json, jsonl and yaml, which show objects within objects; csv shows flat rows, as plain does."""
        return self.format in {Format.JSON, Format.JSONL, Format.YAML}

    def show(self, columns: Columns, items: Iterable[Row], *, rows: Iterable[Row] | None = None) -> None:
        """Show a list.  `items` are the JSON objects; `rows`, if given, are their flat form for the other formats."""
        is_flat = rows is not None and not self.is_machine_readable
        with self.stream(columns, is_whole=True) as stream:
            for row in rows if is_flat and rows is not None else items:
                stream.write(row)
        self.listed = sum(1 for _ in items) if is_flat else stream.count

    def show_one(self, item: Row) -> None:
        """Show one object: one JSON or YAML object, a row of plain and CSV, in a table a name and a value per line."""
        fields = as_mapping(item)
        match self.format:
            case Format.JSON | Format.YAML:
                self.document(fields)
            case Format.JSONL:
                self.line(fields)
            case Format.PLAIN | Format.CSV:
                with self.stream([Column(name) for name in fields]) as stream:
                    stream.write(fields)
            case Format.TABLE:
                titles = [cell(name.replace("_", "-")) for name in fields]
                cells = [cell(value) for value in self._readable(fields).values()]
                lines = block_lines(titles, cells, wraps=[True] * len(fields), width=self.width, paint=_unpainted)
                self.stdout.writelines(line + "\n" for line in lines)

    def _readable(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: readable(name, value) for name, value in fields.items()} if self.is_human else fields

    def stream(self, columns: Columns, *, is_whole: bool = False) -> RowStream:
        """Show rows one by one in constant memory, except for table (needs the widths), json and yaml.

        With `is_whole`, all rows exist already: a table is laid out for all of them.
        """
        chosen = columns_of(columns) if isinstance(columns, type) else columns
        return _STREAMS[self.format](self, chosen, is_whole=is_whole)

    def document(self, value: object) -> None:
        """Write the one document of a command with json or yaml."""
        from kctl.output.documents import json_text, yaml_text  # noqa: PLC0415 - not needed for tables

        self.has_output = True
        if self.format is Format.YAML:
            self.stdout.write(yaml_text(value))
        else:
            self.stdout.write(json_text(value, indent=2 if self.stdout.isatty() else None) + "\n")

    def line(self, value: Mapping[str, Any]) -> None:
        """Write one object of jsonl."""
        from kctl.output.documents import json_text  # noqa: PLC0415 - not needed for tables

        if self.stamp is not None:
            value = {**value, "watched_at": self.stamp}
        self.stdout.write(json_text(value) + "\n")

    def encoded_lines(self, lines: Iterable[str]) -> None:
        """Write objects of jsonl that are encoded already, by the rules of `line` except for what it escapes."""
        self.stdout.write("".join([escape_json(line) + "\n" for line in lines]))

    def rows(self, text: str) -> None:
        """Write rows of the current format that are escaped already, by the rules of its stream."""
        self.stdout.write(text)

    @property
    def width(self) -> int | None:
        """Columns of the terminal of stdout; None for a pipe or a file, where lines have no limit."""
        return terminal_width(self.stdout) if self.stdout.isatty() else None

    def text(self, text: str) -> None:
        """Write kctl's own lines: help, a version, a script, an empty line."""
        self.verbatim(text if text.endswith("\n") else text + "\n")

    def verbatim(self, text: str) -> None:
        """Write text in the format of another program, or data; unchanged except on a terminal."""
        self.has_output = True
        self.stdout.write(escape_lines(text) if self.stdout.isatty() else text)

    def data(self, data: bytes) -> None:
        """Write bytes in a format that the user gave; unchanged except on a terminal.  The command writes no text."""
        self.has_output = True
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
        """Write the error that ends the command to stderr, and with json and yaml also as the document on stdout."""
        self.stderr.write(f"kctl: {escape(message)}\n")  # First, because stdout may be what has failed.
        if self.format.is_document:
            self.document({"error": {"code": code, "message": message, "retryable": retryable}})

    @property
    def can_ask(self) -> bool:
        """Whether there is a terminal to ask on."""
        return self.stdin is not None and self.stdin.isatty() and self.stderr.isatty()

    def confirm(self, question: str) -> bool | None:
        """Ask for confirmation on the terminal; None if there is no terminal."""
        answer = self.ask(f"{question} [y/N]")
        return None if answer is None else answer.lower() in {"y", "yes"}

    def ask(self, question: str) -> str | None:
        """Return the line that the user types after the question, empty if it is not text; None if there is no
        terminal.
        """
        if self.stdin is None or not self.can_ask:
            return None
        self.stderr.write(f"{escape(question)} ")
        self.stderr.flush()
        try:
            return self.stdin.readline().strip()
        except UnicodeDecodeError:
            return ""

    def progress(self, label: str, total: int | None = None, *, unit: str = "") -> Progress:
        """Return a line on stderr with the progress of a long command; --quiet suppresses it."""
        return Progress(self, label, total, unit)

    def clear_screen(self) -> None:
        """Clear the terminal before a table is shown again; elsewhere the tables follow each other."""
        if self.format is Format.TABLE and self.stdout.isatty():
            self.stdout.write("\x1b[H\x1b[2J")

    def flush(self) -> None:
        """Write buffered output to the reader."""
        self.stdout.flush()
        self.stderr.flush()


_STREAMS: dict[Format, type[RowStream]] = {
    Format.TABLE: TableStream,
    Format.PLAIN: PlainStream,
    Format.JSON: DocumentStream,
    Format.JSONL: JsonLinesStream,
    Format.YAML: DocumentStream,
    Format.CSV: CsvStream,
}


def uses_colors() -> bool:
    """Return False if NO_COLOR is set or TERM is dumb."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _unpainted(_: int, text: str) -> str:
    return text

"""Writes lists row by row, one class per format; `Console.stream` selects it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, TextIO

from kctl.output.quantities import NOTHING, readable
from kctl.output.table import Column, Row, TableLayout, as_mapping, cell, csv_line

LAID_OUT_ROWS_MAX = 200
"""Number of rows that a table buffers to determine the widths of its columns, unless all rows exist already."""


class Output(Protocol):
    """The console, as far as streams need it."""

    stdout: TextIO
    header: bool | None
    color: bool
    is_human: bool
    csv_header: tuple[str, ...] | None

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None for no limit."""

    def document(self, value: object) -> None:
        """Write the one document of json and yaml."""

    def line(self, value: Mapping[str, Any]) -> None:
        """Write one object of jsonl."""

    def note(self, text: str) -> None:
        """Write a message to stderr."""


class RowStream:
    """An unfinished list.  Use as a context manager; if it is left by an exception, nothing more is written."""

    def __init__(self, console: Output, columns: Sequence[Column], *, is_whole: bool = False) -> None:
        """With `is_whole`, all rows exist already, and need not be shown one by one."""
        self.console = console
        self.columns = columns
        self.is_whole = is_whole
        self.count = 0
        """Number of rows so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.finish()

    def write(self, row: Row) -> None:
        """Add one row; fields without a column are in JSON and YAML only."""
        self.count += 1
        self._write(as_mapping(row))

    def _write(self, fields: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        """Write the rows so far to the reader."""
        self.console.stdout.flush()

    def finish(self) -> None:
        """End the list."""


class DocumentStream(RowStream):
    """json and yaml: holds all rows until the end."""

    def __init__(self, console: Output, columns: Sequence[Column], *, is_whole: bool = False) -> None:
        super().__init__(console, columns, is_whole=is_whole)
        self._rows: list[Mapping[str, Any]] = []

    def _write(self, fields: Mapping[str, Any]) -> None:
        self._rows.append(fields)

    def finish(self) -> None:
        self.console.document(self._rows)


class JsonLinesStream(RowStream):
    """One object per line."""

    def _write(self, fields: Mapping[str, Any]) -> None:
        self.console.line(fields)


class CsvStream(RowStream):
    """RFC 4180, with a header.  A second list with other columns begins with an empty line and its own header."""

    def __init__(self, console: Output, columns: Sequence[Column], *, is_whole: bool = False) -> None:
        super().__init__(console, columns, is_whole=is_whole)
        names = tuple(column.name for column in columns)
        if console.csv_header != names:
            if console.csv_header is not None:
                console.stdout.write("\r\n")
            if console.header is not False:
                console.stdout.write(csv_line(names))
            console.csv_header = names

    def _write(self, fields: Mapping[str, Any]) -> None:
        self.console.stdout.write(csv_line(column.value(fields) for column in self.columns))


class _CellStream(RowStream):
    """Rows as cells of text."""

    def _cells(self, fields: Mapping[str, Any]) -> list[str]:
        if not self.console.is_human:
            return [cell(column.value(fields)) for column in self.columns]
        return [cell(readable(column.name, column.value(fields))) for column in self.columns]


class PlainStream(_CellStream):
    """Cells with tabs between them."""

    def __init__(self, console: Output, columns: Sequence[Column], *, is_whole: bool = False) -> None:
        super().__init__(console, columns, is_whole=is_whole)
        if console.header:
            console.stdout.write("\t".join(cell(column.title) for column in columns) + "\n")

    def _write(self, fields: Mapping[str, Any]) -> None:
        self.console.stdout.write("\t".join(self._cells(fields)) + "\n")


class TableStream(_CellStream):
    """Buffers rows until the end, a flush or LAID_OUT_ROWS_MAX of them; then writes each row as it comes."""

    def __init__(self, console: Output, columns: Sequence[Column], *, is_whole: bool = False) -> None:
        super().__init__(console, columns, is_whole=is_whole)
        self._held: list[list[str]] = []
        self._layout: TableLayout | None = None

    def _write(self, fields: Mapping[str, Any]) -> None:
        cells = self._cells(fields)
        if self._layout is not None:
            self._put(self._layout.row(cells, self._paint))
            return
        self._held.append(cells)
        if not self.is_whole and len(self._held) > LAID_OUT_ROWS_MAX:
            self._release(is_complete=False)

    def flush(self) -> None:
        if self._held:
            self._release(is_complete=False)
        super().flush()

    def finish(self) -> None:
        if self._layout is None:
            self._drop_empty_columns()
            self._release(is_complete=True)
        if self._layout is not None and self._layout.left_out:
            self.console.note(f"not shown, the terminal is too narrow: {', '.join(self._layout.left_out)}")

    def _drop_empty_columns(self) -> None:
        """Leave out what no row has, such as racks on a cluster without racks; without rows what is rare."""
        shown = [
            index
            for index, column in enumerate(self.columns)
            if any(cells[index] != NOTHING for cells in self._held) or not (self._held or column.is_rare)
        ]
        self.columns = [self.columns[index] for index in shown]
        self._held = [[cells[index] for index in shown] for cells in self._held]

    def _release(self, *, is_complete: bool) -> None:
        self._layout = TableLayout(
            [column.title for column in self.columns],
            self._held,
            numeric=[bool(column.numeric) for column in self.columns],
            wraps=[column.wraps for column in self.columns],
            width=self.console.width,
            is_complete=is_complete,
            drop_order=[column.drop_order for column in self.columns],
            rare=[column.is_rare for column in self.columns],
            spills=[column.spills for column in self.columns],
        )
        if self.console.header is not False:
            self._put(self._layout.head(self._paint_title))
        for cells in self._held:
            self._put(self._layout.row(cells, self._paint))
        self._held.clear()

    def _put(self, lines: Iterable[str]) -> None:
        self.console.stdout.writelines(line + "\n" for line in lines)

    def _paint_title(self, _: int, text: str) -> str:
        return self._styled("bold", text)

    def _paint(self, index: int, text: str) -> str:
        trouble = self.columns[index].trouble
        return self._styled("red", text) if trouble is not None and trouble(text.strip()) else text

    def _styled(self, style: str, text: str) -> str:
        if not (self.console.color and self.console.stdout.isatty()):
            return text
        from rich.style import Style  # noqa: PLC0415 - plain, json and jsonl do without rich

        return Style.parse(style).render(text)

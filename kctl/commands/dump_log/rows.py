"""Lines of dumped files as rows: one type of row for each kind of line."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from json.encoder import encode_basestring as encode_text
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from kctl.commands.dump_log.items import (
    AbortedTransactionItem,
    BatchItem,
    CheckpointItem,
    Entry,
    FileItem,
    LeaderEpochItem,
    OffsetIndexItem,
    ProblemItem,
    ProducerItem,
    PropertyItem,
    TimeIndexItem,
    batch_item,
    control_entry,
    control_of,
    decoded_entry,
    line_item,
    record_entry,
    record_entry_lines,
    sequence_of,
)
from kctl.commands.dump_log.selection import Selection, decoded
from kctl.commands.frame.options.values import format_time
from kctl.commands.reading.items import header_cells, header_json, json_of, record_item, text_of
from kctl.dump.batches import BatchLine, Line, Problem
from kctl.dump.files import check_records
from kctl.dump.kinds import OFFSET_CHECKPOINTS, PROPERTIES
from kctl.model import TopicPartition
from kctl.output.console import Column, Console, ErrorName, ErrorText, Format
from kctl.output.row_streams import RowStream
from kctl.output.table import cell, csv_field
from kctl.output.terminal_text import escape_json
from kctl.records.compiled import walk_is_compiled
from kctl.records.header import LOG_APPEND_TIME_BIT, BatchHeader, CorruptBatch, Record
from kctl.storage.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    METADATA_SNAPSHOT_SUFFIX,
    QUORUM_STATE,
    parse_log_directory_name,
)
from kctl.system.user_files import is_pipe

if TYPE_CHECKING:
    from collections.abc import Generator

    from kctl.records.compiled.record_rows import Headers, RowForm


# The records of a batch as text of plain, csv or jsonl: the same as the rows of `rows`, by compiled code.


if walk_is_compiled():
    from kctl.records.compiled.record_rows import CSV, JSON, PLAIN, RowForm, format_rows


_ROWS_AT_ONCE = 500
_BASE_END = 1 << 62
_SECONDS_SIZE = len("00.000Z")
_MAGIC = 2


class RowsText(NamedTuple):
    """Rows of some records of a batch."""

    text: str


def row_form(kind: Format, path: str, short: str, tp: TopicPartition) -> RowForm | None:
    """Return how the records of a file are written; None if compiled code does not write this format, or is missing."""
    if not walk_is_compiled():
        return None
    match kind:
        case Format.PLAIN:
            return RowForm(
                PLAIN,
                start=f"{cell(short)}\t".encode(),
                end=b"\t-\t-\n",
                null=b"-",
                text_of=lambda data, _: cell(text_of(data)).encode(),
                headers_of=lambda headers: cell(header_cells(headers)).encode(),
                time_of=_minutes,
            )
        case Format.CSV:
            return RowForm(
                CSV,
                start=f"{csv_field(short)},".encode(),
                end=b",,\r\n",
                null=b"",
                text_of=lambda data, _: csv_field(text_of(data)).encode(),
                headers_of=lambda headers: csv_field(header_cells(headers)).encode(),
                time_of=_minutes,
            )
        case Format.JSONL:
            start = f'{{"type":"record","file":{encode_text(path)},"topic":{encode_text(tp.topic)},'
            return RowForm(
                JSON,
                start=escape_json(f'{start}"partition":{tp.partition},"offset":').encode(),
                end=b',"error":null,"message":null}\n',
                null=b"null",
                text_of=lambda data, encoding: escape_json(json_of(data, encoding.decode())).encode(),
                headers_of=_json_headers,
                time_of=_minutes,
            )
        case _:
            return None


def row_texts(line: BatchLine, form: RowForm) -> Generator[RowsText, None, int | None]:
    """Yield the rows of the records of a batch, and return None.

    If compiled code refuses a record, returns the number of records whose rows were yielded before it.
    """
    header, done, position = line.header, 0, 0
    has_append_time = bool(header.attributes & LOG_APPEND_TIME_BIT)
    base_timestamp = header.max_timestamp if has_append_time else header.base_timestamp
    if header.magic < _MAGIC or header.is_control or max(abs(base_timestamp), abs(header.base_offset)) >= _BASE_END:
        return done
    try:
        region = line.region()
    except CorruptBatch:
        return done
    while done < header.record_count:
        count = min(header.record_count - done, _ROWS_AT_ONCE)
        try:
            rows, position = format_rows(
                region,
                position,
                count,
                header.base_offset,
                base_timestamp,
                header.base_sequence,
                form,
                has_append_time=has_append_time,
            )
        except (IndexError, ValueError):
            return done
        yield RowsText(rows.decode())
        done += count
    return None if position == len(region) else done


def _minutes(timestamp_ms: int) -> bytes:
    return (format_time(timestamp_ms) or "")[:-_SECONDS_SIZE].encode()


def _json_headers(headers: Headers) -> bytes:
    return escape_json(",".join(header_json(name, data) for name, data in headers)).encode()


Decode = Callable[[Record], tuple[object, object]]


_ROWS: dict[str | None, type[FileItem]] = {
    ".index": OffsetIndexItem,
    ".timeindex": TimeIndexItem,
    ".txnindex": AbortedTransactionItem,
    ".snapshot": ProducerItem,
    LEADER_EPOCH_CHECKPOINT: LeaderEpochItem,
    **dict.fromkeys(OFFSET_CHECKPOINTS, CheckpointItem),
    **dict.fromkeys({*PROPERTIES, QUORUM_STATE}, PropertyItem),
    None: ProblemItem,
}
"""The rows of each kind of file but logs."""


class RecordRow(NamedTuple):
    """A record as a line of text."""

    file: str
    offset: int
    time: str | None
    sequence: int | None
    key: Annotated[object, Column(wraps=True)]
    value: Annotated[object, Column(wraps=True)]
    headers: Annotated[list[dict[str, str | None]], Column(wraps=True)]
    error: ErrorName = None
    message: ErrorText = None


class RecordsLine(NamedTuple):
    """Some records of the batch in the last BatchLine."""

    header: BatchHeader
    records: Sequence[Record]


Shape = Line | RecordsLine | RowsText

STDIN = "stdin"
"""The name of standard input as a file; `-` stands for nothing in a table."""
_RECORDS_AT_ONCE = 500


class _File:
    """The names of a file: the given path, the file name, and the partition after which its folder is named."""

    __slots__ = ("path", "short", "tp")

    def __init__(self, path: str) -> None:
        self.path = path
        if path == STDIN or is_pipe(path):
            self.short, self.tp = path, TopicPartition(path, -1)
            return
        folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
        parsed = parse_log_directory_name(folder)
        self.short = os.path.join(folder, os.path.basename(path))
        self.tp = parsed[0] if parsed is not None else TopicPartition(folder, -1)


class Shown(NamedTuple):
    """Which lines are shown, and how."""

    selection: Selection
    records: bool
    """Records instead of batches."""
    only_problems: bool
    decode: Decode | None
    """The decoder of an internal topic, if one is selected."""
    key_decoder: str | None
    value_decoder: str | None


class LineRows:
    """Shows the lines of one file after the other; with json, collects them into one document."""

    def __init__(self, shown: Shown) -> None:
        self.has_problem = False
        self._shown = shown
        self._selection = shown.selection
        self._decode = shown.decode
        self._shows_bytes = shown.decode is None and shown.key_decoder is None and shown.value_decoder is None
        self._items: list[FileItem | Entry] = []
        self._is_first = True

    def show(self, console: Console, path: str, kind: str | None, lines: Iterable[Line]) -> None:
        """Show the rows of one file as they are read; `kind` is as of kctl.dump.kinds.kind_of."""
        file = _File(path)
        is_whole = self._shows_bytes and self._selection.is_all and not console.is_human
        form = row_form(console.format, file.path, file.short, file.tp) if is_whole else None
        lines_shown = self._lines(lines, form)
        if console.format.is_document:
            for line in lines_shown:
                if isinstance(line, RecordsLine):
                    self._items += self._entries(file, line)
                elif not isinstance(line, RowsText):
                    self._items.append(self._item(file, line))
            return
        columns = ProblemItem if self._shown.only_problems else self._columns(kind)
        if self._shown.only_problems or console.format is Format.TABLE:
            # No table if there are no rows, and an empty line between two tables.
            first = next(lines_shown, None)
            if first is None:
                return
            lines_shown = _with_first(first, lines_shown)
        if console.format is Format.TABLE and not self._is_first:
            console.text("")
        self._is_first = False
        with console.stream(columns) as stream:
            for line in lines_shown:
                if isinstance(line, RowsText):
                    console.rows(line.text)
                elif isinstance(line, RecordsLine):
                    self._write_records(console, stream, file, line)
                elif console.is_machine_readable:
                    stream.write(self._item(file, line))
                elif not (self._shown.records and isinstance(line, BatchLine)):
                    stream.write(self._row(file, line))

    def finish(self, console: Console) -> None:
        """End the output."""
        if console.format.is_document:
            console.show((), self._items)

    def _columns(self, kind: str | None) -> type[FileItem | RecordRow]:
        if kind in {LOG_SUFFIX, METADATA_SNAPSHOT_SUFFIX}:
            return RecordRow if self._shown.records else BatchItem
        return _ROWS[kind]

    def _write_records(self, console: Console, stream: RowStream, file: _File, line: RecordsLine) -> None:
        header = line.header
        if not console.is_machine_readable:
            for record in line.records:
                stream.write(self._record_row(file, header, record))
        elif console.format is Format.JSONL and self._shows_bytes and not header.is_control:
            console.encoded_lines(record_entry_lines(file.path, file.tp, header, line.records))
        else:
            for entry in self._entries(file, line):
                stream.write(entry)

    def _lines(self, lines: Iterable[Line], form: RowForm | None) -> Iterator[Shape]:
        """Yield the selected lines, the records after their batch; their rows in `form`, where compiled code can do
        that.
        """
        for line in lines:
            if isinstance(line, Problem):
                self.has_problem = True
                yield line
            elif isinstance(line, BatchLine):
                yield from self._batch_and_records(line, form)
            elif not self._shown.only_problems and self._selection.selects(line):
                yield line

    def _batch_and_records(self, line: BatchLine, form: RowForm | None) -> Iterator[Shape]:
        if self._shown.only_problems:
            problem = check_records(line) if line.is_sound else None
            if problem is not None:
                self.has_problem = True
                yield problem
            return
        if not self._selection.may_select_from(line.header):
            return
        if not self._shown.records:
            yield line
            return
        if not line.is_sound:
            yield line  # The following problem explains why its records are not shown.
            return
        is_all = self._selection.is_all
        is_first = not is_all
        if is_all:
            yield line
        done: int | None = 0
        found = line.records() if is_all else filter(self._selection.selects_record, line.records())
        if form is not None:
            done = yield from row_texts(line, form)
            if done is None:
                return
        for records in _until_damage(itertools.islice(found, done, None)):
            if isinstance(records, CorruptBatch):
                self.has_problem = True
                yield Problem(records.reason, line.header.position, line.header.size)
                return
            if is_first:
                is_first = False
                yield line
            yield RecordsLine(line.header, records)

    def _item(self, file: _File, line: Line) -> FileItem:
        return batch_item(file.path, line.header) if isinstance(line, BatchLine) else line_item(file.path, line)

    def _row(self, file: _File, line: Line) -> FileItem:
        """Return the line as a row of text: with the file name only."""
        if isinstance(line, BatchLine):
            return batch_item(file.short, line.header)
        item = line_item(file.short, line)
        if isinstance(line, Problem) and line.position is not None:
            return item._replace(message=f"{line.reason} (position {line.position})")
        return item

    def _entries(self, file: _File, line: RecordsLine) -> list[Entry]:
        return [self._record_entry(file, line.header, record) for record in line.records]

    def _record_entry(self, file: _File, header: BatchHeader, record: Record) -> Entry:
        item = record_item(file.tp, record)
        if header.is_control:
            return control_entry(file.path, header, record, item)
        if self._decode is not None:
            key, value = self._decode(record)
            return decoded_entry(file.path, header, record, item, key, value)
        entry = record_entry(file.path, header, record, item)
        decoded_key = self._decoded(self._shown.key_decoder, record.key)
        if decoded_key is not None:
            entry = entry._replace(key=decoded_key[0], key_encoding=decoded_key[1])
        decoded_value = self._decoded(self._shown.value_decoder, record.value)
        if decoded_value is not None:
            entry = entry._replace(value=decoded_value[0], value_encoding=decoded_value[1])
        return entry

    def _record_row(self, file: _File, header: BatchHeader, record: Record) -> RecordRow:
        key: object
        value: object
        if header.is_control:
            key, value = control_of(record)[0], None
        elif self._decode is not None:
            key, value = map(_compact, self._decode(record))
        else:
            key = self._readable(self._shown.key_decoder, record.key)
            value = self._readable(self._shown.value_decoder, record.value)
        time = format_time(record.timestamp)
        return RecordRow(
            file.short, record.offset, time, sequence_of(header, record), key, value, header_cells(record.headers)
        )

    def _decoded(self, decoder: str | None, data: bytes | None) -> tuple[Any, str] | None:
        """Return the key or value as the selected decoder shows it; None if it cannot be decoded or there is none."""
        return None if decoder is None or data is None else decoded(decoder, data)

    def _readable(self, decoder: str | None, data: bytes | None) -> object:
        found = self._decoded(decoder, data)
        if found is None:
            return text_of(data)
        return _compact(found[0]) if found[1] == "json" else found[0]


def _until_damage(records: Iterable[Record]) -> Iterator[list[Record] | CorruptBatch]:
    """Yield the records in lists, and last the error that ends them, if there is one."""
    some: list[Record] = []
    error = None
    try:
        for record in records:
            some.append(record)
            if len(some) == _RECORDS_AT_ONCE:
                yield some
                some = []
    except CorruptBatch as found:
        error = found
    if some:
        yield some
    if error is not None:
        yield error


def _with_first(first: Shape, rest: Iterator[Shape]) -> Iterator[Shape]:
    yield first
    yield from rest


def _compact(value: object) -> object:
    is_compound = isinstance(value, (dict, list))
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if is_compound else value

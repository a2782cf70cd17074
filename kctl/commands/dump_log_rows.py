"""Lines of dumped files as rows: a set of columns for each kind of file, one shape for each type under JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kctl.commands.records import record_item, record_row
from kctl.commands.rows import NO_ERROR, known
from kctl.commands.values import format_time
from kctl.console import ERROR_COLUMNS, Column, Console, Format
from kctl.model import TopicPartition
from kctl.records.batch import BatchHeader, CorruptBatch, Record
from kctl.records.control import ControlType, parse_end_transaction_marker
from kctl.storage.dump import (
    BatchLine,
    Line,
    OffsetIndexLine,
    Problem,
    RecordLine,
    TimeIndexLine,
    kind_of,
)
from kctl.storage.names import LOG_SUFFIX, parse_log_directory_name
from kctl.storage.producer_state import SnapshotEntry
from kctl.storage.transaction_index import AbortedTransaction

Decode = Callable[[Record], tuple[object, object]]

PROBLEM = "CORRUPT_MESSAGE"
"""The error of every problem: Kafka's one name for bytes that are not what they should be."""


def _numbers(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, numeric=True) for name in names)


FILE = Column("file")
BATCH_COLUMNS = (
    FILE,
    *_numbers("position", "size", "base_offset", "last_offset", "count"),
    Column("codec"),
    Column("max_time"),
    *_numbers("leader_epoch", "producer_id", "producer_epoch", "base_sequence"),
    Column("flags"),
    *ERROR_COLUMNS,
)
RECORD_COLUMNS = (
    FILE,
    *_numbers("offset"),
    Column("time"),
    *_numbers("sequence"),
    Column("key", wraps=True),
    Column("value", wraps=True),
    Column("headers", wraps=True),
    *ERROR_COLUMNS,
)
COLUMNS: dict[str | None, tuple[Column, ...]] = {
    ".index": (FILE, *_numbers("offset", "position"), *ERROR_COLUMNS),
    ".timeindex": (FILE, Column("time"), *_numbers("timestamp_ms", "offset"), *ERROR_COLUMNS),
    ".txnindex": (FILE, *_numbers("producer_id", "first_offset", "last_offset", "last_stable_offset"), *ERROR_COLUMNS),
    ".snapshot": (
        FILE,
        *_numbers("producer_id", "producer_epoch", "last_sequence", "last_offset", "offset_delta"),
        Column("time"),
        *_numbers("coordinator_epoch", "current_txn_first_offset"),
        *ERROR_COLUMNS,
    ),
    None: (FILE, *ERROR_COLUMNS),
}


class _File:
    """A file by its names: as it was given, short, and the partition that its folder is named after."""

    __slots__ = ("path", "short", "tp")

    def __init__(self, path: str) -> None:
        folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
        parsed = parse_log_directory_name(folder)
        self.path = path
        self.short = os.path.join(folder, os.path.basename(path))
        self.tp = parsed[0] if parsed is not None else TopicPartition(folder, -1)


class LineRows:
    """Shows the lines of file after file; json gathers them into the one document."""

    def __init__(self, offsets: range | None, *, with_records: bool, decode: Decode | None) -> None:
        self.has_problem = False
        self._offsets = offsets
        self._with_records = with_records
        self._decode = decode
        self._items: list[dict[str, Any]] = []
        self._is_first = True

    def show(self, console: Console, path: str, lines: Iterable[Line]) -> None:
        """The rows of one file, as they are found."""
        file = _File(path)
        told = (self._noting_problems(line) for line in lines if self._is_wanted(line))
        if console.format is Format.JSON:
            self._items.extend(self._item(file, line) for line in told)
            return
        if console.format is Format.TABLE and not self._is_first:
            console.text("")
        self._is_first = False
        with console.stream(self._columns(path)) as stream:
            for line in told:
                if console.is_machine_readable:
                    stream.write(self._item(file, line))
                elif not (self._with_records and isinstance(line, BatchLine)):
                    stream.write(self._row(file, line))

    def finish(self, console: Console) -> None:
        """Nothing more will come."""
        if console.format is Format.JSON:
            console.show((), self._items)

    def _columns(self, path: str) -> Sequence[Column]:
        kind = kind_of(path)
        if kind == LOG_SUFFIX:
            return RECORD_COLUMNS if self._with_records else BATCH_COLUMNS
        return COLUMNS[kind]

    def _noting_problems(self, line: Line) -> Line:
        if isinstance(line, Problem):
            self.has_problem = True
        return line

    def _is_wanted(self, line: Line) -> bool:
        if self._offsets is None:
            return True
        match line:
            case BatchLine(header):
                return header.last_offset >= self._offsets.start and header.base_offset < self._offsets.stop
            case RecordLine(_, record):
                return record.offset in self._offsets
            case OffsetIndexLine() | TimeIndexLine():
                return line.offset in self._offsets
            case _:
                return True

    def _item(self, file: _File, line: Line) -> dict[str, Any]:
        """A line as JSON tells it."""
        match line:
            case BatchLine(header):
                return {"type": "batch", "file": file.path, **_batch(header), **NO_ERROR}
            case RecordLine(header, record):
                return {"type": "record", "file": file.path, **self._record_item(file, header, record), **NO_ERROR}
            case OffsetIndexLine():
                told: dict[str, Any] = {"offset": line.offset, "position": line.position}
                return {"type": "offset_index", "file": file.path, **told, **NO_ERROR}
            case TimeIndexLine():
                told = {"time": format_time(line.timestamp), "timestamp_ms": line.timestamp, "offset": line.offset}
                return {"type": "time_index", "file": file.path, **told, **NO_ERROR}
            case SnapshotEntry():
                return {"type": "producer", "file": file.path, **_producer(line), **NO_ERROR}
            case AbortedTransaction():
                return {"type": "aborted_transaction", "file": file.path, **line._asdict(), **NO_ERROR}
            case Problem():
                told = {"position": line.position, "error": PROBLEM, "message": line.reason}
                return {"type": "problem", "file": file.path, **told}

    def _row(self, file: _File, line: Line) -> dict[str, Any]:
        """The same for one line of text: the name of the file is short, and records are readable."""
        if isinstance(line, RecordLine):
            row = record_row(file.tp, line.record)
            row["sequence"] = _sequence(line.header, line.record)
            if self._decode is not None and not line.header.is_control:
                key, value = self._decode(line.record)
                row |= {"key": _compact(key), "value": _compact(value)}
            elif line.header.is_control:
                row |= {"key": _control(line.record)["control"], "value": None}
        else:
            row = self._item(file, line)
        if isinstance(line, Problem) and line.position is not None:
            row["message"] = f"{line.reason} (position {line.position})"
        row["file"] = file.short
        return row

    def _record_item(self, file: _File, header: BatchHeader, record: Record) -> dict[str, Any]:
        item = {**record_item(file.tp, record), "sequence": _sequence(header, record)}
        if header.is_control:
            item |= _control(record)
        elif self._decode is not None:
            item["key"], item["value"] = self._decode(record)
            del item["key_encoding"], item["value_encoding"]
        return item


def _batch(header: BatchHeader) -> dict[str, Any]:
    flags = [
        name
        for name, is_set in (
            ("transactional", header.is_transactional),
            ("control", header.is_control),
            ("log-append-time", bool(header.timestamp_type)),
        )
        if is_set
    ]
    return {
        "position": header.position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "codec": _codec(header),
        "max_timestamp_ms": known(header.max_timestamp),
        "max_time": format_time(header.max_timestamp),
        "leader_epoch": known(header.leader_epoch),
        "producer_id": known(header.producer_id),
        "producer_epoch": known(header.producer_epoch),
        "base_sequence": known(header.base_sequence),
        "last_sequence": known(header.last_sequence),
        "flags": flags,
        "delete_horizon_ms": header.delete_horizon_ms,
        "magic": header.magic,
        "crc": header.crc,
    }


def _codec(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except CorruptBatch as error:
        return error.reason


def _producer(entry: SnapshotEntry) -> dict[str, Any]:
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "last_sequence": known(entry.last_sequence),
        "last_offset": known(entry.last_offset),
        "offset_delta": entry.offset_delta,
        "timestamp_ms": known(entry.timestamp),
        "time": format_time(entry.timestamp),
        "coordinator_epoch": known(entry.coordinator_epoch),
        "current_txn_first_offset": known(entry.current_txn_first_offset),
    }


def _sequence(header: BatchHeader, record: Record) -> int | None:
    """Sequence numbers wrap from 2**31-1 to 0."""
    if header.base_sequence < 0:
        return None
    return (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF


def _control(record: Record) -> dict[str, Any]:
    marker = parse_end_transaction_marker(record)
    if marker is None:
        return {"control": "unknown", "coordinator_epoch": None}
    name = "commit" if marker.type is ControlType.COMMIT else "abort"
    return {"control": name, "coordinator_epoch": marker.coordinator_epoch}


def _compact(value: object) -> object:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, dict) else value

"""Lines of dumped files as rows: a set of columns for each kind of file, one shape for each type under JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kctl.commands.dump_log.selection import Selection, decoded
from kctl.commands.records import record_item, record_row
from kctl.commands.rows import NO_ERROR, known
from kctl.commands.values import format_time
from kctl.console import ERROR_COLUMNS, Column, Console, Format
from kctl.errors import MalformedRequest
from kctl.model import TopicPartition
from kctl.records.control import ControlType, parse_end_transaction_marker
from kctl.records.header import BatchHeader, CorruptBatch, Record
from kctl.records.internal_items import record_type_name
from kctl.records.quorum_control_records import decode_quorum_control
from kctl.storage.dump import OFFSET_CHECKPOINTS, PROPERTIES, check_records, kind_of
from kctl.storage.dump_lines import (
    BatchLine,
    CheckpointLine,
    EpochLine,
    Line,
    OffsetIndexLine,
    Problem,
    PropertyLine,
    TimeIndexLine,
)
from kctl.storage.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    METADATA_SNAPSHOT_SUFFIX,
    QUORUM_STATE,
    parse_log_directory_name,
)
from kctl.storage.producer_state import SnapshotEntry
from kctl.storage.transaction_index import AbortedTransaction

Decode = Callable[[Record], tuple[object, object]]

PROBLEM = "CORRUPT_MESSAGE"
"""The error of bytes that are not what they should be: Kafka's one name for them."""
UNREADABLE = "OS_ERROR"
"""The error of files that cannot be read."""


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
    LEADER_EPOCH_CHECKPOINT: (FILE, *_numbers("epoch", "start_offset"), *ERROR_COLUMNS),
    **dict.fromkeys(OFFSET_CHECKPOINTS, (FILE, Column("topic"), *_numbers("partition", "offset"), *ERROR_COLUMNS)),
    **dict.fromkeys({*PROPERTIES, QUORUM_STATE}, (FILE, Column("name"), Column("value", wraps=True), *ERROR_COLUMNS)),
    None: (FILE, *ERROR_COLUMNS),
}


class RecordLine(NamedTuple):
    """A record of the batch in the last BatchLine."""

    header: BatchHeader
    record: Record


Told = Line | RecordLine


class _File:
    """A file by its names: as it was given, short, and the partition that its folder is named after."""

    __slots__ = ("path", "short", "tp")

    def __init__(self, path: str) -> None:
        folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
        parsed = parse_log_directory_name(folder)
        self.path = path
        self.short = os.path.join(folder, os.path.basename(path))
        self.tp = parsed[0] if parsed is not None else TopicPartition(folder, -1)


class Shown(NamedTuple):
    """What of the lines is shown, and how."""

    selection: Selection
    records: bool
    """Records instead of batches."""
    only_problems: bool
    decode: Decode | None
    """For records of internal topics."""
    key_decoder: str | None
    value_decoder: str | None


class LineRows:
    """Shows the lines of file after file; json gathers them into the one document."""

    def __init__(self, shown: Shown) -> None:
        self.has_problem = False
        self._shown = shown
        self._selection = shown.selection
        self._decode = shown.decode
        self._items: list[dict[str, Any]] = []
        self._is_first = True

    def show(self, console: Console, path: str, lines: Iterable[Line]) -> None:
        """The rows of one file, as they are found."""
        file = _File(path)
        told = self._told(lines)
        if console.format is Format.JSON:
            self._items.extend(self._item(file, line) for line in told)
            return
        columns = COLUMNS[None] if self._shown.only_problems else self._columns(path)
        if self._shown.only_problems or console.format is Format.TABLE:
            # A table for nothing would be noise, and a blank line stands between two.
            first = next(told, None)
            if first is None:
                return
            told = _with_first(first, told)
        if console.format is Format.TABLE and not self._is_first:
            console.text("")
        self._is_first = False
        with console.stream(columns) as stream:
            for line in told:
                if console.is_machine_readable:
                    stream.write(self._item(file, line))
                elif not (self._shown.records and isinstance(line, BatchLine)):
                    stream.write(self._row(file, line))

    def finish(self, console: Console) -> None:
        """Nothing more will come."""
        if console.format is Format.JSON:
            console.show((), self._items)

    def _columns(self, path: str) -> Sequence[Column]:
        kind = kind_of(path)
        if kind in {LOG_SUFFIX, METADATA_SNAPSHOT_SUFFIX}:
            return RECORD_COLUMNS if self._shown.records else BATCH_COLUMNS
        return COLUMNS[kind]

    def _told(self, lines: Iterable[Line]) -> Iterator[Told]:
        """The lines that are wanted, records behind their batch."""
        for line in lines:
            if isinstance(line, Problem):
                self.has_problem = True
                yield line
            elif isinstance(line, BatchLine):
                yield from self._batch_and_records(line)
            elif not self._shown.only_problems and self._selection.wants(line):
                yield line

    def _batch_and_records(self, line: BatchLine) -> Iterator[Told]:
        if self._shown.only_problems:
            problem = check_records(line) if line.is_sound else None
            if problem is not None:
                self.has_problem = True
                yield problem
            return
        if not self._selection.wants_batch(line.header):
            return
        if not self._shown.records:
            yield line
            return
        if not line.is_sound:
            yield line  # The problem that follows says why its records are not shown.
            return
        has_said_batch = self._selection.is_all
        if has_said_batch:
            yield line
        try:
            for record in line.records():
                if self._selection.wants_record(record):
                    if not has_said_batch:
                        has_said_batch = True
                        yield line
                    yield RecordLine(line.header, record)
        except CorruptBatch as error:
            self.has_problem = True
            yield Problem(error.reason, line.header.position, line.header.size)

    def _item(self, file: _File, line: Told) -> dict[str, Any]:
        """A line as JSON tells it."""
        match line:
            case BatchLine():
                return {"type": "batch", "file": file.path, **_batch(line.header), **NO_ERROR}
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
            case EpochLine():
                told = {"epoch": line.epoch, "start_offset": line.start_offset}
                return {"type": "leader_epoch", "file": file.path, **told, **NO_ERROR}
            case CheckpointLine():
                told = {"topic": line.topic, "partition": line.partition, "offset": line.offset}
                return {"type": "checkpoint", "file": file.path, **told, **NO_ERROR}
            case PropertyLine():
                return {"type": "property", "file": file.path, "name": line.name, "value": line.value, **NO_ERROR}
            case Problem():
                told = {
                    "position": line.position,
                    "size": line.size,
                    "error": UNREADABLE if line.is_unreadable else PROBLEM,
                    "message": line.reason,
                }
                return {"type": "problem", "file": file.path, **told}

    def _row(self, file: _File, line: Told) -> dict[str, Any]:
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
                self._apply_decoders(row, line.record)
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
        else:
            self._apply_decoders(item, record)
        return item

    def _apply_decoders(self, told: dict[str, Any], record: Record) -> None:
        """Show key and value as asked for; bytes of another kind stay as they are without a decoder."""
        for name, decoder, data in (
            ("key", self._shown.key_decoder, record.key),
            ("value", self._shown.value_decoder, record.value),
        ):
            found = None if decoder is None or data is None else decoded(decoder, data)
            if found is not None:
                told[name] = found[0]
                if f"{name}_encoding" in told:
                    told[f"{name}_encoding"] = found[1]
                elif found[1] == "json":
                    told[name] = _compact(found[0])


def _with_first(first: Told, rest: Iterator[Told]) -> Iterator[Told]:
    yield first
    yield from rest


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
        return {"control": _quorum_control(record), "coordinator_epoch": None}
    name = "commit" if marker.type is ControlType.COMMIT else "abort"
    return {"control": name, "coordinator_epoch": marker.coordinator_epoch}


def _quorum_control(record: Record) -> str:
    try:
        found = decode_quorum_control(record)
    except MalformedRequest:
        found = None
    return "unknown" if found is None else record_type_name(type(found[1]))


def _compact(value: object) -> object:
    is_compound = isinstance(value, (dict, list))
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if is_compound else value

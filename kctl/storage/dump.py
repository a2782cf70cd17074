"""What the files of a log hold, one line after the other, and what is wrong with them.  For people and their tools.

`walk` knows a file by its name, as the broker does, and uses the broker's own readers.  It never writes and needs no
broker to be stopped.  What it finds wrong comes as a Problem in the place where it was found, and it goes on after it
where it can: after a batch with a wrong checksum, not after bytes that are no batch.

Checked are: of a log, that offsets never go back (compaction leaves gaps) and that batches have their checksum; of an
index, that entries ascend and that the log beside it has a batch where they point.  A pointer is good when look-ups
that start from it cannot miss anything: Kafka's followers index several batches at once under the last one's offset.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kctl.errors import CorruptLog
from kctl.records.batch import BatchHeader, CorruptBatch, Record, iterate_records
from kctl.storage.batch_reader import check_crc, read_batches, read_headers
from kctl.storage.checkpoints import parse_snapshot
from kctl.storage.files import RealFile
from kctl.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from kctl.storage.producer_state import SnapshotEntry
from kctl.storage.transaction_index import AbortedTransaction, parse_transaction_index

KINDS = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A batch in a log; `header.position` is that in the file."""

    header: BatchHeader


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A record of the batch in the last BatchLine."""

    header: BatchHeader
    record: Record


@dataclass(frozen=True, slots=True)
class OffsetIndexLine:
    """Look-ups of `offset` or more start at `position`."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeIndexLine:
    """No record before `offset` is later than `timestamp`."""

    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be, in words; at a position of the file where that is known."""

    reason: str
    position: int | None = None


Line = BatchLine | RecordLine | OffsetIndexLine | TimeIndexLine | SnapshotEntry | AbortedTransaction | Problem


def kind_of(path: str) -> str | None:
    """Which of KINDS a file is by its name, also while it waits for its removal; None for all others."""
    parsed = parse_offset_file_name(os.path.basename(path))
    return parsed[1] if parsed is not None and parsed[1] in KINDS else None


def files_of(path: str) -> list[str]:
    """The files that can be dumped in a folder, by name; `path` itself when it is no folder."""
    if not os.path.isdir(path):
        return [path]
    return [os.path.join(path, name) for name in sorted(os.listdir(path)) if kind_of(name) is not None]


def walk(path: str, *, with_records: bool = False) -> Iterator[Line]:
    """All that the file holds.  Raises OSError when it cannot be read, never anything about what is in it."""
    kind = kind_of(path)
    try:
        match kind:
            case ".log":
                yield from _log(path, with_records=with_records)
            case ".index":
                yield from _offset_index(path)
            case ".timeindex":
                yield from _time_index(path)
            case ".txnindex":
                yield from parse_transaction_index(_read(path), path)
            case ".snapshot":
                yield from parse_snapshot(_read(path), path)
            case _:
                yield Problem(f"no file of a log: its name is no 20 digits and one of {', '.join(KINDS)}")
    except CorruptLog as problem:
        yield Problem(problem.reason, problem.position)


def _open(path: str) -> RealFile:
    return RealFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _base_offset(path: str) -> int:
    parsed = parse_offset_file_name(os.path.basename(path))
    assert parsed is not None
    return parsed[0]


def _log(path: str, *, with_records: bool) -> Iterator[Line]:
    file = _open(path)
    expected = _base_offset(path)
    try:
        for header, batch in read_batches(file, 0, file.size()):
            if header.base_offset < expected:
                yield Problem(f"batch at offset {header.base_offset}, but {expected} was to follow", header.position)
            expected = header.next_offset
            yield BatchLine(header)
            try:
                check_crc(file, header, batch)
            except CorruptLog as problem:
                yield Problem(problem.reason, problem.position)
                continue
            if with_records:
                yield from _records(header, batch)
    except CorruptLog as problem:
        rest = file.size() - problem.position
        if _is_zero(file, problem.position):
            yield Problem(f"{rest} zero bytes at the end: room that a crash left", problem.position)
        else:
            yield Problem(f"{rest} bytes from here on are no batches: {problem.reason}", problem.position)
    finally:
        file.close()


def _records(header: BatchHeader, batch: memoryview) -> Iterator[Line]:
    try:
        for record in iterate_records(batch):
            yield RecordLine(header, record)
    except CorruptBatch as problem:
        yield Problem(problem.reason, header.position)


def _is_zero(file: RealFile, position: int) -> bool:
    return not file.read_at(position, 4096).strip(b"\0")


def _entries(path: str, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(position, fields) of all entries; zeros at the end are room, not entries.  Raises CorruptLog."""
    data = _read(path)
    if len(data) % entry.size:
        raise CorruptLog(path, len(data) - len(data) % entry.size, f"size is not a multiple of {entry.size}")
    used = -(-len(data.rstrip(b"\0")) // entry.size) * entry.size
    return zip(range(0, used, entry.size), entry.iter_unpack(data[:used]), strict=True)


def _offset_index(path: str) -> Iterator[Line]:
    base = _base_offset(path)
    log = _log_beside(path)
    before = (-1, -1)
    try:
        for at, (relative, position) in _entries(path, _OFFSET_ENTRY):
            offset = base + relative
            yield OffsetIndexLine(offset, position)
            if (offset, position) <= before or offset < before[0] or position < before[1]:
                yield Problem(f"entry {offset} at {position} is not above the one before", at)
            elif log is not None and (reason := _bad_pointer(log, offset, position)):
                yield Problem(reason, at)
            before = (offset, position)
    finally:
        if log is not None:
            log.close()


def _bad_pointer(log: RealFile, offset: int, position: int) -> str | None:
    try:
        header = next(read_headers(log, position, log.size()), None)
    except CorruptLog as problem:
        return f"entry {offset} points to {position}, where the log has no batch: {problem.reason}"
    if header is None:
        return f"entry {offset} points to {position}, behind the end of the log"
    if header.last_offset > offset:
        return f"entry {offset} points to {position}, where the log has offsets up to {header.last_offset}"
    return None


def _time_index(path: str) -> Iterator[Line]:
    base = _base_offset(path)
    log = _log_beside(path)
    before = (-1, -1)
    try:
        headers = _headers(log) if log is not None else iter(())
        header = next(headers, None)
        for at, (timestamp, relative) in _entries(path, _TIME_ENTRY):
            offset = base + relative
            yield TimeIndexLine(timestamp, offset)
            if timestamp <= before[0] or offset < before[1]:
                yield Problem(f"entry {timestamp} for offset {offset} is not above the one before", at)
            before = (timestamp, offset)
            while header is not None and header.last_offset < offset:
                header = next(headers, None)
            if log is None:
                continue
            if header is None or header.base_offset > offset:
                yield Problem(f"entry {timestamp} is for offset {offset}, which the log does not have", at)
            elif header.max_timestamp != timestamp:
                yield Problem(f"entry {timestamp} for offset {offset}: the batch says {header.max_timestamp}", at)
    finally:
        if log is not None:
            log.close()


def _headers(log: RealFile) -> Iterator[BatchHeader]:
    """Headers up to where the log stops making sense; dumping the log itself says more about that."""
    try:
        yield from read_headers(log, 0, log.size())
    except CorruptLog:
        return


def _log_beside(path: str) -> RealFile | None:
    """The log that an index belongs to, unless it is elsewhere."""
    try:
        return _open(os.path.join(os.path.dirname(path), offset_file_name(_base_offset(path), LOG_SUFFIX)))
    except FileNotFoundError:
        return None

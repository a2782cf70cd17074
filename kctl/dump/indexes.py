"""Reads indexes offline: their entries, their errors, and the sanity check of a broker at its start.

Files are read in chunks.  An entry is accepted if look-ups that start from it miss no record: Kafka's followers add one
entry for several batches, with the offset of the last one.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator

from kctl.dump.batches import BatchLine, OffsetIndexLine, Problem, TimeIndexLine, header_at, read_log
from kctl.errors import CorruptLog
from kctl.records.header import BatchHeader, CorruptBatch
from kctl.storage.files import RealFile
from kctl.storage.names import INDEX_SUFFIX, LOG_SUFFIX, file_stem
from kctl.system.user_files import open_regular

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
_READ_ENTRIES = 4096
_READ_ZEROS = 1 << 16


def open_file(path: str) -> RealFile:
    """Open a regular file for reading.  Raises OSError."""
    return RealFile(path, open_regular(path))


class LogBeside:
    """The log that an index belongs to."""

    __slots__ = ("_file", "size")

    def __init__(self, index_path: str) -> None:
        """Raise FileNotFoundError if the log is not beside the index, and other OSErrors."""
        stem, _ = file_stem(os.path.basename(index_path))
        self._file = open_file(os.path.join(os.path.dirname(index_path), stem + LOG_SUFFIX))
        self.size = self._file.size()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def header_at(self, position: int) -> BatchHeader:
        """Return the header of the batch at a position.  Raises CorruptBatch."""
        return header_at(self._file, position, self.size)

    def batches(self, base_offset: int, start: int = 0) -> Iterator[BatchLine]:
        """Yield the batches from a position on; errors in the log are left to a dump of the log itself."""
        for line in read_log(self._file, base_offset, start, self.size):
            if isinstance(line, BatchLine):
                yield line

    def headers(self) -> Iterator[BatchHeader]:
        """Yield the headers of the batches up to the first corrupt one."""
        position = 0
        while position < self.size:
            try:
                header = self.header_at(position)
            except CorruptBatch:
                return
            position = header.end
            yield header


def log_beside(index_path: str) -> LogBeside | None:
    """Return the log of an index; None if it is not beside it."""
    try:
        return LogBeside(index_path)
    except FileNotFoundError:
        return None


def entries(path: str, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield (position, fields) of all whole entries in the file, including zeros."""
    file = open_file(path)
    try:
        yield from _entries(file, file.size(), entry)
    finally:
        file.close()


def used_entries(path: str, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield (position, fields) without the zeros at the end.  Raises CorruptLog if the size is not a multiple of an
    entry.
    """
    file = open_file(path)
    try:
        size = file.size()
        whole = size - size % entry.size
        used = _end_of_data(file, whole)
        yield from _entries(file, used + -used % entry.size, entry)
        if whole != size:
            raise CorruptLog(path, whole, f"size is not a multiple of {entry.size}")
    finally:
        file.close()


def _entries(file: RealFile, size: int, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield (position, fields) of the entries in the first `size` bytes."""
    piece = _READ_ENTRIES * entry.size
    for start in range(0, size - size % entry.size, piece):
        data = file.read_at(start, min(piece, size - size % entry.size - start))
        whole = len(data) - len(data) % entry.size  # The file may have been truncated meanwhile.
        yield from zip(range(start, start + whole, entry.size), entry.iter_unpack(data[:whole]), strict=True)


def _end_of_data(file: RealFile, size: int) -> int:
    """Return the position of the zeros at the end of the first `size` bytes of the file.

    Brokers preallocate 10 MB for an index; the operating system reports which parts were never written.
    """
    end = _end_of_extents(file, size)
    while end:
        start = max(end - _READ_ZEROS, 0)
        data = file.read_at(start, end - start).rstrip(b"\0")
        if data:
            return start + len(data)
        end = start
    return 0


def _end_of_extents(file: RealFile, size: int) -> int:
    """Return the end of the last written extent; `size` if the file system does not support SEEK_DATA."""
    end = 0
    try:
        while end < size:
            end = os.lseek(file.fileno(), os.lseek(file.fileno(), end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        return end if error.errno == errno.ENXIO else size
    return min(end, size)


def offset_index(path: str, base_offset: int) -> Iterator[OffsetIndexLine | Problem]:
    """Yield the entries of an `.index`, each followed by its Problems.  Raises CorruptLog."""
    log = log_beside(path)
    before = (-1, -1)
    try:
        for at, (relative, position) in used_entries(path, OFFSET_ENTRY):
            offset = base_offset + relative
            yield OffsetIndexLine(offset, position)
            if (offset, position) <= before or offset < before[0] or position < before[1]:
                yield Problem(f"entry {offset} at {position} is not above the one before", at, OFFSET_ENTRY.size)
            elif log is not None and (reason := _bad_pointer(log, offset, position)):
                yield Problem(reason, at, OFFSET_ENTRY.size)
            before = (offset, position)
    finally:
        if log is not None:
            log.close()


def _bad_pointer(log: LogBeside, offset: int, position: int) -> str | None:
    if position == log.size:
        return f"entry {offset} points to {position}, past the end of the log"
    try:
        header = log.header_at(position)
    except CorruptBatch as problem:
        if position > log.size:
            return f"entry {offset} points to {position}, past the end of the log"
        return f"entry {offset} points to {position}, where the log has no batch: {problem.reason}"
    if header.last_offset > offset:
        return f"entry {offset} points to {position}, where the log has offsets up to {header.last_offset}"
    return None


def time_index(path: str, base_offset: int) -> Iterator[TimeIndexLine | Problem]:
    """Yield the entries of a `.timeindex`, each followed by its Problems.  Raises CorruptLog."""
    log = log_beside(path)
    before = (-1, -1)
    try:
        headers = log.headers() if log is not None else iter(())
        header = next(headers, None)
        for at, (timestamp, relative) in used_entries(path, TIME_ENTRY):
            offset = base_offset + relative
            yield TimeIndexLine(timestamp, offset)
            if timestamp <= before[0] or offset < before[1]:
                reason = f"entry {timestamp} for offset {offset} is not above the one before"
                yield Problem(reason, at, TIME_ENTRY.size)
            before = (timestamp, offset)
            while header is not None and header.last_offset < offset:
                header = next(headers, None)
            if log is None:
                continue
            if header is None or (header.magic == 2 and header.base_offset > offset):
                reason = f"entry {timestamp} is for offset {offset}, which is not in the log"
                yield Problem(reason, at, TIME_ENTRY.size)
            elif header.max_timestamp != timestamp:
                reason = (
                    f"entry {timestamp} for offset {offset}: the max timestamp of the batch is {header.max_timestamp}"
                )
                yield Problem(reason, at, TIME_ENTRY.size)
    finally:
        if log is not None:
            log.close()


def sanity_problem(path: str, kind: str) -> str | None:
    """Return why a broker would rebuild the index at its start; None if it would not.

    OffsetIndex.sanityCheck and TimeIndex.sanityCheck of Kafka: they check the size, the first and the last entry.
    """
    entry = OFFSET_ENTRY if kind == INDEX_SUFFIX else TIME_ENTRY
    file = open_file(path)
    try:
        size = file.size()
        count = size // entry.size
        first = entry.unpack(file.read_at(0, entry.size)) if count else (0, 0)
        last = entry.unpack(file.read_at((count - 1) * entry.size, entry.size)) if count else (0, 0)
    finally:
        file.close()
    relative_offset = last[0] if kind == INDEX_SUFFIX else last[1]
    if kind != INDEX_SUFFIX and last[0] < first[0]:
        return f"the last timestamp, {last[0]}, is less than the first, {first[0]}"
    if relative_offset < 0:
        return f"the last offset is {-relative_offset} less than the base offset"
    if size % entry.size:
        return f"{size} bytes are not a multiple of {entry.size}"
    return None

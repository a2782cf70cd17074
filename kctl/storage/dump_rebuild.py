"""Rebuilds the indexes of a segment from its batches, offline.

The rules are those of a broker's recovery (kctl.storage.segment): an offset index entry for the first batch after every
`index.interval.bytes`, a time index entry with it when the largest timestamp has grown, and one more at the end.
Batches with a wrong checksum get no entry and are ignored; the indexes continue after bytes that are not batches.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kctl.errors import KctlError
from kctl.input_files import read_regular
from kctl.storage.dump_batches import Progress, read_log
from kctl.storage.dump_files import base_offset_of
from kctl.storage.dump_indexes import OFFSET_ENTRY, TIME_ENTRY, open_file
from kctl.storage.dump_lines import Problem
from kctl.storage.files import RealFiles
from kctl.storage.names import INDEX_SUFFIX, LOCK, LOG_SUFFIX, TIME_INDEX_SUFFIX, offset_file_name

INDEX_INTERVAL_BYTES = 4096
"""The default of `index.interval.bytes`; any interval makes a correct index."""
_POSITION_MAX = (1 << 31) - 1


class InUse(KctlError):
    """A broker is using the directory."""


@dataclass(frozen=True, slots=True)
class IndexChange:
    """The change of one index file; `before` is None if the file did not exist."""

    path: str
    before: int | None
    after: int
    is_changed: bool


@contextlib.contextmanager
def exclusive(directories: list[str]) -> Iterator[None]:
    """Lock the log directories that contain these partition directories against brokers.  Raises InUse.

    kctl's broker holds a flock, Apache Kafka's a POSIX lock; a log directory without a lock file was never used by a
    broker.
    """
    with contextlib.ExitStack() as stack:
        for log_dir in sorted({os.path.dirname(os.path.abspath(directory)) for directory in directories}):
            path = os.path.join(log_dir, LOCK)
            try:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            stack.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InUse(f"a broker is using {log_dir}; stop it first") from None
        yield


def logs_of(paths: list[str]) -> list[str]:
    """Return the `.log` files that these files belong to, without duplicates."""
    logs: dict[str, None] = {}
    for path in paths:
        name = offset_file_name(base_offset_of(path), LOG_SUFFIX)
        logs[os.path.join(os.path.dirname(path), name)] = None
    return list(logs)


def rebuild_indexes(
    log_path: str, *, dry_run: bool, progress: Progress | None = None
) -> Iterator[IndexChange | Problem]:
    """Replace the indexes that differ, or only report them for `dry_run`; Problems are those of the log.  Raises
    OSError.
    """
    base_offset = base_offset_of(log_path)
    offsets, times = bytearray(), bytearray()
    largest, largest_at = -1, base_offset
    last_time = -1
    since_entry = 0

    def add_time() -> None:
        """Add a time index entry if the largest timestamp has grown."""
        nonlocal last_time
        if largest > last_time:
            times.extend(TIME_ENTRY.pack(largest, largest_at - base_offset))
            last_time = largest

    file = open_file(log_path)
    try:
        for line in read_log(file, base_offset, 0, file.size(), progress):
            if isinstance(line, Problem):
                yield line
                continue
            header = line.header
            if not line.is_sound:
                continue
            if not 0 <= header.last_offset - base_offset <= _POSITION_MAX or header.position > _POSITION_MAX:
                yield Problem(
                    f"batch at {header.base_offset} is too far from the base offset to be indexed",
                    header.position,
                    header.size,
                )
                break
            if header.max_timestamp > largest:
                largest, largest_at = header.max_timestamp, header.last_offset
            if since_entry > INDEX_INTERVAL_BYTES:
                offsets += OFFSET_ENTRY.pack(header.last_offset - base_offset, header.position)
                add_time()
                since_entry = 0
            since_entry += header.size
    finally:
        file.close()
    add_time()
    for suffix, entry, data in ((INDEX_SUFFIX, OFFSET_ENTRY, offsets), (TIME_INDEX_SUFFIX, TIME_ENTRY, times)):
        path = os.path.join(os.path.dirname(log_path), offset_file_name(base_offset, suffix))
        yield _replace(path, entry, bytes(data), dry_run=dry_run)


def _replace(path: str, entry: struct.Struct, data: bytes, *, dry_run: bool) -> IndexChange:
    try:
        before = read_regular(path)
    except FileNotFoundError:
        before = None
    is_changed = before != data
    if is_changed and not dry_run:
        RealFiles().write_atomically(os.path.abspath(path), data)
    count = None if before is None else -(-len(before.rstrip(b"\0")) // entry.size)
    return IndexChange(path, count, len(data) // entry.size, is_changed)

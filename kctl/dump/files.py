"""Reads the files of a log offline, entry by entry, and reports what is wrong with them.

`walk` recognises a file by its name, as the broker does, or by its contents (kctl.dump.kinds).  It only reads,
works while a broker runs, and uses memory that does not depend on the file size.  Errors in a file are returned as a
Problem at the place where they were found, and reading continues after them where possible.

Checked are, for a log, that offsets never decrease (compaction leaves gaps) and that checksums are right; for an index,
that entries ascend and point to batches of the log beside it (kctl.dump.indexes).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kctl.dump.batches import (
    BatchLine,
    CheckpointLine,
    EpochLine,
    Line,
    Problem,
    Progress,
    PropertyLine,
    first_bytes,
    header_at,
    read_log,
)
from kctl.dump.indexes import OFFSET_ENTRY, TIME_ENTRY, offset_index, open_file, time_index, used_entries
from kctl.dump.kinds import KINDS, OFFSET_CHECKPOINTS, base_offset_of, recognized_kind
from kctl.errors import CorruptLog, KctlError
from kctl.records.compiled.walk import check_records as walk_records
from kctl.records.header import CorruptBatch
from kctl.storage.files import RealFile, RealFiles
from kctl.storage.names import (
    INDEX_SUFFIX,
    LOCK,
    LOG_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from kctl.storage.segments.transaction_index import parse_transaction_index
from kctl.storage.state.checkpoints import parse_epochs, parse_offsets, parse_snapshot
from kctl.system.user_files import read_regular


def walk(
    path: str,
    *,
    first_offset: int = 0,
    last_offset: int | None = None,
    size: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Line]:
    """Yield the entries of the file and its Problems; a file that cannot be read gives a Problem too.

    For a log, only the part that can hold offsets from `first_offset` to `last_offset` is read, located by its index,
    and at most its first `size` bytes.
    """
    try:
        match kind := recognized_kind(path):
            case ".log":
                yield from _log(path, base_offset_of(path), first_offset, last_offset, size, progress)
            case ".checkpoint":  # The offsets of a snapshot start at 0.
                yield from _log(path, 0, 0, last_offset, size, progress)
            case ".index":
                yield from offset_index(path, base_offset_of(path))
            case ".timeindex":
                yield from time_index(path, base_offset_of(path))
            case ".txnindex":
                yield from parse_transaction_index(read_regular(path), path)
            case ".snapshot":
                yield from parse_snapshot(read_regular(path), path)
            case "leader-epoch-checkpoint":
                yield from (
                    EpochLine(entry.epoch, entry.start_offset) for entry in parse_epochs(read_regular(path), path)
                )
            case "quorum-state":
                yield from _quorum_state(read_regular(path), path)
            case None:
                yield Problem(
                    f"not a log file: it does not start with a batch, and its name has none of {', '.join(KINDS)}"
                )
            case _ if kind in OFFSET_CHECKPOINTS:
                for tp, offset in parse_offsets(read_regular(path), path).items():
                    yield CheckpointLine(tp.topic, tp.partition, offset)
            case _:
                yield from _properties(read_regular(path), path)
    except CorruptLog as problem:
        yield Problem(problem.reason, problem.position)
    except OSError as error:
        yield Problem(error.strerror or str(error), is_unreadable=True)


def check_records(line: BatchLine) -> Problem | None:
    """Return what is wrong inside of a batch with a valid checksum, if anything."""
    header = line.header
    if header.magic == 2 and header.last_offset_delta >= header.record_count - 1 and _is_dense(line):
        return None
    before = -1
    try:
        for record in line.records():
            if record.offset <= before:
                return Problem(f"record {record.offset} follows {before}", header.position, header.size)
            before = record.offset
            if header.magic == 2 and not header.base_offset <= before <= header.last_offset:
                reason = f"record {before} in a batch of {header.base_offset} to {header.last_offset}"
                return Problem(reason, header.position, header.size)
    except CorruptBatch as problem:
        return Problem(problem.reason, header.position, header.size)
    return None


def _is_dense(line: BatchLine) -> bool:
    """Return True if the batch is valid and its records have the offset deltas 0, 1, 2 and so on, as producers write
    them.
    """
    try:
        return walk_records(line.region(), line.header.record_count)[0]
    except (CorruptBatch, IndexError, ValueError):
        return False


def _properties(data: bytes, path: str) -> Iterator[PropertyLine | Problem]:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptLog(path, error.start, "not text") from error
    separator = ":" if os.path.basename(path) == PARTITION_METADATA else "="
    for line in lines:
        name, has_separator, value = line.partition(separator)
        if line.strip() and not line.startswith("#"):
            yield PropertyLine(name.strip(), value.strip()) if has_separator else Problem(f"'{line}' is not a property")


def _quorum_state(data: bytes, path: str) -> Iterator[PropertyLine]:
    """Yield the fields of `quorum-state`.  Kafka: FileQuorumStateStore.  Raises CorruptLog."""
    try:
        state = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptLog(path, 0, f"not JSON: {error}") from error
    if not isinstance(state, dict):
        raise CorruptLog(path, 0, "not a JSON object")
    for name, value in state.items():
        yield PropertyLine(name, value if isinstance(value, str) else json.dumps(value))


def _log(
    path: str,
    base_offset: int,
    first_offset: int,
    last_offset: int | None,
    size: int | None,
    progress: Progress | None,
) -> Iterator[Line]:
    file = open_file(path)
    try:
        end = file.size()
        start = _start(file, path, base_offset, first_offset, end)
        expected = base_offset
        for line in first_bytes(read_log(file, base_offset, start, end, progress), size):
            if isinstance(line, BatchLine):
                header = line.header
                if last_offset is not None and header.magic == 2 and header.base_offset > last_offset:
                    return
                if header.base_offset < expected:
                    reason = f"batch has base offset {header.base_offset}, expected {expected}"
                    yield Problem(reason, header.position, header.size)
                expected = header.next_offset
            yield line
    finally:
        file.close()


def _start(file: RealFile, path: str, base_offset: int, first_offset: int, end: int) -> int:
    """Return a position from which reading misses no batch with `first_offset` or more; 0 if the index is damaged."""
    if first_offset <= base_offset or parse_offset_file_name(os.path.basename(path)) is None:
        return 0
    index = os.path.join(os.path.dirname(path), offset_file_name(base_offset, INDEX_SUFFIX))
    position = 0
    try:
        for _, (relative, at) in used_entries(index, OFFSET_ENTRY):
            if base_offset + relative >= first_offset:
                break
            position = at
        return position if header_at(file, position, end).base_offset <= first_offset else 0
    except (OSError, CorruptLog, CorruptBatch):
        return 0


# Rebuilds the indexes of a segment from its batches, offline.
#
# The rules are those of a broker's recovery (kctl.storage.segments.segment): an offset index entry for the first batch
# after every `index.interval.bytes`, a time index entry with it when the largest timestamp has grown, and one more at
# the end. Batches with a wrong checksum get no entry and are ignored; the indexes continue after bytes that are not
# batches.


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

    kctl's broker holds a flock and a POSIX lock, Apache Kafka's the latter; a log directory without a lock file was
    never used by a broker.
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


def find_logs(paths: list[str]) -> list[str]:
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

"""Reads the files of a log offline, entry by entry, and reports what is wrong with them.

`walk` recognises a file by its name, as the broker does, or by its contents (kctl.storage.dump_files).  It only reads,
works while a broker runs, and uses memory that does not depend on the file size.  Errors in a file are returned as a
Problem at the place where they were found, and reading continues after them where possible.

Checked are, for a log, that offsets never decrease (compaction leaves gaps) and that checksums are right; for an index,
that entries ascend and point to batches of the log beside it (kctl.storage.dump_indexes).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from kctl.errors import CorruptLog
from kctl.input_files import read_regular
from kctl.records.header import CorruptBatch
from kctl.records.walk import check_records as walk_records
from kctl.storage.checkpoints import parse_epochs, parse_offsets, parse_snapshot
from kctl.storage.dump_batches import Progress, first_bytes, header_at, read_log
from kctl.storage.dump_files import KINDS, OFFSET_CHECKPOINTS, base_offset_of, recognized_kind
from kctl.storage.dump_indexes import OFFSET_ENTRY, offset_index, open_file, time_index, used_entries
from kctl.storage.dump_lines import BatchLine, CheckpointLine, EpochLine, Line, Problem, PropertyLine
from kctl.storage.files import RealFile
from kctl.storage.names import INDEX_SUFFIX, PARTITION_METADATA, offset_file_name, parse_offset_file_name
from kctl.storage.transaction_index import parse_transaction_index


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
    """True if the batch is valid and its records have the offset deltas 0, 1, 2 and so on, as producers write them."""
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
        name, found, value = line.partition(separator)
        if line.strip() and not line.startswith("#"):
            yield PropertyLine(name.strip(), value.strip()) if found else Problem(f"'{line}' is not a property")


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

"""Recognises the files of a log offline: by name as the broker does, and files with other names by their contents.

A copy of a segment may have any name (`728.log`, `copy.log`, `segment`).  What starts with a batch is a log, whose base
offset is that of its first batch; after compaction, the segment may have begun before.  The offsets of an index are
relative to the base offset of its segment, which follows from its entries and the log of the same name beside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from kctl.dump.batches import find_batch, header_at
from kctl.dump.indexes import OFFSET_ENTRY, TIME_ENTRY, LogBeside, log_beside, open_file, used_entries
from kctl.errors import CorruptLog
from kctl.records.header import BatchHeader, CorruptBatch
from kctl.records.salvage import is_possible
from kctl.storage.files import RealFile
from kctl.storage.names import (
    BOOTSTRAP_CHECKPOINT,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    METADATA_SNAPSHOT_SUFFIX,
    PARTITION_METADATA,
    QUORUM_STATE,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_stem,
    parse_log_directory_name,
    parse_metadata_snapshot_name,
    parse_offset_file_name,
)

KINDS = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
"""Kinds of files with an offset at the start of their name."""
OFFSET_CHECKPOINTS = frozenset(
    {RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, CLEANER_CHECKPOINT}
)
PROPERTIES = frozenset({PARTITION_METADATA, META_PROPERTIES})
NAMED = OFFSET_CHECKPOINTS | PROPERTIES | {LEADER_EPOCH_CHECKPOINT, QUORUM_STATE}
"""Kinds of files with one fixed name."""
_INDEX_ENTRIES_READ_MAX = 1000
"""To find the base offset of an index with another name."""
_OFFSET_MAX = (1 << 63) - 1
_DIGITS = re.compile(r"[0-9]{1,19}")


def kind_of(path: str) -> str | None:
    """Return which of KINDS, NAMED or METADATA_SNAPSHOT_SUFFIX the file is by its name; None for other files.

    A `.deleted` suffix is ignored.
    """
    name = os.path.basename(path)
    if name in NAMED:
        return name
    if name == BOOTSTRAP_CHECKPOINT or parse_metadata_snapshot_name(name) is not None:
        return METADATA_SNAPSHOT_SUFFIX
    parsed = parse_offset_file_name(name)
    return parsed[1] if parsed is not None and parsed[1] in KINDS else None


def recognized_kind(path: str) -> str | None:
    """As `kind_of`; for other names, the kind of the suffix, or a log if the file starts with a batch.

    Raises OSError if the file has to be read for that and cannot.
    """
    if (kind := kind_of(path)) is not None:
        return kind
    suffix = file_stem(os.path.basename(path))[1]
    if suffix in {*KINDS, METADATA_SNAPSHOT_SUFFIX}:
        return suffix
    file = open_file(path)
    try:
        return LOG_SUFFIX if _first_header(file, file.size()) is not None else None
    finally:
        file.close()


def base_offset_of(path: str) -> int:
    """Return the offset in the name of a file of one of KINDS; for other names, the one that its contents give.

    Without either, it is the number in the name, as for Kafka's tool, or 0.  Raises OSError.
    """
    name = os.path.basename(path)
    if (parsed := parse_offset_file_name(name)) is not None:
        return parsed[0]
    kind = recognized_kind(path)
    base_offset = None
    if kind == LOG_SUFFIX:
        base_offset = _base_of_log(path)
    elif kind in {INDEX_SUFFIX, TIME_INDEX_SUFFIX}:
        base_offset = _base_of_index(path, kind)
    if base_offset is None and _DIGITS.fullmatch(stem := file_stem(name)[0]):
        base_offset = int(stem)
    return min(base_offset or 0, _OFFSET_MAX)


def files_of(path: str) -> list[str]:
    """Return the files in a partition's directory or a log directory that can be dumped; `path` itself if it is a file.

    Raises OSError.
    """
    if not os.path.isdir(path):
        return [path]
    folders = [entry for entry in _entries(path) if entry.is_dir() and parse_log_directory_name(entry.name) is not None]
    return [entry.path for folder in (path, *(folder.path for folder in folders)) for entry in _known_files(folder)]


def _known_files(folder: str) -> list[os.DirEntry[str]]:
    return [entry for entry in _entries(folder) if not entry.is_dir() and kind_of(entry.name) is not None]


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _first_header(file: RealFile, end: int) -> BatchHeader | None:
    """Return the header with which the file starts, if all of its fields are possible."""
    with suppress(CorruptBatch):
        header = header_at(file, 0, end)
        if header.base_offset >= 0 and is_possible(header, header.base_offset):
            return header
    return None


def _base_of_log(path: str) -> int | None:
    """Return the base offset of the first batch; None if there is none."""
    file = open_file(path)
    try:
        end = file.size()
        header = _first_header(file, end)
        if header is None and (position := find_batch(file, None, 0, end)) is not None:
            header = header_at(file, position, end)
        return None if header is None else header.base_offset
    finally:
        file.close()


def _base_of_index(path: str, kind: str) -> int | None:
    """Return the base offset that the entries of an index have; None without a log of this name beside it.

    A leader adds the last offset of the batch at that position, a follower that of a later batch: of all entries, the
    largest difference counts.  An index does not begin after the first batch.
    """
    log = log_beside(path)
    if log is None:
        return None
    try:
        try:
            first = log.header_at(0).base_offset
        except CorruptBatch:
            first = None
        with suppress(CorruptLog):
            differences = _differences_of_times(path, log) if kind == TIME_INDEX_SUFFIX else _differences(path, log)
            smallest = max((difference for difference in differences if difference >= 0), default=first)
            return smallest if first is None or smallest is None else min(smallest, first)
        return first
    finally:
        log.close()


def _differences(path: str, log: LogBeside) -> Iterator[int]:
    """Yield the last offset of the batch at the position of each entry, less the relative offset."""
    for _, (relative, position) in islice(used_entries(path, OFFSET_ENTRY), _INDEX_ENTRIES_READ_MAX):
        with suppress(CorruptBatch):
            yield log.header_at(position).last_offset - relative


def _differences_of_times(path: str, log: LogBeside) -> Iterator[int]:
    """Yield the last offset of the batch with the largest timestamp of the first entry, less the relative offset."""
    for _, (timestamp, relative) in islice(used_entries(path, TIME_ENTRY), 1):
        for header in log.headers():
            if header.max_timestamp == timestamp:
                yield header.last_offset - relative
                return

"""The state of the logs of a log directory after a clean shutdown, so that the next start need not read their files.

The file CLEAN_LOGS has a line per log: its segments, offsets, epochs and topic id, and the sizes and modification times
of its directory, its files of batches, and the two files with epochs and topic id.  A log is opened from its line if
these are the same at the next start; any other log, and one that was changed by another program meanwhile, is opened
from its files.  The file counts only together with the mark of a clean shutdown, and both are removed before logs are
opened.

Only a log without leftovers, damage or missing indexes has a line, so that whatever the opening of a log repairs is
repaired as without this file.  Indexes are read when they are used first.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from kctl.storage.config import LogConfig
from kctl.storage.directories.log_directory import DelayedRemovals
from kctl.storage.files import Files
from kctl.storage.log.log import Log
from kctl.storage.log.stored_log import LogContents
from kctl.storage.names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from kctl.storage.segments.segment import Segment
from kctl.storage.segments.segments import SegmentList
from kctl.storage.state.checkpoints import MetadataFiles
from kctl.storage.state.leader_epochs import EpochEntry, LeaderEpochs
from kctl.storage.state.producer_snapshots import ProducerSnapshots, remember_earlier_batches
from kctl.storage.state.producer_state import ProducerState

_logger = logging.getLogger(__name__)

_VERSION = 1
_INDEXES = frozenset({INDEX_SUFFIX, TIME_INDEX_SUFFIX})
_METADATA = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)

Stamp = tuple[int, int]
"""Of a file or directory, see Files.stamp."""


class CleanSegment(NamedTuple):
    """A segment and the stamp of its file of batches, which begins with its size."""

    base_offset: int
    stamp: Stamp
    has_transaction_index: bool


class CleanLog(NamedTuple):
    """A log as a clean shutdown has left it."""

    name: str
    """Its directory in the log directory."""
    stamp: Stamp
    metadata: tuple[Stamp | None, ...]
    """The stamps of the files with epochs and topic id, None for a missing one."""
    topic_id: UUID | None
    log_start_offset: int
    log_end_offset: int
    has_producers: bool
    epochs: tuple[EpochEntry, ...]
    segments: tuple[CleanSegment, ...]
    snapshots: tuple[int, ...]
    """The offsets of the producer snapshots."""


def clean_log(log: Log, files: Files) -> CleanLog | None:
    """Return the state of a log that was closed; None if it must be opened from its files.  Raises OSError."""
    directory = log.directory
    kinds: dict[int, set[str]] = {}
    snapshots: list[int] = []
    metadata: set[str] = set()
    for entry in files.list(directory):
        parsed = parse_offset_file_name(entry.name)
        if entry.name in _METADATA:
            metadata.add(entry.name)
            continue
        if entry.is_directory or parsed is None or parsed[2]:
            return None
        if parsed[1] == SNAPSHOT_SUFFIX:
            snapshots.append(parsed[0])
        else:
            kinds.setdefault(parsed[0], set()).add(parsed[1])
    segments: list[CleanSegment] = []
    for segment in log.segments:
        found = kinds.pop(segment.base_offset, set())
        stamp = files.stamp(segment.path(LOG_SUFFIX))
        if (
            stamp[0] != segment.size
            or not found >= _INDEXES
            or found - _INDEXES - {TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX}
        ):
            return None
        segments.append(CleanSegment(segment.base_offset, stamp, TRANSACTION_INDEX_SUFFIX in found))
    end, has_producers = log.log_end_offset, bool(log.producer_state.producers)
    is_described = not has_producers or end in snapshots
    if kinds or not is_described or log.recovery_point != end or any(offset > end for offset in snapshots):
        return None
    return CleanLog(
        name=directory.rpartition("/")[2],
        stamp=files.stamp(directory),
        metadata=tuple(files.stamp(f"{directory}/{name}") if name in metadata else None for name in _METADATA),
        topic_id=log.topic_id,
        log_start_offset=log.log_start_offset,
        log_end_offset=end,
        has_producers=has_producers,
        epochs=tuple(entry for entry in log.leader_epochs.entries if entry.start_offset < end),
        segments=tuple(segments),
        snapshots=tuple(snapshots),
    )


def open_clean_log(
    clean: CleanLog,
    directory: str,
    config: LogConfig,
    *,
    files: Files,
    removals: DelayedRemovals,
    now_ms: int,
    log_start_offset: int,
) -> LogContents | None:
    """Return the contents of a log, None if it was changed; `log_start_offset` is that of the checkpoint.

    Snapshots that are not needed any more are removed later.  Raises OSError, CorruptLog.
    """
    if not _is_unchanged(clean, files, directory, log_start_offset):
        return None
    segments = [
        Segment(
            files,
            directory,
            base_offset,
            config,
            size=stamp[0],
            created_ms=now_ms,
            has_transaction_index=has_transaction_index,
        )
        for base_offset, stamp, has_transaction_index in clean.segments
    ]
    kept = {*(segment.base_offset for segment in segments), max(clean.snapshots, default=0)}
    snapshots = ProducerSnapshots(files, directory, [offset for offset in clean.snapshots if offset in kept])
    unused = [snapshots.path(offset) for offset in clean.snapshots if offset not in kept]
    if unused:
        removals.add(unused, due_ms=now_ms)
    producers = ProducerState(clean.log_end_offset)
    if clean.has_producers:
        snapshots.load_latest(producers, at_most=clean.log_end_offset, at_least=clean.log_end_offset)
        if not producers.producers:
            return None
        remember_earlier_batches(producers, segments)
    return LogContents(
        segments=SegmentList(segments),
        log_start_offset=clean.log_start_offset,
        log_end_offset=clean.log_end_offset,
        recovery_point=clean.log_end_offset,
        leader_epochs=LeaderEpochs(clean.epochs),
        producer_state=producers,
        snapshots=snapshots,
        metadata=MetadataFiles(files, directory),
        topic_id=clean.topic_id,
    )


def _is_unchanged(clean: CleanLog, files: Files, directory: str, log_start_offset: int) -> bool:
    return (
        max(log_start_offset, clean.segments[0].base_offset) == clean.log_start_offset
        and files.stamp(directory) == clean.stamp
        and all(
            files.stamp(f"{directory}/{offset_file_name(segment.base_offset, LOG_SUFFIX)}") == segment.stamp
            for segment in clean.segments
        )
        and all(
            stamp is None or files.stamp(f"{directory}/{name}") == stamp
            for name, stamp in zip(_METADATA, clean.metadata, strict=True)
        )
    )


def clean_logs_text(logs: Iterable[CleanLog]) -> bytes:
    """Return the content of the file: its version and the checksum of the lines, then a line per log."""
    lines = "\n".join(_line(log) for log in logs).encode()
    return b"%d %d\n%b" % (_VERSION, crc32c(lines), lines)


def _line(log: CleanLog) -> str:
    topic_id = None if log.topic_id is None else log.topic_id.hex
    return json.dumps([*log[:3], topic_id, *log[4:]], separators=(",", ":"))


def parse_clean_logs(data: bytes, path: str) -> dict[str, bytes]:
    """Return the lines by the names of the directories of their logs; none, with a warning, if the content is damaged.

    They are parsed one by one, when a log is opened: the objects of all of them would leave holes in the memory.
    """
    head, _, lines = data.partition(b"\n")
    if head != b"%d %d" % (_VERSION, crc32c(lines)):
        _logger.warning("ignoring damaged list of logs, opening the logs from their files path=%s", path)
        return {}
    return {line[2 : line.index(b'"', 2)].decode(): line for line in lines.splitlines()}


def clean_log_of(line: bytes) -> CleanLog:
    """Parse a line."""
    name, stamp, metadata, topic_id, start, end, has_producers, epochs, segments, snapshots = json.loads(line)
    return CleanLog(
        name,
        tuple(stamp),
        tuple(None if found is None else tuple(found) for found in metadata),
        None if topic_id is None else UUID(hex=topic_id),
        start,
        end,
        has_producers,
        tuple(EpochEntry(*entry) for entry in epochs),
        tuple(CleanSegment(base_offset, tuple(found), aborted) for base_offset, found, aborted in segments),
        tuple(snapshots),
    )

"""Completes or undoes work on segment files that a crash interrupted.

    .deleted   scheduled for removal: remove it
    .cleaned   unfinished output of the cleaner: remove it, and every .swap at or after it, because the output of a
               group may be several segments of which not all were renamed to .swap
    .swap      finished output: remove the segments that it replaces, then rename it to its final name

A segment that was split or cleaned is therefore either old or new.  Swapped files and their indexes were synced before,
so nothing has to be read again.

Indexes are renamed to their final names first and batches last, after all old files were renamed to `.deleted`: while
an `.index.swap` exists, every file with a final name is old.  Apache Kafka renames the batches first; it may leave
indexes named `.swap` beside batches with their final name.
"""

from __future__ import annotations

import logging

from kctl.errors import CorruptLog
from kctl.storage.config import LogConfig
from kctl.storage.files import Files
from kctl.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    DRAFT_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from kctl.storage.segment import Segment

_logger = logging.getLogger(__name__)

_OFFSET_AFTER_ALL = 1 << 63
"""An offset after all offsets."""


def resolve_leftovers(files: Files, directory: str, config: LogConfig) -> None:
    """Leave only files with final names in the directory; can be interrupted at any point.  Raises OSError."""
    cleaned: dict[str, int] = {}
    swaps: dict[str, int] = {}
    for entry in files.list(directory):
        parsed = parse_offset_file_name(entry.name)
        if entry.name.endswith((DELETED_SUFFIX, DRAFT_SUFFIX)):
            files.remove(f"{directory}/{entry.name}")
        elif entry.name.endswith(CLEANED_SUFFIX):
            cleaned[entry.name] = parsed[0] if parsed is not None else _OFFSET_AFTER_ALL
        elif entry.name.endswith(SWAP_SUFFIX) and parsed is not None:
            swaps[entry.name] = parsed[0]
    first_draft = min(cleaned.values(), default=_OFFSET_AFTER_ALL)
    for name, offset in swaps.items():
        if offset >= first_draft:
            files.remove(f"{directory}/{name}")
    for name in cleaned:  # The files that depend on them were handled above.
        files.remove(f"{directory}/{name}")
    swapped = sorted(offset for name, offset in swaps.items() if name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
    swapped = [offset for offset in swapped if offset < first_draft]
    if swapped:
        _finish_swap(files, directory, config, swapped)
    _finish_indexes(files, directory)


def _finish_swap(files: Files, directory: str, config: LogConfig, swapped: list[int]) -> None:
    segments = [
        Segment(
            files,
            directory,
            offset,
            config,
            size=files.size(f"{directory}/{offset_file_name(offset, LOG_SUFFIX)}{SWAP_SUFFIX}"),
            suffix=SWAP_SUFFIX,
        )
        for offset in swapped
    ]
    end = max(_end_of(segment) for segment in segments)
    start = segments[0].base_offset
    under_way = {segment.base_offset for segment in segments if not files.exists(segment.path(INDEX_SUFFIX))}
    for entry in files.list(directory):
        parsed = parse_offset_file_name(entry.name)
        if parsed is None or parsed[2] or parsed[1] not in SEGMENT_SUFFIXES or parsed[0] in under_way:
            continue
        if start <= parsed[0] < max(end, start + 1):
            files.remove(f"{directory}/{entry.name}")
    for segment in segments:
        segment.change_suffix("")
        segment.close()
    files.sync_directory(directory)
    _logger.info("completed interrupted segment swap segments=%d path=%s", len(segments), directory)


def _end_of(segment: Segment) -> int:
    """Return the offset after the last valid batch; recovery handles the bytes after it."""
    offset = segment.base_offset
    try:
        for header in segment.headers():
            offset = header.next_offset
    except CorruptLog as error:
        _logger.warning(
            "cleaned segment is corrupt, recovery handles the rest of it file=%s error=%s",
            segment.path(LOG_SUFFIX),
            error,
        )
    return offset


def _finish_indexes(files: Files, directory: str) -> None:
    """Rename `.swap` indexes of segments whose batches have their final name; remove other `.swap` files."""
    for entry in files.list(directory):
        parsed = parse_offset_file_name(entry.name)
        if not entry.name.endswith(SWAP_SUFFIX):
            continue
        path = f"{directory}/{entry.name}"
        if parsed is not None and files.exists(f"{directory}/{offset_file_name(parsed[0], LOG_SUFFIX)}"):
            files.rename(path, path.removesuffix(SWAP_SUFFIX))
        else:
            files.remove(path)

"""Files in a log's directory that tell of work that a crash interrupted.

    .deleted   was about to be removed: remove it
    .cleaned   a cleaner's draft: remove it, and every .swap at or behind it, because one group's output may be several
               segments of which not all had become .swap
    .swap      finished output: the segments it replaces go, then it takes its final name

A segment that is split or cleaned is therefore there either as it was or as it shall be.
"""

from __future__ import annotations

import logging

from kctl.errors import CorruptLog
from kctl.storage.config import LogConfig
from kctl.storage.files import Files
from kctl.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from kctl.storage.segment import Segment

_logger = logging.getLogger(__name__)


def settle_leftovers(files: Files, directory: str, config: LogConfig) -> int | None:
    """Bring the directory to where only files with final names are left.

    Returns the lowest base offset of segments that were swapped in: from there on the log should be recovered, because
    their indexes may be incomplete.  Raises OSError.
    """
    cleaned: list[int] = []
    swapped: dict[int, int] = {}
    for entry in files.list(directory):
        path = f"{directory}/{entry.name}"
        if entry.name.endswith((DELETED_SUFFIX, ".tmp")):
            files.remove(path)
        elif entry.name.endswith(CLEANED_SUFFIX):
            parsed = parse_offset_file_name(entry.name)
            if parsed is not None:
                cleaned.append(parsed[0])
            files.remove(path)
        elif entry.name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            parsed = parse_offset_file_name(entry.name)
            if parsed is not None:
                swapped[parsed[0]] = entry.size
    if cleaned:
        for offset in [offset for offset in swapped if offset >= min(cleaned)]:
            _remove_segment_files(files, directory, offset, SWAP_SUFFIX)
            del swapped[offset]
    if swapped:
        _finish_swap(files, directory, config, swapped)
    _remove_stray_swaps(files, directory)
    return min(swapped, default=None)


def _finish_swap(files: Files, directory: str, config: LogConfig, swapped: dict[int, int]) -> None:
    segments = [
        Segment(files, directory, offset, config, size=size, suffix=SWAP_SUFFIX)
        for offset, size in sorted(swapped.items())
    ]
    end = max(_end_of(segment) for segment in segments)
    start = segments[0].base_offset
    for entry in files.list(directory):
        parsed = parse_offset_file_name(entry.name)
        if parsed is None or parsed[2] or parsed[1] not in SEGMENT_SUFFIXES:
            continue
        if start <= parsed[0] < max(end, start + 1):
            files.remove(f"{directory}/{entry.name}")
    for segment in segments:
        segment.change_suffix("")
        segment.close()
    _logger.info("Finished a swap of %d cleaned segments in %s", len(segments), directory)


def _end_of(segment: Segment) -> int:
    """The offset after the last sound batch; what is behind it is recovery's business."""
    offset = segment.base_offset
    try:
        for header in segment.headers():
            offset = header.next_offset
    except CorruptLog as error:
        _logger.warning("A cleaned segment is damaged: %s", error)
    return offset


def _remove_stray_swaps(files: Files, directory: str) -> None:
    """Indexes of a swap whose batches have their final name already are removed and will be rebuilt."""
    for entry in files.list(directory):
        if entry.name.endswith(SWAP_SUFFIX):
            files.remove(f"{directory}/{entry.name}")


def _remove_segment_files(files: Files, directory: str, offset: int, state: str) -> None:
    for kind in SEGMENT_SUFFIXES:
        files.remove(f"{directory}/{offset_file_name(offset, kind)}{state}")

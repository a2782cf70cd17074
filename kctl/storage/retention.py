"""Which segments of a log have outlived their use.  Pure.

Segments go oldest first and the search stops at the first that stays, so a log never has holes.  A segment goes only
when all of it lies below the high watermark.  The active segment may go too, unless it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from kctl.storage.config import LogConfig
from kctl.storage.segment import Segment


def deletable_segments(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
    starts_only: bool = False,
) -> int:
    """How many of the oldest segments may go.

    By log start offset always; by size and age if the cleanup policy says delete, unless `starts_only` forbids that.
    Log.deleteOldSegments.
    """
    ends = [following.base_offset for _, following in pairwise(segments)] + [log_end_offset]
    last = len(segments) - 1

    def leading(goes: Callable[[int], bool]) -> int:
        count = 0
        while count <= last and ends[count] <= high_watermark and goes(count):
            if count == last and not segments[count].size:
                break
            count += 1
        return count

    count = leading(lambda index: index < last and ends[index] <= log_start_offset)
    if starts_only or not config.deletes_old_segments:
        return count
    if config.retention_ms >= 0:
        oldest_ms = now_ms - config.retention_ms
        count = max(count, leading(lambda index: segments[index].retention_timestamp < oldest_ms))
    if config.retention_bytes >= 0:
        count = max(count, leading(_excess(segments, config.retention_bytes)))
    return count


def _excess(segments: Sequence[Segment], retention_bytes: int) -> Callable[[int], bool]:
    """Whether the log without segments up to and with the index still has `retention_bytes`; asked in order."""
    excess = sum(segment.size for segment in segments) - retention_bytes

    def goes(index: int) -> bool:
        nonlocal excess
        excess -= segments[index].size
        return excess >= 0

    return goes

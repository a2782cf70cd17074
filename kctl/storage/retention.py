"""Which segments of a log retention deletes.  Does no IO.  Kafka's UnifiedLog.deleteOldSegments.

Segments are deleted oldest first up to the first one that is kept, so a log never has holes.  A segment is deleted only
when all of it is below the high watermark.  The active segment may be deleted too, unless it is empty.
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
    """Return how many of the oldest segments may be deleted.

    Always by log start offset; by size and age if `cleanup.policy` contains `delete` and `starts_only` is False.
    """
    ends = [following.base_offset for _, following in pairwise(segments)] + [log_end_offset]
    last = len(segments) - 1

    def leading(goes: Callable[[int], bool]) -> int:
        """Return how many of the first segments meet the condition."""
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
    """Return a condition on the index of a segment: the log without it still has `retention_bytes`; called in order."""
    excess = sum(segment.size for segment in segments) - retention_bytes

    def goes(index: int) -> bool:
        """True if the segment can be deleted."""
        nonlocal excess
        excess -= segments[index].size
        return excess >= 0

    return goes

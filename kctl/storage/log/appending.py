"""Checks an append, and selects the segments that retention deletes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from kctl.records.header import TimestampType
from kctl.records.validate import ValidBatches
from kctl.storage.config import LogConfig
from kctl.storage.segments.segment import Segment
from kctl.storage.state.producer_snapshots import marker_in
from kctl.storage.state.producer_state import ProducerState

# Checks a validated append against the producer state of the log. Does no IO and changes no state.
#
# kctl.records.validate has already checked the batches on their own. The rules for producers (epoch, sequence
# numbers) are in kctl.storage.state.producer_state. Kafka's UnifiedLog.analyzeAndValidateProducerState.


NO_APPEND_TIME = -1


class AppendResult(NamedTuple):
    """The result of an append.  For a duplicate, the offsets are those of the batch that was appended first.

    For an old duplicate (kctl.storage.state.producer_state) `base_offset` is -1, and `last_offset` an upper bound.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
    is_converted: bool = False
    """Whether messages of magic 0 or 1 were stored as a batch of magic 2."""


def check_producers(
    valid: ValidBatches, producers: ProducerState, *, with_sequence: bool, log_start_offset: int
) -> AppendResult | None:
    """Return the result of the first append if `valid` is a duplicate, None if it may be appended.

    Raises ApiError as ProducerState.check and check_marker do.
    """
    for header in valid.headers:
        if header.producer_id < 0:
            continue
        if header.is_control:
            marker = marker_in(valid.buffer, header)
            if marker is not None:
                producers.check_marker(header, marker)
            continue
        batch = producers.check(header, with_sequence=with_sequence)
        if batch is not None:
            time_ms = batch.timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else NO_APPEND_TIME
            return AppendResult(batch.first_offset, batch.last_offset, time_ms, log_start_offset, duplicate=True)
    return None


# Which segments of a log retention deletes. Does no IO. Kafka's UnifiedLog.deleteOldSegments.
#
# Segments are deleted oldest first up to the first one that is kept, so a log never has holes. A segment is deleted
# only when all of it is below the high watermark. The active segment may be deleted too, unless it is empty.


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
        """Return whether the segment can be deleted."""
        nonlocal excess
        excess -= segments[index].size
        return excess >= 0

    return goes

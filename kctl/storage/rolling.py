"""When to roll the active segment.  Pure.  Kafka's LogSegment.shouldRoll."""

from __future__ import annotations

from typing import Protocol

from kctl.records.header import NO_TIMESTAMP
from kctl.storage.config import LogConfig


class ActiveSegment(Protocol):
    """The properties of the active segment that the rule needs."""

    base_offset: int
    size: int
    created_ms: int
    roll_jitter_ms: int

    @property
    def has_full_index(self) -> bool:
        """True if no more index entries fit."""

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch in ms, or -1."""


def should_roll(
    segment: ActiveSegment, config: LogConfig, *, append_size: int, max_timestamp: int, last_offset: int, now_ms: int
) -> bool:
    """True if `append_size` more bytes, up to `last_offset` and `max_timestamp`, must go to a new segment."""
    if segment.size > config.segment_bytes - append_size:
        return segment.size > 0
    if segment.has_full_index or last_offset - segment.base_offset > (1 << 31) - 1:
        return True
    return segment.size > 0 and age_ms(segment, max_timestamp, now_ms) > config.roll_ms - segment.roll_jitter_ms


def age_ms(segment: ActiveSegment, max_timestamp: int, now_ms: int) -> int:
    """Return the age in ms by record time, so that a replica rolls where the leader did; by the clock without
    timestamps.
    """
    first_timestamp = segment.first_timestamp
    if first_timestamp > NO_TIMESTAMP and max_timestamp > NO_TIMESTAMP:
        return max_timestamp - first_timestamp
    return now_ms - segment.created_ms

"""Appends that stay within the room of a segment are those that start no new one."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from kctl.storage.config import RELATIVE_OFFSET_MAX, LogConfig, room_in, should_roll

FIRST_MS = 1_700_000_000_000


@dataclass
class ActiveSegment:
    base_offset: int
    size: int
    created_ms: int
    roll_jitter_ms: int
    has_full_index: bool
    first_timestamp: int


def near(value: int) -> st.SearchStrategy[int]:
    return st.integers(max(value - 2, 0), value + 2)


@given(st.data())
def test_room_allows_what_the_rule_of_rolling_allows(data: st.DataObject) -> None:
    config = LogConfig(segment_bytes=data.draw(st.integers(100, 1000)), segment_ms=data.draw(st.integers(1, 1000)))
    jitter_ms = data.draw(st.integers(0, config.roll_ms))
    segment = ActiveSegment(
        base_offset=data.draw(st.sampled_from([0, 7, 1 << 40])),
        size=data.draw(st.integers(1, config.segment_bytes)),
        created_ms=FIRST_MS,
        roll_jitter_ms=jitter_ms,
        has_full_index=data.draw(st.booleans()),
        first_timestamp=data.draw(st.sampled_from([-1, 0, FIRST_MS])),
    )
    append_size = data.draw(near(config.segment_bytes - segment.size) | st.integers(1, 100))
    last_offset = data.draw(near(segment.base_offset + RELATIVE_OFFSET_MAX) | near(segment.base_offset))
    max_timestamp = data.draw(near(max(segment.first_timestamp, 0) + config.roll_ms - jitter_ms))

    room = room_in(segment, config)
    is_within = (
        segment.size + append_size <= room.size
        and last_offset <= room.last_offset
        and max_timestamp <= room.max_timestamp
    )
    now_ms = data.draw(st.sampled_from([FIRST_MS, FIRST_MS + 10 * config.roll_ms]))
    rolls = should_roll(
        segment,
        config,
        append_size=append_size,
        max_timestamp=max_timestamp,
        last_offset=last_offset,
        now_ms=now_ms,
    )
    assert not (is_within and rolls)
    if segment.first_timestamp >= 0:
        assert is_within != rolls, "the room is as large as it can be"

"""The part of a log that is compacted, and when: lags, ratios, groups, and retention of tombstones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from kctl.storage.cleaning.compaction import (
    NO_HORIZON,
    Cleanable,
    SourceSegment,
    clean_point,
    cleanable,
    group_segments,
    removal_horizon_ms,
)
from kctl.storage.config import LogConfig
from tests.rows import for_rows

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.5)
NOW_MS = 1_000_000
EVERYTHING = 1 << 40


@dataclass
class Segment:
    """Ten offsets, a hundred bytes."""

    base_offset: int
    first_timestamp: int = 1
    largest_timestamp: int = 1
    size: int = 100


def log_of(*times: tuple[int, int]) -> list[Segment]:
    """Closed segments with these (first, largest) timestamps, and an active one."""
    closed = [Segment(10 * number, first, largest) for number, (first, largest) in enumerate(times)]
    return [*closed, Segment(10 * len(closed), NOW_MS, NOW_MS)]


def found(
    segments: list[Segment], config: LogConfig = CONFIG, *, clean_up_to: int = 0, stable: int = EVERYTHING
) -> Cleanable:
    return cleanable(segments, config, first_dirty_offset=clean_up_to, last_stable_offset=stable, now_ms=NOW_MS)


def test_the_active_segment_is_never_touched() -> None:
    assert found(log_of((1, 1), (1, 1))).end_offset == 20
    assert found(log_of()) == Cleanable(0, 0, 0, 0, overdue_ms=0)
    assert not found(log_of()).is_due(CONFIG)


def test_a_segment_that_reaches_beyond_the_last_stable_offset_holds_back_itself_and_what_follows() -> None:
    segments = log_of((1, 1), (1, 1), (1, 1))
    assert found(segments, stable=20).end_offset == 20
    assert found(segments, stable=19).end_offset == 10
    assert found(segments, stable=9).dirty_bytes == 0


def test_a_record_younger_than_the_min_compaction_lag_holds_back_its_segment_and_what_follows() -> None:
    config = replace(CONFIG, min_compaction_lag_ms=1000)
    old, young = NOW_MS - 1000, NOW_MS - 999
    assert found(log_of((old, old), (old, old)), config).end_offset == 20
    assert found(log_of((old, old), (old, young), (old, old)), config).end_offset == 10
    assert found(log_of((old, young), (old, young))).end_offset == 20, "without a lag age does not matter"


def test_a_dirty_record_older_than_the_max_compaction_lag_makes_a_log_due_at_any_ratio() -> None:
    config = replace(CONFIG, max_compaction_lag_ms=1000)
    recent, overdue = NOW_MS - 1000, NOW_MS - 1001
    for times, is_due in (((recent, recent), False), ((overdue, recent), True)):
        cleaned = found(log_of((1, 1), (1, 1), (1, 1), times), config, clean_up_to=30)
        assert cleaned.dirty_ratio == 0.25
        assert (cleaned.overdue_ms > 0) is cleaned.is_due(config) is is_due


def test_what_is_clean_or_has_no_timestamp_is_never_overdue() -> None:
    config = replace(CONFIG, max_compaction_lag_ms=1000)
    assert not found(log_of((1, 1), (NOW_MS, NOW_MS)), config, clean_up_to=10).overdue_ms
    assert not found(log_of((-1, -1), (0, 0)), config).overdue_ms


def test_segments_held_back_by_the_min_lag_are_not_due_by_the_max_lag() -> None:
    config = replace(CONFIG, min_compaction_lag_ms=500, max_compaction_lag_ms=1000)
    assert not found(log_of((1, NOW_MS)), config).is_due(config)


@pytest.mark.parametrize(("clean", "dirty", "is_due"), [(1, 1, False), (1, 2, True), (2, 1, False), (0, 1, True)])
def test_a_log_is_due_when_more_than_the_ratio_is_dirty(clean: int, dirty: int, is_due: bool) -> None:
    segments = log_of(*[(1, 1)] * (clean + dirty))
    assert found(segments, clean_up_to=10 * clean).is_due(CONFIG) is is_due


def test_with_a_ratio_of_zero_any_dirty_byte_is_enough_and_none_is_not() -> None:
    config = replace(CONFIG, min_cleanable_dirty_ratio=0.0)
    assert found(log_of((1, 1)), config).is_due(config)
    assert not found(log_of((1, 1)), config, clean_up_to=10).is_due(config)


def test_a_segment_that_is_partly_clean_counts_as_dirty() -> None:
    cleaned = found(log_of((1, 1), (1, 1)), clean_up_to=15)
    assert (cleaned.clean_bytes, cleaned.dirty_bytes) == (100, 100)


@for_rows("checkpointed, expected", [(None, 5), (4, 5), (5, 5), (9, 9), (20, 20), (21, 5)])
def test_a_checkpoint_that_cannot_belong_to_the_log_does_not_count(checkpointed: int | None, expected: int) -> None:
    assert clean_point(checkpointed, log_start_offset=5, log_end_offset=20) == expected


def source(number: int, *, size: int = 100, modified_ms: int = 0, index_size: int = 8, end: int = -1) -> SourceSegment:
    end_offset = 10 * number + 10 if end < 0 else end
    return SourceSegment(f"{number}", 10 * number, end_offset, size, index_size, index_size, modified_ms)


def test_tombstones_live_for_the_retention_after_the_clean_part_was_written() -> None:
    config = replace(CONFIG, delete_retention_ms=1000)
    sources = [source(0, modified_ms=5000), source(1, modified_ms=7000), source(2, modified_ms=9000)]
    assert removal_horizon_ms(sources, 20, config) == 6000
    assert removal_horizon_ms(sources, 15, config) == 6000
    assert removal_horizon_ms(sources, 0, config) == NO_HORIZON, (
        "nothing is clean: no tombstone was the last long enough"
    )


def test_neighbours_become_one_segment_within_the_bounds_of_all_its_files() -> None:
    def sizes(groups: list[list[SourceSegment]]) -> list[int]:
        return [len(group) for group in groups]

    config = replace(CONFIG, segment_bytes=250, segment_index_bytes=1 << 20)
    assert sizes(group_segments([source(number) for number in range(5)], config)) == [2, 2, 1]
    assert sizes(group_segments([source(0, size=999), source(1)], config)) == [1, 1]
    small_index = replace(CONFIG, segment_bytes=1 << 30, segment_index_bytes=16)
    assert sizes(group_segments([source(number) for number in range(5)], small_index)) == [2, 2, 1]
    far = [source(0), source(1, end=(1 << 31)), source(2, end=(1 << 31) + 1)]
    assert sizes(group_segments(far, replace(CONFIG, segment_bytes=1 << 30, segment_index_bytes=1 << 20))) == [2, 1]

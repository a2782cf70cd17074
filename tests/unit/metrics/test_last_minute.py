"""Rates over the last minute, from samples of counters."""

from __future__ import annotations

from kctl.server.coordination.groups.actions import GroupCounts
from kctl.server.metrics.sources import LastMinute, Sample


def sample(time_s: float, *, commits: int | None) -> Sample:
    return Sample(time_s, 0.0, {}, {}, None if commits is None else GroupCounts(offset_commits=commits))


def commits_per_second(minute: LastMinute, now: Sample) -> float:
    return minute.groups_per_second(now, lambda counts: counts.offset_commits)


def test_events_of_the_coordinator_are_divided_by_the_time_since_the_oldest_sample() -> None:
    minute = LastMinute(sample(0, commits=100))
    minute.add(sample(5, commits=150))
    assert commits_per_second(minute, sample(10, commits=300)) == 20


def test_the_coordinator_has_no_rate_before_it_exists_and_counts_from_zero() -> None:
    minute = LastMinute(sample(0, commits=None))
    assert commits_per_second(minute, sample(10, commits=None)) == 0
    assert commits_per_second(minute, sample(10, commits=50)) == 5

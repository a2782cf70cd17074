"""Speed and estimated completion of a reassignment."""

from __future__ import annotations

import pytest

from kctl.admin.placement.execution import VERDICT_AFTER_MS, WINDOW_MS, Estimate, MoveProgress, move_duration_ms


def test_first_sample_gives_no_estimate() -> None:
    assert MoveProgress().observe(0, moved_bytes=10, total_bytes=100) == Estimate(10, 100)


def test_steady_move_ends_at_the_estimated_time() -> None:
    progress = MoveProgress()
    for second in range(50):
        estimate = progress.observe(second * 1000, moved_bytes=second * 1_000, total_bytes=100_000)
    assert estimate.bytes_per_s == pytest.approx(1_000)
    assert estimate.remaining_ms == pytest.approx(51_000)


def test_speed_is_measured_over_the_last_half_minute() -> None:
    progress = MoveProgress()
    progress.observe(0, moved_bytes=0, total_bytes=1_000_000)
    for second in range(100, 100 + WINDOW_MS // 1000 + 1):
        estimate = progress.observe(second * 1000, moved_bytes=500_000 + second * 100, total_bytes=1_000_000)
    assert estimate.bytes_per_s == pytest.approx(100)


def test_stalled_move_has_no_estimate() -> None:
    progress = MoveProgress()
    progress.observe(0, moved_bytes=0, total_bytes=100)
    estimate = progress.observe(1000, moved_bytes=50, total_bytes=150)
    assert (estimate.bytes_per_s, estimate.remaining_ms) == (50, None)


def observed(*, copied_per_s: int, grown_per_s: int, seconds: int) -> Estimate:
    """The last estimate of a move of 1,000,000 bytes that is observed every second."""
    progress = MoveProgress()
    for second in range(seconds + 1):
        estimate = progress.observe(
            second * 1000, moved_bytes=second * copied_per_s, total_bytes=1_000_000 + second * grown_per_s
        )
    return estimate


def test_move_that_is_slower_than_its_producers_never_ends() -> None:
    long = VERDICT_AFTER_MS // 1000
    slow = observed(copied_per_s=1_000, grown_per_s=1_000, seconds=long)
    assert (slow.never_ends, slow.growth_bytes_per_s, slow.remaining_ms) == (True, 1_000, None)
    assert not observed(copied_per_s=1_000, grown_per_s=1_000, seconds=long - 1).never_ends
    assert not observed(copied_per_s=1_001, grown_per_s=1_000, seconds=long).never_ends
    assert not observed(copied_per_s=0, grown_per_s=0, seconds=long).never_ends


def test_replica_that_has_almost_caught_up_is_not_endless() -> None:
    progress = MoveProgress()
    for second in range(20):
        estimate = progress.observe(second * 1000, moved_bytes=second * 1_000, total_bytes=500 + second * 1_000)
    assert not estimate.never_ends


def test_move_without_remaining_bytes_has_ended() -> None:
    progress = MoveProgress()
    progress.observe(0, moved_bytes=100, total_bytes=100)
    assert progress.observe(1000, moved_bytes=100, total_bytes=100).remaining_ms == 0


def test_throttle_gives_the_minimum_duration() -> None:
    assert move_duration_ms(50_000_000, 1_000_000) == 50_000

"""How fast a move goes and when it will be done."""

from __future__ import annotations

import pytest

from kctl.admin.move_progress import WINDOW_MS, Estimate, MoveProgress, move_duration_ms


def test_first_look_says_nothing_about_the_end() -> None:
    assert MoveProgress().observe(0, moved_bytes=10, total_bytes=100) == Estimate(10, 100)


def test_steady_move_ends_when_it_was_said() -> None:
    progress = MoveProgress()
    for second in range(50):
        estimate = progress.observe(second * 1000, moved_bytes=second * 1_000, total_bytes=100_000)
    assert estimate.bytes_per_s == pytest.approx(1_000)
    assert estimate.remaining_ms == pytest.approx(51_000)


def test_speed_is_that_of_the_last_half_minute() -> None:
    progress = MoveProgress()
    progress.observe(0, moved_bytes=0, total_bytes=1_000_000)
    for second in range(100, 100 + WINDOW_MS // 1000 + 1):
        estimate = progress.observe(second * 1000, moved_bytes=500_000 + second * 100, total_bytes=1_000_000)
    assert estimate.bytes_per_s == pytest.approx(100)


def test_move_that_does_not_get_closer_has_no_end_in_sight() -> None:
    progress = MoveProgress()
    progress.observe(0, moved_bytes=0, total_bytes=100)
    estimate = progress.observe(1000, moved_bytes=50, total_bytes=150)
    assert (estimate.bytes_per_s, estimate.remaining_ms) == (50, None)


def test_nothing_left_is_the_end() -> None:
    progress = MoveProgress()
    progress.observe(0, moved_bytes=100, total_bytes=100)
    assert progress.observe(1000, moved_bytes=100, total_bytes=100).remaining_ms == 0


def test_throttle_says_how_long_it_takes_at_least() -> None:
    assert move_duration_ms(50_000_000, 1_000_000) == 50_000

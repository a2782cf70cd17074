"""Estimates speed and remaining time of a reassignment.  Pure; the time is an argument."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

WINDOW_MS = 30_000
"""Window of the speed: long enough to smooth it, short enough to follow a changed throttle."""


VERDICT_AFTER_MS = 10_000
"""Least time of observation before a move is reported as endless: brokers need some seconds to start."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Copied and total bytes; speeds and remaining time are None while unknown."""

    moved_bytes: int
    total_bytes: int
    bytes_per_s: float | None = None
    remaining_ms: int | None = None
    growth_bytes_per_s: float | None = None
    """Speed at which the total grows: what producers append, once per new replica."""
    never_ends: bool = False
    """Whether the partitions have grown at least as fast as they were copied for VERDICT_AFTER_MS."""


class MoveProgress:
    """Estimates the end of a move from the observations of the last WINDOW_MS."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int, int]] = deque()

    def observe(self, now_ms: int, *, moved_bytes: int, total_bytes: int) -> Estimate:
        """Adds an observation.  The total may grow, because the leader continues to append.

        The estimate is based on the decrease of the remaining bytes; without a decrease there is none.
        """
        remaining = total_bytes - moved_bytes
        self._seen.append((now_ms, moved_bytes, remaining))
        while len(self._seen) > 2 and now_ms - self._seen[1][0] >= WINDOW_MS:
            self._seen.popleft()
        then_ms, moved_then, remaining_then = self._seen[0]
        passed_ms = now_ms - then_ms
        if passed_ms <= 0:
            return Estimate(moved_bytes, total_bytes)
        speed = (moved_bytes - moved_then) * 1000 / passed_ms
        closer = (remaining_then - remaining) * 1000 / passed_ms
        remaining_ms = 0 if remaining <= 0 else round(remaining * 1000 / closer) if closer > 0 else None
        growth = speed - closer
        never_ends = passed_ms >= VERDICT_AFTER_MS and closer <= 0 and 0 < growth < remaining
        return Estimate(moved_bytes, total_bytes, speed, remaining_ms, growth, never_ends)


def move_duration_ms(bytes_to_move: int, throttle_bytes_per_s: int) -> int:
    """Minimum duration if one broker sends or receives everything at the throttled rate."""
    return round(bytes_to_move * 1000 / throttle_bytes_per_s)

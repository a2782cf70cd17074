"""How fast a move goes and when it will be done.  Pure: callers pass the time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

WINDOW_MS = 30_000
"""How far back the speed is looked at: long enough to smooth, short enough to follow a changed throttle."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes behind us and in all; the rest is None while nothing can be said."""

    moved_bytes: int
    total_bytes: int
    bytes_per_s: float | None = None
    remaining_ms: int | None = None


class MoveProgress:
    """Takes looks at a move and estimates its end from those of the last WINDOW_MS."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int, int]] = deque()

    def observe(self, now_ms: int, *, moved_bytes: int, total_bytes: int) -> Estimate:
        """One more look; the total may grow, because the leader goes on taking records.

        What counts is how fast the rest gets smaller.  While it does not, there is no end in sight.
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
        return Estimate(moved_bytes, total_bytes, speed, remaining_ms)


def move_duration_ms(bytes_to_move: int, throttle_bytes_per_s: int) -> int:
    """How long copying takes at least when one broker passes on everything at the throttle."""
    return round(bytes_to_move * 1000 / throttle_bytes_per_s)

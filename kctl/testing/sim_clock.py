"""Clocks for tests: one on the virtual time of a loop, with skew, and one advanced manually."""

from __future__ import annotations

from collections.abc import Callable

START_MS = 1_600_000_000_000
"""Wall-clock time at the start of simulated runs: 2020-09-13."""


class SimClock:
    """kctl.system.environment.Clock over the time of a loop.

    The wall clock can jump and drift; the monotonic clock cannot go back.
    """

    def __init__(self, time_s: Callable[[], float], *, start_ms: int = START_MS) -> None:
        """Start the clock; `time_s` is `loop.time`."""
        self._time_s = time_s
        self._drift_ppm = 0
        self._drift_since_s = time_s()
        self._base_ms = float(start_ms)

    def now_ms(self) -> int:
        """Return the loop's time as ms since the epoch."""
        return int(self._base_ms + self._elapsed_ms())

    def monotonic_ms(self) -> int:
        """Return the loop's time in ms."""
        return int(self._time_s() * 1000)

    def elapsed_ms(self) -> int:
        """Return the loop's time in ms."""
        return self.monotonic_ms()

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward or back."""
        self._base_ms += milliseconds

    def drift(self, parts_per_million: int) -> None:
        """Make the wall clock run faster or slower from now on."""
        self._base_ms += self._elapsed_ms()
        self._drift_since_s = self._time_s()
        self._drift_ppm = parts_per_million

    def _elapsed_ms(self) -> float:
        return (self._time_s() - self._drift_since_s) * 1000 * (1 + self._drift_ppm / 1_000_000)


class ManualClock:
    """kctl.system.environment.Clock for tests without a loop; time changes only by `advance`."""

    def __init__(self, *, start_ms: int = START_MS) -> None:
        self._now_ms = start_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        """Return the time that was set, in ms since the epoch."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Return the time since the clock was made, in ms."""
        return self._monotonic_ms

    def elapsed_ms(self) -> int:
        """Return the time since the clock was made, in ms."""
        return self._monotonic_ms

    def advance(self, milliseconds: int) -> None:
        """Move the time forward."""
        assert milliseconds >= 0, "use jump for a wall clock that is set back"
        self._now_ms += milliseconds
        self._monotonic_ms += milliseconds

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward or back."""
        self._now_ms += milliseconds

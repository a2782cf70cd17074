"""The system clock."""

from __future__ import annotations

import time

_WITH_SUSPENSION = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A monotonic clock that goes on while the machine is suspended, as CLOCK_MONOTONIC does on macOS."""


class SystemClock:
    """environment.Clock of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def elapsed_ms(self) -> int:
        """Milliseconds of the clock that goes on while the machine is suspended."""
        return time.clock_gettime_ns(_WITH_SUSPENSION) // 1_000_000

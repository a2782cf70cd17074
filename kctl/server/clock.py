"""The real clock."""

from __future__ import annotations

import time


class SystemClock:
    """environment.Clock of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

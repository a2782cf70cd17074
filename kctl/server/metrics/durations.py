"""How often something was done, and how long it took the latest times.  Pure."""

from __future__ import annotations

from collections import deque

from kctl.server.metrics.quantiles import SAMPLES_MAX


class Durations:
    """The values of a histogram metric."""

    __slots__ = ("count", "latest_ms")

    def __init__(self) -> None:
        self.count = 0
        self.latest_ms: deque[float] = deque(maxlen=SAMPLES_MAX)

    def record(self, took_ms: float) -> None:
        """Adds one operation and its duration."""
        self.count += 1
        self.latest_ms.append(took_ms)

"""The world as ports: time and chance come in as arguments or through these, so that tests can replay both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one people read, one that never goes back."""

    def now_ms(self) -> int:
        """Wall-clock time since the epoch, for timestamps that leave the process."""
        ...

    def monotonic_ms(self) -> int:
        """Time from an arbitrary start, for deadlines."""
        ...


class TimerTask(Protocol):
    """Something that will run once unless cancelled; cancelling twice or late does nothing."""

    def cancel(self) -> None: ...


class Timer(Protocol):
    """Runs callbacks on the event loop after a delay."""

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> TimerTask: ...


class Random(Protocol):
    """The part of random.Random that the broker uses."""

    def randrange(self, start: int, stop: int) -> int: ...

    def getrandbits(self, k: int) -> int: ...

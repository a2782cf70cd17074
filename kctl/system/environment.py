"""Ports for time and random numbers, so that simulations can control both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Wall clock and monotonic clock, both in milliseconds."""

    def now_ms(self) -> int:
        """Wall-clock time since the epoch, for timestamps that leave the process."""
        ...

    def monotonic_ms(self) -> int:
        """Return the time from an arbitrary start, for deadlines."""
        ...


class MachineClock(Clock, Protocol):
    """The clocks of a machine that other machines communicate with."""

    def elapsed_ms(self) -> int:
        """As `monotonic_ms`, and goes on while the machine is suspended, for deadlines that other machines measure."""
        ...


class TimerTask(Protocol):
    """A scheduled callback; cancelling it twice or after it ran has no effect."""

    def cancel(self) -> None:
        """Prevent the callback from running."""
        ...


class Timer(Protocol):
    """Runs callbacks on the event loop after a delay."""

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> TimerTask:
        """Call `callback` once, `delay_ms` from now."""
        ...


class Random(Protocol):
    """The part of random.Random that the broker uses."""

    def randrange(self, start: int, stop: int) -> int:
        """Return a random integer from `start` to `stop - 1`."""
        ...

    def getrandbits(self, k: int) -> int:
        """Return a random integer of `k` bits."""
        ...

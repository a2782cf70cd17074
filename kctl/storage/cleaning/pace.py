"""The rate of cleanings: bytes are converted into waiting time.  Pure."""

from __future__ import annotations

from typing import Protocol

_CREDIT_MS_MAX = 1_000
"""The most unused time that may be caught up by going faster than the limit."""
WAIT_MS_MIN = 10
"""Shorter waits are added to the next ones."""


class Pace(Protocol):
    """Limits the rate of a cleaning."""

    def spend(self, byte_count: int) -> None:
        """Account for `byte_count` bytes read or written; called by the worker.  Raises CleaningAborted to stop the
        cleaning.
        """
        ...


class FullSpeed:
    """A pace without a limit."""

    def spend(self, byte_count: int) -> None:
        """Return at once."""


class Account:
    """Converts bytes into waiting time."""

    def __init__(self) -> None:
        self._paid_until_ms = 0.0

    def spend(self, byte_count: int, *, now_ms: int, bytes_per_second: float) -> float:
        """Return the milliseconds to wait for these bytes; zero or negative while there is unused time."""
        self._paid_until_ms = max(self._paid_until_ms, now_ms - _CREDIT_MS_MAX)
        self._paid_until_ms += byte_count * 1000 / bytes_per_second
        return self._paid_until_ms - now_ms

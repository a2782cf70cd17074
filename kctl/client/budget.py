"""The deadline of a command and the brokers that it could not connect to, shared by all its operations.

Long-lived clients (producers, consumers, brokers) have no command in progress: each of their operations has a timeout
of its own, and unreachable brokers are tried again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

Address = tuple[str, int]

ABSENCE_WAIT_MS = 500
"""How long a command retries, in total, for partitions without a leader and unreachable brokers."""


class Budget:
    """The remaining time of a command.  Owner: the command; its clients and their connections share it."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self.unreachable: dict[Address, str] = {}
        """Brokers that could not be connected to during this command, with the reason; they are not tried again."""
        self.follows_elections = False
        """Whether the command waits until an unreachable leader has been replaced, up to its deadline."""
        self._monotonic_ms = monotonic_ms
        self._end_ms: int | None = None
        self._absence_end_ms: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether a command is in progress."""
        return self._end_ms is not None

    def begin(self, timeout_ms: int, *, follows_elections: bool = False) -> None:
        """Starts a command that must end within `timeout_ms`."""
        self.end()
        self.follows_elections = follows_elections
        self._end_ms = self._monotonic_ms() + timeout_ms

    def end(self) -> None:
        """Ends the command and clears its state."""
        self._end_ms = self._absence_end_ms = None
        self.unreachable.clear()
        self.follows_elections = False

    @contextlib.contextmanager
    def command(self, timeout_ms: int, *, follows_elections: bool = False) -> Iterator[None]:
        """One deadline for everything in the block; in a nested command the outer deadline applies."""
        if self.is_active:
            yield
            return
        self.begin(timeout_ms, follows_elections=follows_elections)
        try:
            yield
        finally:
            self.end()

    def limited(self, timeout_ms: int) -> int:
        """`timeout_ms`, or the time until the deadline if that is less; 0 after the deadline."""
        if self._end_ms is None:
            return timeout_ms
        return max(0, min(timeout_ms, self._end_ms - self._monotonic_ms()))

    def limited_for_absent(self, timeout_ms: int) -> int:
        """As `limited`, for partitions without a leader; at most ABSENCE_WAIT_MS after the first call."""
        if self._end_ms is None:
            return timeout_ms
        now_ms = self._monotonic_ms()
        if self._absence_end_ms is None:
            self._absence_end_ms = now_ms + ABSENCE_WAIT_MS
        return max(0, min(self.limited(timeout_ms), self._absence_end_ms - now_ms))

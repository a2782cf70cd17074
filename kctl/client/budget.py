"""What all operations of one command share: a deadline, and the brokers that it could not connect to.

Clients that live long (producers, consumers, brokers) have no command in progress: each of their operations has a
time-out of its own, and a broker that was away is tried again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

Address = tuple[str, int]

ABSENCE_WAIT_MS = 500
"""How long a command asks again, in all, for partitions without a leader and brokers that do not answer."""


class Budget:
    """The time that is left for one command.  Owner: the command; its clients and their connections share it."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self.unreachable: dict[Address, str] = {}
        """Brokers that refused or ignored a connection during this command, and the reason: not tried again."""
        self._monotonic_ms = monotonic_ms
        self._end_ms: int | None = None
        self._absence_end_ms: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether a command is in progress."""
        return self._end_ms is not None

    def begin(self, timeout_ms: int) -> None:
        """A command begins, and must end within `timeout_ms`."""
        self.end()
        self._end_ms = self._monotonic_ms() + timeout_ms

    def end(self) -> None:
        """The command is done: forget what it has learnt."""
        self._end_ms = self._absence_end_ms = None
        self.unreachable.clear()

    @contextlib.contextmanager
    def command(self, timeout_ms: int) -> Iterator[None]:
        """Share one deadline among everything in the block; inside of another command that one's deadline counts."""
        if self.is_active:
            yield
            return
        self.begin(timeout_ms)
        try:
            yield
        finally:
            self.end()

    def limited(self, timeout_ms: int) -> int:
        """`timeout_ms`, or what is left until the deadline if that is less; 0 when it has passed."""
        if self._end_ms is None:
            return timeout_ms
        return max(0, min(timeout_ms, self._end_ms - self._monotonic_ms()))

    def limited_for_absent(self, timeout_ms: int) -> int:
        """The same for what nobody serves at the moment; ABSENCE_WAIT_MS counts from the first call on."""
        if self._end_ms is None:
            return timeout_ms
        now_ms = self._monotonic_ms()
        if self._absence_end_ms is None:
            self._absence_end_ms = now_ms + ABSENCE_WAIT_MS
        return max(0, min(self.limited(timeout_ms), self._absence_end_ms - now_ms))

"""Callbacks after a delay, all on one timing wheel and one loop handle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kctl.limits import Subject, bound
from kctl.server.loop.timing_wheel import Entry, TimingWheel
from kctl.system.environment import Clock

TIMERS_PER_ITERATION_MAX = bound(
    Subject.CONNECTIONS,
    "timeouts of requests, members and transactions that are handled in one iteration of the event loop",
    50,
    "timeouts",
    on_excess="the others are handled in the next iterations",
)
"""One of a group's member takes 0.1 ms."""


class WheelTimer:
    """environment.Timer on the running loop.

    One loop handle wakes at the wheel's next due time, so thousands of waiting fetches use one handle.  Callbacks that
    are due together run in several iterations of the loop: clients choose timeouts, such as those of 10,000 sessions.
    Owner: event loop.
    """

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._wheel: TimingWheel[Callable[[], None]] = TimingWheel(clock.monotonic_ms())
        self._handle: asyncio.TimerHandle | None = None
        self._armed_ms: int | None = None

    def __len__(self) -> int:
        return len(self._wheel)

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> Entry[Callable[[], None]]:
        """Run `callback` on the loop after `delay_ms` or a little later, never earlier."""
        due_ms = self._clock.monotonic_ms() + max(delay_ms, 0)
        entry = self._wheel.add(callback, due_ms)
        if self._armed_ms is None or due_ms < self._armed_ms:
            self._arm()
        return entry

    def close(self) -> None:
        """Cancel all callbacks."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        due_ms = self._wheel.next_due_ms()
        if due_ms is None or (self._armed_ms is not None and self._armed_ms <= due_ms):
            return
        if self._handle is not None:
            self._handle.cancel()
        delay_ms = max(due_ms - self._clock.monotonic_ms(), 0)
        self._armed_ms = due_ms
        self._handle = self._loop.call_later(delay_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self._armed_ms = None
        for callback in self._wheel.advance(self._clock.monotonic_ms(), TIMERS_PER_ITERATION_MAX):
            try:
                callback()
            except Exception as error:
                # The other callbacks that are due now are no longer on the wheel, so they must run.
                message = f"a callback of the timer failed: {callback!r}"
                self._loop.call_exception_handler({"message": message, "exception": error})
        self._arm()

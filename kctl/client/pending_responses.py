"""Requests of one connection that wait for their responses, each with a time limit.

`asyncio.timeout` makes and cancels a timer for each request.  Here one timer stays until the earliest deadline,
whether or not that request still waits, and then fails the requests that are late.  A response that is in time, as
almost all are, costs no timer.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from kctl.reference_cycles import copy_of


class _Pending(NamedTuple):
    arrival: asyncio.Future[memoryview]
    deadline_s: float
    """On the loop's clock."""


class PendingResponses:
    """Responses by correlation id; call `close` at the end."""

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, correlation_id: int, timeout_ms: int) -> asyncio.Future[memoryview]:
        """The frame of a response, or TimeoutError; the caller calls `forget` when it has it."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        arrival: asyncio.Future[memoryview] = loop.create_future()
        self._pending[correlation_id] = _Pending(arrival, deadline_s)
        if self._timer is None or deadline_s < self._timer.when():
            self._arm(loop, deadline_s)
        return arrival

    def forget(self, correlation_id: int) -> None:
        """The request does not wait any more."""
        self._pending.pop(correlation_id, None)

    def arrived(self, correlation_id: int, frame: memoryview) -> None:
        """Passes the frame to its request; one for which no request waits is ignored."""
        pending = self._pending.get(correlation_id)
        if pending is not None and not pending.arrival.done():
            pending.arrival.set_result(frame)

    def close(self, error: Exception) -> None:
        """Fails all requests that wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for pending in self._pending.values():
            if not pending.arrival.done():
                pending.arrival.set_exception(copy_of(error))

    def _arm(self, loop: asyncio.AbstractEventLoop, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(deadline_s, self._expire, loop, deadline_s)

    def _expire(self, loop: asyncio.AbstractEventLoop, deadline_s: float) -> None:
        self._timer = None
        now_s = max(loop.time(), deadline_s)  # A loop calls up to the resolution of its clock too early.
        waiting = [pending for pending in self._pending.values() if not pending.arrival.done()]
        for pending in waiting:
            if pending.deadline_s <= now_s:
                pending.arrival.set_exception(TimeoutError())
        later = [pending.deadline_s for pending in waiting if pending.deadline_s > now_s]
        if later:
            self._arm(loop, min(later))

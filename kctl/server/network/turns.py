"""Shares the event loop among connections.

Every connection with work to do takes turns of bounded length.  A turn runs at once while the current iteration of the
loop has time left.  Otherwise it is queued, first come first served, and a slice of the queue runs in each following
iteration, so that timers, new connections and other sockets are served in between.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from kctl.limits import LOOP_SLICE_MS_MAX
from kctl.server.loop_lag import iteration_started_s

_SLICE_S = LOOP_SLICE_MS_MAX / 1000


class TakesTurns(Protocol):
    """A connection, for the queue."""

    is_urgent: bool
    """Whether its turns are not queued behind those of others: the control plane."""

    def take_turn(self) -> None:
        """Does a bounded piece of work; nothing if the connection has been closed.  Does not raise."""
        ...


class Turns:
    """The queue of one broker's connections.  Each connection queues itself at most once at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[TakesTurns] = deque()

    def __len__(self) -> int:
        """The number of queued connections."""
        return len(self._queue)

    def take_or_queue(self, connection: TakesTurns) -> bool:
        """Runs a turn of the connection now, or queues one; returns whether it was run."""
        if not connection.is_urgent and (
            self._queue or self._loop.time() - iteration_started_s(self._loop) >= _SLICE_S
        ):
            self.queue(connection)
            return False
        connection.take_turn()
        return True

    def queue(self, connection: TakesTurns) -> None:
        """Appends a turn of the connection to the queue."""
        if not self._queue:
            self._loop.call_soon(self._run_slice)
        self._queue.append(connection)

    def _run_slice(self) -> None:
        end_s = self._loop.time() + _SLICE_S
        for _ in range(len(self._queue)):
            # A turn may queue its connection again, which must not schedule a second slice: pop afterwards.
            self._queue[0].take_turn()
            self._queue.popleft()
            if self._loop.time() >= end_s:
                break
        if self._queue:
            self._loop.call_soon(self._run_slice)

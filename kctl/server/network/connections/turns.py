"""Shares the event loop among connections.

Every connection with work to do takes turns of bounded length.  A turn runs at once while the current iteration of the
loop has time left.  Otherwise it is queued, and a slice of the queues runs in each following iteration, so that timers,
new connections and other sockets are served in between.

Connections that had more to do after their last turn, or that have used more than their share of the loop recently, are
busy.  They have a queue of their own and shorter slices: a client that sends one request now and then does not wait for
clients that send thousands.  Within a queue the order is first come, first served, and each slice has a turn from each
queue, so that no connection waits without a limit.  Connections of the control plane have a queue that comes first.

The more connections wait, the shorter their turns are: a new client, which has its place behind all others, does not
wait for the full turns of a thousand.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from kctl.limits import TURN_MS_MAX, Subject, bound
from kctl.server.loop.lag import iteration_of

ROUND_MS_MAX = bound(
    Subject.CONNECTIONS,
    "time for one turn of each connection that waits for one",
    50,
    "ms",
    on_excess="turns are shorter, down to one request each",
)
LOOP_SLICE_MS_MAX = bound(
    Subject.CONNECTIONS,
    "time for connections in one iteration of the event loop",
    10,
    "ms",
    on_excess="timers and other sockets are served first",
)
RECEIVED_PER_ITERATION_MAX = bound(
    Subject.CONNECTIONS,
    "bytes that connections receive in one iteration of the event loop, before they take turns",
    4 << 20,
    "bytes",
    on_excess="they receive in turns, within the time for connections",
)
URGENT_RECEIVED_PER_ITERATION_MAX = bound(
    Subject.CONNECTIONS,
    "bytes that connections receive in one iteration before those of the control plane take turns",
    5 << 20,
    "bytes",
    on_excess="they receive in turns, as the others",
)
BUSY_SLICE_MS_MAX = bound(
    Subject.CONNECTIONS,
    "time in one iteration for connections that use more than a quarter of the event loop or need several turns",
    2,
    "ms",
    on_excess="connections that use little are served first",
)


_TURN_S = TURN_MS_MAX / 1000
_ROUND_S = ROUND_MS_MAX / 1000
_SLICE_S = LOOP_SLICE_MS_MAX / 1000
_BUSY_SLICE_S = BUSY_SLICE_MS_MAX / 1000
_SHARE = 4
"""The share of a connection is this part of the loop's time: 4 for a quarter."""
_EXCESS_S = 0.02
"""How far a connection that is not busy may be ahead of its share: the time of a turn includes the time in which the
system runs other processes.
"""
_EXCESS_MAX_S = 0.1
"""The excess that is counted: a connection that pauses for this long has its share again."""


class TakesTurns(Protocol):
    """A connection, for the queue."""

    is_urgent: bool
    """Whether it has a queue of its own, which comes first: the control plane."""
    share_used_until_s: float
    """When the connection will have got the time that it has used already as its share.  Initially 0, set by Turns."""
    had_more: bool
    """Whether there was more to do after its last turn.  Initially False, set by Turns."""

    def take_turn(self) -> bool:
        """Do a bounded piece of work, nothing if the connection has been closed; return whether there is more.

        Does not raise.
        """
        ...


class Turns:
    """The queues of one broker's connections.  Each connection is queued at most once at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._now_s = loop.time
        self.iteration = iteration_of(loop)
        self.received_in_s = 0.0
        """The start of the iteration that `received` is about."""
        self.received = 0
        """Bytes that connections have received in that iteration.  Maintained by them, without calls."""
        self.turn_s = _TURN_S
        """The time of a turn in seconds, after its first request."""
        self._urgent: deque[TakesTurns] = deque()
        self._queue: deque[TakesTurns] = deque()
        self._busy: deque[TakesTurns] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        """Return the number of queued connections."""
        return len(self._urgent) + len(self._queue) + len(self._busy)

    def may_receive(self, *, is_urgent: bool) -> bool:
        """Return False if connections that have much to receive wait for their turns in this iteration.

        The time counts too: while a thread decodes long requests, each receive waits for the interpreter's lock.
        """
        if self._now_s() - self.iteration.started_s >= _SLICE_S:
            return False
        return self.received < (URGENT_RECEIVED_PER_ITERATION_MAX if is_urgent else RECEIVED_PER_ITERATION_MAX)

    def take_or_queue(self, connection: TakesTurns) -> bool:
        """Run a turn of the connection now, or queue one; return whether it was run."""
        now_s = self._now_s()
        queue = self._queue_of(connection, now_s)
        if queue or now_s - self.iteration.started_s >= (_BUSY_SLICE_S if queue is self._busy else _SLICE_S):
            queue.append(connection)
            self._schedule()
            return False
        self._take(connection, now_s)
        return True

    def queue(self, connection: TakesTurns) -> None:
        """Queue a turn of the connection."""
        self._queue_of(connection, self._now_s()).append(connection)
        self._schedule()

    def _queue_of(self, connection: TakesTurns, now_s: float) -> deque[TakesTurns]:
        if connection.is_urgent:
            return self._urgent
        is_busy = connection.had_more or connection.share_used_until_s - now_s > _EXCESS_S
        return self._busy if is_busy else self._queue

    def _take(self, connection: TakesTurns, now_s: float) -> float:
        """Run a turn, and queue the next one if there is more to do; return the time after it."""
        has_more = connection.take_turn()
        end_s = self._now_s()
        connection.had_more = has_more
        used_s = (end_s - now_s) * _SHARE
        until_s = connection.share_used_until_s
        # Without max and min: their calls are more than the rest of a short turn.
        until_s = until_s + used_s if until_s > now_s else now_s + used_s
        most_s = end_s + _EXCESS_MAX_S
        connection.share_used_until_s = until_s if until_s < most_s else most_s  # noqa: FURB136 - see above
        if has_more:
            self.queue(connection)
        return end_s

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run_slice)

    def _run_slice(self) -> None:
        self._set_turn_time()
        now_s = self._now_s()
        urgent, others, busy = (self._urgent, _BUSY_SLICE_S), (self._queue, _SLICE_S), (self._busy, _BUSY_SLICE_S)
        for queue, slice_s in (urgent, others, busy):
            end_s = now_s + slice_s
            for _ in range(len(queue)):
                now_s = self._take(queue.popleft(), now_s)
                if now_s >= end_s:
                    break
        self._is_scheduled = False
        if self._urgent or self._queue or self._busy:
            self._schedule()
        else:
            self.turn_s = _TURN_S

    def _set_turn_time(self) -> None:
        """So that each connection that is queued now has a turn within ROUND_MS_MAX, if first requests are short."""
        waiting = len(self)
        self.turn_s = min(_TURN_S, _ROUND_S / waiting) if waiting else _TURN_S

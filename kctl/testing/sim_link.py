"""One direction of a simulated connection: ordered bytes with delays, splits and partitions.

TCP retransmits lost segments, which delays them and all later ones.  So loss is modelled as delay, and a partition
holds segments back until it heals; a connection breaks only if that takes longer than TCP's retransmission timeout.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random

from kctl.testing.sim_process import NO_PROCESS


@dataclass(slots=True)
class LinkConditions:
    """Conditions from one host to another.  Times in seconds."""

    delay_s_min: float = 0.0001
    delay_s_mean: float = 0.0005
    """Mean of the exponentially distributed delay added to the minimum."""
    loss: float = 0.0
    """Probability of the retransmission of a segment."""
    split: float = 0.1
    """Probability that bytes written together arrive in two pieces."""
    is_blocked: bool = False

    def arrival_delay_s(self, random: Random) -> float:
        """Return the time from sending to arrival, retransmissions included."""
        delay_s = self.delay_s_min + random.expovariate(1 / self.delay_s_mean)
        timeout_s = RETRANSMISSION_S
        while random.random() < self.loss and timeout_s < RETRANSMISSION_TIMEOUT_S:
            delay_s += timeout_s
            timeout_s *= 2
        return delay_s


RETRANSMISSION_S = 0.2
RETRANSMISSION_TIMEOUT_S = 900.0
"""Retransmission timeout of TCP; about 15 minutes on Linux."""


class Signal(Enum):
    """Signals in the stream besides bytes."""

    FIN = "fin"
    RST = "rst"


Segment = bytes | Signal


class Pipe:
    """Segments in flight, in order.  `deliver` is called at their arrival, except between `hold` and `release`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        conditions: LinkConditions,
        *,
        deliver: Callable[[Segment], None],
        on_progress: Callable[[], None],
        on_retransmission_timeout: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._random = random
        self.conditions = conditions
        self._deliver = deliver
        self._on_progress = on_progress
        self._on_retransmission_timeout = on_retransmission_timeout
        self._segments: deque[tuple[float, Segment]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._retransmission_timer: asyncio.TimerHandle | None = None
        self._is_held = False
        self._not_before_s = 0.0
        self.byte_count = 0
        """Bytes sent and not delivered yet."""

    def send(self, segment: Segment) -> None:
        """Send a segment."""
        for piece in self._pieces(segment):
            arrival_s = self._loop.time() + self.conditions.arrival_delay_s(self._random)
            self._segments.append((arrival_s, piece))
            if isinstance(piece, bytes):
                self.byte_count += len(piece)
        self._schedule()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in flight."""
        return not self._segments

    def reset(self) -> None:
        """Drop everything in flight and send a reset."""
        self._drop_segments()
        self.send(Signal.RST)

    def hold(self) -> None:
        """Pause delivery: the receiver does not read."""
        self._is_held = True

    def release(self) -> None:
        """Resume delivery."""
        self._is_held = False
        self._schedule()

    def conditions_changed(self) -> None:
        """Apply a new or healed partition."""
        if not self.conditions.is_blocked and self._retransmission_timer is not None:
            self._retransmission_timer.cancel()
            self._retransmission_timer = None
            self._not_before_s = self._loop.time() + self.conditions.arrival_delay_s(self._random)
        self._schedule()

    def close(self) -> None:
        """Drop everything in flight."""
        self._drop_segments()
        if self._retransmission_timer is not None:
            self._retransmission_timer.cancel()
            self._retransmission_timer = None

    def _drop_segments(self) -> None:
        self._segments.clear()
        self.byte_count = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pieces(self, segment: Segment) -> list[Segment]:
        if isinstance(segment, Signal) or len(segment) < 2 or self._random.random() >= self.conditions.split:
            return [segment]
        cut = self._random.randrange(1, len(segment))
        return [segment[:cut], segment[cut:]]

    def _schedule(self) -> None:
        if self._timer is not None or not self._segments:
            return
        arrival_s, segment = self._segments[0]
        if self.conditions.is_blocked:
            if self._retransmission_timer is None:
                self._retransmission_timer = self._loop.call_later(
                    RETRANSMISSION_TIMEOUT_S, self._on_retransmission_timeout, context=NO_PROCESS
                )
        elif not self._is_held or segment is Signal.RST:
            due_s = max(arrival_s, self._not_before_s, self._loop.time())
            self._timer = self._loop.call_at(due_s, self._arrive, context=NO_PROCESS)

    def _arrive(self) -> None:
        self._timer = None
        _, segment = self._segments[0]
        if self.conditions.is_blocked or (self._is_held and segment is not Signal.RST):
            self._schedule()  # which waits until that ends
            return
        self._segments.popleft()
        if isinstance(segment, bytes):
            self.byte_count -= len(segment)
        self._deliver(segment)
        self._schedule()
        self._on_progress()

"""Limits how long the frames of all clients are read in one iteration of the event loop.

A client may send hundreds of requests at once, and hundreds of clients may do so in one iteration.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

TURN_S = 0.004
"""The time for frames in one iteration."""

_REASON = "frames of other connections"


class Reader(Protocol):
    """A connection with received bytes."""

    def read_frames(self, may_continue: Callable[[], bool]) -> bool:
        """Read frames while `may_continue`, at least one; return whether no whole frame is left."""

    def pause_reading(self, reason: str) -> None:
        """Receive nothing until `resume_reading` is called with the same reason."""

    def resume_reading(self, reason: str) -> None:
        """Receive again if there is no other reason to wait."""


class InputTurns:
    """Reads the frames of a connection at once if there is time, and otherwise in the following iterations.

    A connection receives nothing while it waits for its turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Reader] = deque()
        self._ends_s = 0.0
        self._is_begun = False

    def received(self, reader: Reader) -> None:
        """The connection has received bytes."""
        if not self._is_begun:
            self._begin()
        if self._waiting or not self._may_continue() or not reader.read_frames(self._may_continue):
            reader.pause_reading(_REASON)
            self._waiting.append(reader)

    def _begin(self) -> None:
        self._is_begun = True
        self._ends_s = self._loop.time() + TURN_S
        self._loop.call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._is_begun = False
        if not self._waiting:
            return
        self._begin()
        for _ in range(len(self._waiting)):
            reader = self._waiting.popleft()
            if reader.read_frames(self._may_continue):
                reader.resume_reading(_REASON)
            else:
                self._waiting.append(reader)
            if not self._may_continue():
                return

    def _may_continue(self) -> bool:
        return self._loop.time() < self._ends_s

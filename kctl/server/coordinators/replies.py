"""Calls that may have to wait for their answer.

A call is decided the moment it comes in, so that calls of one connection keep their order; only its answer may wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

Reply: TypeAlias = T | asyncio.Future[T]


class ParkedCall(Generic[T]):
    """A token that knows its answer, or the future of it.

    Owner: event loop.
    """

    __slots__ = ("_future", "_outcome")

    def __init__(self) -> None:
        self._future: asyncio.Future[T] | None = None
        self._outcome: T | None = None

    def answer(self, outcome: T) -> None:
        """Whoever asked may be gone by now, which cancels the future."""
        if self._future is None:
            assert self._outcome is None
            self._outcome = outcome
        elif not self._future.done():
            self._future.set_result(outcome)

    def reply(self) -> Reply[T]:
        """The answer when it is there already, else a future of it."""
        if self._outcome is not None:
            return self._outcome
        self._future = asyncio.get_running_loop().create_future()
        return self._future

    def outcome(self) -> T:
        """The answer to a call that never has to wait."""
        assert self._outcome is not None, "answered within the step"
        return self._outcome


def then(reply: Reply[T], convert: Callable[[T], R]) -> R | Awaitable[R]:
    """What `convert` makes of the reply, now or later."""
    if isinstance(reply, asyncio.Future):
        return _convert_later(reply, convert)
    return convert(reply)


async def _convert_later(reply: asyncio.Future[T], convert: Callable[[T], R]) -> R:
    return convert(await reply)

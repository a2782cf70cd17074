"""Calls whose result may come later, and the appends of a coordinator to its log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

from kctl.errors import ErrorCode
from kctl.server.coordination.ports import AppendOutcome

# Calls whose result may come later.
#
# A call is processed at once, so that calls of one connection keep their order; only its result may come later.


T = TypeVar("T")
R = TypeVar("R")

Reply: TypeAlias = T | asyncio.Future[T]


class ParkedCall(Generic[T]):
    """A token that holds the result, or the future of it.

    Owner: event loop.
    """

    __slots__ = ("_future", "_outcome")

    def __init__(self) -> None:
        self._future: asyncio.Future[T] | None = None
        self._outcome: T | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the call has ended without a result, and its client waits for one."""
        return self._future is not None

    def complete(self, outcome: T) -> None:
        """Set the result; ignored if the client is gone, which cancels the future."""
        if self._future is None:
            assert self._outcome is None
            self._outcome = outcome
        elif not self._future.done():
            self._future.set_result(outcome)

    def reply(self) -> Reply[T]:
        """Return the result if it is known, else a future of it."""
        if self._outcome is not None:
            return self._outcome
        self._future = asyncio.get_running_loop().create_future()
        return self._future

    def outcome(self) -> T:
        """Return the result of a call that never waits."""
        assert self._outcome is not None, "completed within the step"
        return self._outcome


async def result_of(reply: Reply[T]) -> T:
    """Return the reply, when it is known."""
    return await reply if isinstance(reply, asyncio.Future) else reply


def then(reply: Reply[T], convert: Callable[[T], R]) -> R | Awaitable[R]:
    """`convert` applied to the reply, now or later."""
    if isinstance(reply, asyncio.Future):
        return _convert_later(reply, convert)
    return convert(reply)


async def _convert_later(reply: asyncio.Future[T], convert: Callable[[T], R]) -> R:
    return convert(await reply)


# Appends of a coordinator to its log.
#
# A coordinator stages a change in memory, appends its record, and ends the staging when the result of the append is
# known. So every append must have a result: a record that cannot be built, or an append that raises, counts as
# refused.
#
# Owner: event loop.


log = logging.getLogger(__name__)


def append_or_refuse(
    append: Callable[[], AppendOutcome | asyncio.Future[AppendOutcome]], what: str
) -> AppendOutcome | asyncio.Future[AppendOutcome]:
    """Build and append a batch by calling `append`; return UNKNOWN_SERVER_ERROR and log the error if that raises.

    `what` identifies the batch in the log, as `key=value` pairs.
    """
    try:
        return append()
    except Exception:
        return refused(what)


def refused(what: str) -> AppendOutcome:
    """Return the result for a batch that cannot be built or appended; log the exception that is handled."""
    log.exception("cannot append to the coordinator's log, refusing the request %s", what)
    return AppendOutcome(ErrorCode.UNKNOWN_SERVER_ERROR)

"""When to try again and for how long.  Pure but for the transport's clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from kctl.client.budget import Budget
from kctl.client.transport import ConnectionLost, Transport
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode

T = TypeVar("T")

BACKOFF_MS_MIN = 50
BACKOFF_MS_MAX = 1_000

LEADER_MOVED = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
    }
)
"""The partition is there, but not where we asked or not yet: look again and ask again."""

ABSENT = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
    }
)
"""Nobody serves the partition at the moment: a command asks again only for a moment."""

COORDINATOR_MOVED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
CONTROLLER_MOVED = frozenset({ErrorCode.NOT_CONTROLLER})


class Deadline:
    """Until when an operation may go on, and how long to wait before each further attempt (doubling)."""

    def __init__(self, transport: Transport, timeout_ms: int, budget: Budget | None = None) -> None:
        """The deadline of the command that `budget` belongs to counts as well."""
        self.timeout_ms = timeout_ms
        self._transport = transport
        self._budget = budget or Budget(transport.monotonic_ms)
        self._end_ms = transport.monotonic_ms() + timeout_ms
        self._backoff_ms = BACKOFF_MS_MIN

    @property
    def remaining_ms(self) -> int:
        return self._budget.limited(max(0, self._end_ms - self._transport.monotonic_ms()))

    async def pause(self, *, for_absent: bool = False) -> bool:
        """Wait before another attempt; False when there is no time left for one.

        `for_absent`: all that is asked for again is served by nobody, so a command waits only a little (see Budget).
        """
        remaining_ms = self.remaining_ms
        if for_absent:
            remaining_ms = self._budget.limited_for_absent(remaining_ms)
        if remaining_ms <= self._backoff_ms:
            return False
        await self._transport.sleep(self._backoff_ms)
        self._backoff_ms = min(2 * self._backoff_ms, BACKOFF_MS_MAX)
        return True


async def retry(
    attempt: Callable[[], Awaitable[T]],
    *,
    deadline: Deadline,
    codes: Collection[ErrorCode] = (),
    is_repeatable: bool = True,
    forget: Callable[[], None] = lambda: None,
) -> T:
    """Run `attempt` until it works, fails otherwise than with `codes`, or time is up; then its last error is raised.

    A lost connection counts as retriable only where doing the thing twice does no harm (`is_repeatable`).  `forget`
    drops what was known about who to ask, before each further attempt.
    """
    while True:
        try:
            return await attempt()
        except ApiError as error:
            if error.code not in codes or not await deadline.pause():
                raise
        except ConnectionLost as error:
            if not is_repeatable or not await deadline.pause():
                raise ClusterUnreachable(f"cannot reach {error}") from None
        forget()

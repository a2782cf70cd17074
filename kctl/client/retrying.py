"""Retries with a deadline and backoff.  Pure except for the transport's clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from kctl.client.connections.transport import Budget, ClosedAtFirstRequest, ConnectionLost, Transport
from kctl.client.settings import RETRY_BACKOFF_MS, RETRY_BACKOFF_MS_MAX
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode

T = TypeVar("T")

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
"""The partition exists, but has another leader or none yet: refresh the metadata and retry."""

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
"""The partition has no leader: a command retries only briefly (see Budget)."""

COORDINATOR_MOVED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
CONTROLLER_MOVED = frozenset({ErrorCode.NOT_CONTROLLER})


class Deadline:
    """Deadline of an operation, and the pause before each further attempt (doubling)."""

    def __init__(
        self,
        transport: Transport,
        timeout_ms: int,
        budget: Budget | None = None,
        *,
        backoff_ms: int = RETRY_BACKOFF_MS,
        backoff_ms_max: int = RETRY_BACKOFF_MS_MAX,
    ) -> None:
        """Prepare the client, to which the deadline of the command in `budget` applies too."""
        self.timeout_ms = timeout_ms
        self._transport = transport
        self._budget = budget or Budget(transport.monotonic_ms)
        self._end_ms = transport.monotonic_ms() + timeout_ms
        self._backoff_ms = backoff_ms
        self._backoff_ms_max = backoff_ms_max

    @property
    def remaining_ms(self) -> int:
        """Time until the earlier of the two deadlines; 0 after it."""
        return self._budget.limited(max(0, self._end_ms - self._transport.monotonic_ms()))

    async def pause(self, *, for_absent: bool = False) -> bool:
        """Wait before another attempt; return False if no time is left.

        `for_absent`: nothing to retry has a leader, so a command waits only briefly (see Budget).
        """
        remaining_ms = self.remaining_ms
        if for_absent:
            remaining_ms = self._budget.limited_for_absent(remaining_ms)
        if remaining_ms <= self._backoff_ms:
            return False
        await self._transport.sleep(self._backoff_ms)
        self._backoff_ms = min(2 * self._backoff_ms, self._backoff_ms_max)
        return True


async def retry(
    attempt: Callable[[], Awaitable[T]],
    *,
    deadline: Deadline,
    codes: Collection[ErrorCode] = (),
    is_repeatable: bool = True,
    forget: Callable[[], None] = lambda: None,
) -> T:
    """Run `attempt` until it succeeds, raises an error other than `codes`, or the deadline passes.

    Raises the last error.  A lost connection is retried only if repeating the request is safe (`is_repeatable`).
    `forget` is called before each further attempt, to drop cached leaders or coordinators.
    """
    is_refused = False
    while True:
        try:
            return await attempt()
        except ApiError as error:
            if error.code not in codes or not await deadline.pause():
                raise
        except ConnectionLost as error:
            # A broker that is stopping may close a connection at its first request, but hardly two in a row.
            is_refused_again = is_refused and isinstance(error, ClosedAtFirstRequest)
            if not is_repeatable or is_refused_again or not await deadline.pause():
                raise ClusterUnreachable(f"cannot reach {error}") from None
            is_refused = isinstance(error, ClosedAtFirstRequest)
        forget()

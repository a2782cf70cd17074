"""Responses in memory whose clients do not read them, over all connections.

Each connection has few responses in memory, but thousands of connections that do not read would use up the memory.
Beyond the bound those that have not read anything for the longest time are closed.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kctl.limits import UNREAD_RESPONSE_BYTES_MAX

C = TypeVar("C", bound=Hashable)


class UnreadResponses(Generic[C]):
    """Counts the connections that are blocked; `on_excess` closes one, which then calls `resumed`."""

    def __init__(self, on_excess: Callable[[C], None], *, bytes_max: int = UNREAD_RESPONSE_BYTES_MAX) -> None:
        self._on_excess = on_excess
        self._bytes_max = bytes_max
        self._blocked: dict[C, int] = {}
        """Bytes in memory when the connection was blocked, the one that has not read for the longest time first."""
        self._total_bytes = 0

    @property
    def total_bytes(self) -> int:
        """Responses of all blocked connections."""
        return self._total_bytes

    def blocked(self, connection: C, size_bytes: int) -> None:
        """The socket of the connection takes no more; `size_bytes` remain in memory."""
        self._blocked[connection] = size_bytes
        self._total_bytes += size_bytes
        while self._total_bytes > self._bytes_max:
            oldest = next(iter(self._blocked))
            self.resumed(oldest)
            self._on_excess(oldest)

    def progressed(self, connection: C) -> None:
        """The client has read something."""
        size_bytes = self._blocked.pop(connection, None)
        if size_bytes is not None:
            self._blocked[connection] = size_bytes

    def resumed(self, connection: C) -> None:
        """Everything has been sent, or the connection is closed."""
        self._total_bytes -= self._blocked.pop(connection, 0)

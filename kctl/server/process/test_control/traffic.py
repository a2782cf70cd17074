"""The latest requests and responses of clients, as bytes: the test decodes those that it asks for.

Owner: event loop.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator

from kctl.limits import Subject, bound
from kctl.server.network.connections.outbox import Chunk

RECORDED_MAX = bound(
    Subject.TESTS,
    "requests that are recorded with their responses",
    10_000,
    "requests",
    on_excess="the oldest are removed",
)
RECORDED_BYTES_MAX = bound(
    Subject.TESTS,
    "bytes of the recorded requests and responses",
    64 << 20,
    "bytes",
    on_excess="the oldest are removed",
)
MESSAGE_BYTES_MAX = bound(
    Subject.TESTS,
    "size of a request or a response that is recorded",
    1 << 20,
    "bytes",
    on_excess="it is recorded without its contents",
)


class Exchange:
    """One request, and its response as soon as it is known."""

    __slots__ = ("api_key", "client_id", "failed_by", "is_answered", "number", "request", "response", "time_ms")

    def __init__(self, number: int, api_key: int, client_id: str, time_ms: int, frame: memoryview) -> None:
        self.number = number
        self.api_key = api_key
        self.client_id = client_id
        self.time_ms = time_ms
        """When it arrived, in ms since the epoch by the clock of the broker."""
        self.request = bytes(frame) if len(frame) <= MESSAGE_BYTES_MAX else b""
        """The frame without its size; empty if it is too long."""
        self.response: bytes | None = None
        """The frame with its size; None before it is known, for a request without one, and if it is too long."""
        self.is_answered = False
        """Whether the request is done, with or without a response."""
        self.failed_by: int | None = None
        """The fault with which it has failed; None for a request that the broker has served."""

    @property
    def size(self) -> int:
        """The bytes in memory."""
        return len(self.request) + len(self.response or b"")


class Traffic:
    """A ring of exchanges."""

    def __init__(self) -> None:
        self._exchanges: deque[Exchange] = deque()
        self._bytes = 0
        self._next_number = 1

    @property
    def latest_number(self) -> int:
        """The number of the latest request; 0 before the first."""
        return self._next_number - 1

    def begin(self, api_key: int, client_id: str, time_ms: int, frame: memoryview) -> Exchange:
        """Record a request."""
        exchange = Exchange(self._next_number, api_key, client_id, time_ms, frame)
        self._next_number += 1
        self._exchanges.append(exchange)
        self._bytes += exchange.size
        self._make_room()
        return exchange

    def answered(self, exchange: Exchange, chunks: list[Chunk] | None) -> None:
        """Record the response, None for a request without one."""
        before = exchange.size
        if chunks is not None and sum(map(len, chunks)) <= MESSAGE_BYTES_MAX:
            exchange.response = contents(chunks)
        exchange.is_answered = True
        is_kept = bool(self._exchanges) and exchange.number >= self._exchanges[0].number
        if is_kept:
            self._bytes += exchange.size - before
            self._make_room()

    def after(self, number: int) -> Iterator[Exchange]:
        """Yield the exchanges after the one with this number, the oldest first."""
        return (exchange for exchange in self._exchanges if exchange.number > number)

    def _make_room(self) -> None:
        exchanges = self._exchanges
        while exchanges and (len(exchanges) > RECORDED_MAX or self._bytes > RECORDED_BYTES_MAX):
            self._bytes -= exchanges.popleft().size


def contents(chunks: list[Chunk]) -> bytes:
    """Return the bytes of a response.  Ranges of files are read; they are short, or the response is not wanted."""
    parts: list[bytes | bytearray | memoryview] = []
    for chunk in chunks:
        if isinstance(chunk, bytes | bytearray | memoryview):
            parts.append(chunk)
        else:
            parts.append(os.pread(chunk.fileno(), chunk.size, chunk.position))
    return b"".join(parts)

"""Received bytes of one connection, cut into frames.  Uses no socket.

A frame is a 32-bit length and that many bytes.  Memory is allocated for the bytes that have arrived, not for the length
that a peer declares: a buffer grows by doubling.  From 1 MiB on, address space for the whole frame is mapped, and the
system allocates its pages as bytes arrive, because copying a larger buffer would take too long.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from kctl.errors import MalformedRequest
from kctl.limits import Subject, bound
from kctl.server.network.connections.buffer_pool import MAPPED_BYTES_MIN, BufferPool, rounded_up

READ_AHEAD_BYTES_MAX = bound(
    Subject.CONNECTIONS,
    "bytes received from one connection while its request is handled",
    1 << 16,
    "bytes",
    on_excess="nothing more is read from the connection until the response has been sent",
)
RECEIVED_AT_ONCE_MAX = bound(
    Subject.CONNECTIONS,
    "bytes that one connection receives in a row",
    1 << 20,
    "bytes",
    on_excess="the rest is received afterwards",
)


_LENGTH = struct.Struct(">i")
_LENGTH_BYTES = _LENGTH.size
_EXPECTED_BYTES_MAX = 1 << 20
_DOUBLED_BYTES_MAX = 1 << 20
_SMALL_REST_BYTES = 1 << 14
"""Fewer remaining bytes are moved to a small buffer, so that many slow peers do not hold large ones."""
_SMALLEST_BUFFER_BYTES = 256
_NOTHING = memoryview(b"")


class Inbox:
    """Write received bytes to `buffer()`, report their number with `received`, take frames with `next_frame`.

    A frame is a view that is valid until the next call of `buffer` or `settle`, unless `keep_frame` is called before.
    """

    __slots__ = (
        "_buffer",
        "_end",
        "_expected_bytes",
        "_is_admitted",
        "_pool",
        "_reserved_bytes",
        "_start",
        "frame_bytes_max",
    )

    def __init__(self, pool: BufferPool, frame_bytes_max: int) -> None:
        self._pool = pool
        self.frame_bytes_max = frame_bytes_max
        """The size of the largest frame that is accepted; the owner may change it between frames."""
        self._buffer = _NOTHING
        self._start = 0
        self._end = 0
        self._expected_bytes = MAPPED_BYTES_MIN
        self._is_admitted = False
        """Whether the whole memory of the first frame may be reserved."""
        self._reserved_bytes = 0
        """Memory that it needs beyond the buffer."""

    def __len__(self) -> int:
        """Return the number of received bytes that are not part of a frame returned by `next_frame`."""
        return self._end - self._start

    @property
    def needs_bytes(self) -> bool:
        """Whether more should be received before a frame is taken: no whole frame is here, or few bytes are."""
        available = self._end - self._start
        return available < READ_AHEAD_BYTES_MAX or available < self._first_frame_bytes()

    def has_memory(self) -> bool:
        """Return whether `buffer` may be called; False if the pool has no room, and the caller has to wait for it.

        A frame of more than 64 KiB is admitted as a whole, so that receiving does not stop in the middle of it.
        """
        pool = self._pool
        if not pool.is_limited or self._is_admitted or (self._buffer and self._end < len(self._buffer)):
            return True
        if len(self._buffer) < MAPPED_BYTES_MIN and pool.has_room:
            return True
        if not self._buffer or not pool.may_grow(self):
            return False
        self._is_admitted = True
        self._reserve(max(self._first_frame_bytes() - len(self._buffer), 0))
        return True

    def buffer(self) -> memoryview:
        """Return where the next bytes go; never empty, and at most RECEIVED_AT_ONCE_MAX.

        The kernel fills new memory at less than 1 GB/s, and a socket may have received 6 MB.
        """
        if not self._buffer:
            self._buffer = self._pool.take(self._expected_bytes)
        elif self._end == len(self._buffer):
            self._make_room()
        if not self._end and len(self._buffer) <= RECEIVED_AT_ONCE_MAX:
            return self._buffer  # A slice is another object.
        return self._buffer[self._end : self._end + RECEIVED_AT_ONCE_MAX]

    def add(self, received: memoryview) -> None:
        """Copy bytes that were received elsewhere, at most LONE_FRAME_BYTES_MAX; the inbox is empty."""
        self.buffer()[: len(received)] = received
        self._end += len(received)

    def received(self, count: int) -> None:
        """Note that the first `count` bytes of `buffer()` have been filled."""
        self._end += count

    def next_frame_begins_with(self, first: bytes) -> bool:
        """Return whether these bytes of the next frame, without its length, have arrived."""
        start = self._start + _LENGTH_BYTES
        end = start + len(first)
        return end <= self._end and self._buffer[start:end] == first

    def next_frame(self) -> memoryview | None:
        """Return the next whole frame without its length, or None when more bytes are needed.

        Raises MalformedRequest for a length that is negative or above `frame_bytes_max`.
        """
        start = self._start
        available = self._end - start
        if available < _LENGTH_BYTES:
            return None
        (size,) = _LENGTH.unpack_from(self._buffer, start)
        if size < 0 or size > self.frame_bytes_max:
            raise MalformedRequest(f"frame of {size} bytes; the limit is {self.frame_bytes_max}")
        if available < _LENGTH_BYTES + size:
            return None
        self._start = end = start + _LENGTH_BYTES + size
        if self._is_admitted:
            self._is_admitted = False
            self._reserve(0)
        if size >= self._expected_bytes < _EXPECTED_BYTES_MAX:
            self._expected_bytes = min(rounded_up(_LENGTH_BYTES + size), _EXPECTED_BYTES_MAX)
        return self._buffer[start + _LENGTH_BYTES : end]

    def keep_frame(self, until: asyncio.Future[Any]) -> None:
        """Use the buffer of the last frame for no other bytes any more; these are moved to another one.

        Its memory counts until the future is done, and is freed when nothing refers to the frame.
        """
        former, rest = self._buffer, len(self)
        self._buffer = _NOTHING
        if rest:
            self._buffer = self._pool.take(max(rest, _SMALLEST_BUFFER_BYTES))
            self._buffer[:rest] = former[self._start : self._end]
        self._start, self._end = 0, rest
        self._pool.lend_until(until, former)

    def settle(self) -> bool:
        """Release the memory that the remaining received bytes do not need; return whether more should be received.

        See `needs_bytes`.
        """
        rest = self._end - self._start
        if rest == 0:
            if self._pool.is_limited:
                self.close()
            elif self._buffer:
                # As `close`, which is a call more.
                buffer, self._buffer = self._buffer, _NOTHING
                self._start = self._end = 0
                self._pool.give_back(buffer)
            return True
        if rest < _SMALL_REST_BYTES and len(self._buffer) > max(2 * rest, _SMALLEST_BUFFER_BYTES):
            self._move_to(self._pool.take(max(rest, _SMALLEST_BUFFER_BYTES)))
        if self._pool.is_limited and not self._is_admitted:
            self._pool.has_grown(self)
        return self.needs_bytes

    def close(self) -> None:
        """Release all memory; received bytes are discarded."""
        if self._buffer:
            buffer, self._buffer = self._buffer, _NOTHING
            self._pool.give_back(buffer)
        self._start = self._end = 0
        if self._pool.is_limited:
            self._is_admitted = False
            self._reserve(0)
            self._pool.has_grown(self)

    def _reserve(self, size: int) -> None:
        if size != self._reserved_bytes:
            change, self._reserved_bytes = size - self._reserved_bytes, size
            self._pool.reserve(change)

    def _first_frame_bytes(self) -> int:
        """Return the size of the frame that begins the buffer with its length, as far as it is known and allowed."""
        if len(self) < _LENGTH_BYTES:
            return _LENGTH_BYTES
        (size,) = _LENGTH.unpack_from(self._buffer, self._start)
        return _LENGTH_BYTES + size if 0 <= size <= self.frame_bytes_max else 0

    def _make_room(self) -> None:
        if self._start >= len(self._buffer) // 2:
            rest = len(self)
            self._buffer[:rest] = self._buffer[self._start : self._end]
            self._start, self._end = 0, rest
            return
        needed = max(self._first_frame_bytes(), READ_AHEAD_BYTES_MAX)
        doubled = 2 * len(self._buffer)
        size = needed if doubled > _DOUBLED_BYTES_MAX else min(doubled, needed)
        self._move_to(self._pool.take(max(size, len(self) + 1)))

    def _move_to(self, buffer: memoryview) -> None:
        rest = len(self)
        buffer[:rest] = self._buffer[self._start : self._end]
        former, self._buffer, self._start, self._end = self._buffer, buffer, 0, rest
        if self._reserved_bytes:
            self._reserve(max(self._reserved_bytes + len(former) - len(buffer), 0))
        self._pool.give_back(former)

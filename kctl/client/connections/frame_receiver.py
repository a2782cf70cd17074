"""Splits received bytes into frames, and receives large frames without copying.

Small frames pass through a buffer of fixed size.  When a frame is larger than the bytes received so far, memory of its
size is allocated and the rest is received directly into it; followers fetch megabytes this way.  The memory of a
large frame is reused when no view of it is left, because the system zeroes new memory.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Callable
from typing import NamedTuple

from kctl.client.connections.framing import SIZE
from kctl.limits import RESPONSE_BYTES_MAX
from kctl.system.operating_system import private_pages
from kctl.system.reference_cycles import copy_of, free_transports, transports_under

_BUFFER_BYTES = 65_536
_REUSABLE_BYTES_MAX = 16 << 20
"""Larger than the 10 MiB of replica.fetch.response.max.bytes; memory of larger frames is not reused."""
_WASTE_MAX = 4
"""Reused memory may be at most so many times the size of the frame, because a view keeps all of it."""


class _FrameMemory:
    """Page-aligned memory for one frame at a time; some processors fill it several times faster than a bytearray."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: mmap.mmap | None = None

    def take(self, size: int) -> memoryview:
        """Return unused memory of the given size, uninitialised; it is in use while a view of it exists."""
        pages = self._pages
        if pages is None or len(pages) < size or _is_viewed(pages):
            needed = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            pages = private_pages(needed)
            if size <= _REUSABLE_BYTES_MAX:
                self._pages = pages
        elif len(pages) > size * _WASTE_MAX:
            return memoryview(bytearray(size))
        return memoryview(pages)[:size]


def _is_viewed(pages: mmap.mmap) -> bool:
    """Return whether a view exists: resizing a map fails then, even to its present size."""
    try:
        pages.resize(len(pages))
    except BufferError:
        return True
    except SystemError:  # Without mremap this cannot be determined.
        return True
    return False


def _ignore_frame(_frame: memoryview) -> None:
    """Ignore frames of a closed connection."""


def _ignore_loss(_reason: OSError | int | None) -> None:
    """Ignore that a closed connection is lost."""


class FrameReceiver(asyncio.BufferedProtocol):
    """`on_frame` is called with each frame without its size field, as a view that the callee may keep.

    `on_lost` is called with the reason when the connection ends: an OSError, None if the peer closed it, or an invalid
    frame size (int).  It may be called again; the first reason counts.  `frame_bytes_max` can be changed between
    frames.
    """

    def __init__(
        self,
        on_frame: Callable[[memoryview], None],
        on_lost: Callable[[OSError | int | None], None],
        *,
        frame_bytes_max: int = RESPONSE_BYTES_MAX,
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._transports: tuple[asyncio.BaseTransport, ...] = ()
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        self._memory = _FrameMemory()
        self._frame: memoryview | None = None
        """A frame that has been received in part."""
        self._frame_filled = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for `write`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._transports = transports_under(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes."""
        if self._frame is not None:
            return self._frame[self._frame_filled :]
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Process newly received bytes."""
        if self._frame is None:
            self._filled += nbytes
            self._cut()
            return
        self._frame_filled += nbytes
        if self._frame_filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._on_frame(frame)

    def eof_received(self) -> None:
        """Call `on_lost(None)`: the peer closed the connection."""
        self._on_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Call `on_lost` and end the waits in `drain` and `wait_closed`."""
        self._on_lost(exc if isinstance(exc, OSError) else None)
        self._writable.set()
        self._closed.set()
        free_transports(self._transports)
        self._release()

    def pause_writing(self) -> None:
        """Make `drain` wait: the write buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """End the waits in `drain`: the write buffer has room."""
        self._writable.set()

    def write(self, chunks: list[bytes | bytearray | memoryview]) -> None:
        """Write the chunks in one call."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(chunks)

    async def drain(self) -> None:
        """Wait until the write buffer has room; also return when the connection is lost."""
        await self._writable.wait()

    def close(self) -> None:
        """Close the connection after sending the written bytes."""
        if self._transport is not None:
            self._transport.close()
        else:
            self._release()

    def abort(self) -> None:
        """Close the connection at once and discard unsent bytes."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        if self._transport is not None:
            await self._closed.wait()

    def _release(self) -> None:
        """Drop the callbacks, whose objects refer to this one, and the memory."""
        self._on_frame, self._on_lost = _ignore_frame, _ignore_loss
        self._transport, self._transports = None, ()
        self._buffer, self._filled, self._frame, self._memory = memoryview(b""), 0, None, _FrameMemory()

    def _cut(self) -> None:
        position = 0
        while self._filled - position >= SIZE.size:
            (size,) = SIZE.unpack_from(self._buffer, position)
            if not 0 <= size <= self.frame_bytes_max:
                self._on_lost(size)
                self._filled = 0
                return
            start = position + SIZE.size
            here = self._filled - start
            if here < size:
                self._frame = self._memory.take(size)
                self._frame[:here] = self._buffer[start : self._filled]
                self._frame_filled, self._filled = here, 0
                return
            position = start + size
            self._on_frame(memoryview(bytes(self._buffer[start:position])))
        left = self._filled - position
        self._buffer[:left] = bytes(self._buffer[position : self._filled])
        self._filled = left


# Requests of one connection that wait for their responses, each with a time limit.
#
# `asyncio.timeout` makes and cancels a timer for each request. Here one timer stays until the earliest deadline,
# whether or not that request still waits, and then fails the requests that are late. A response that is in time, as
# almost all are, costs no timer.
#
# Owner: event loop.


class _Pending(NamedTuple):
    arrival: asyncio.Future[memoryview]
    deadline_s: float
    """On the loop's clock."""


class PendingResponses:
    """Responses by correlation id; call `close` at the end."""

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, correlation_id: int, timeout_ms: int) -> asyncio.Future[memoryview]:
        """Return the frame of a response, or TimeoutError; the caller calls `forget` when it has it."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        arrival: asyncio.Future[memoryview] = loop.create_future()
        self._pending[correlation_id] = _Pending(arrival, deadline_s)
        if self._timer is None or deadline_s < self._timer.when():
            self._arm(loop, deadline_s)
        return arrival

    def forget(self, correlation_id: int) -> None:
        """Forget the request, which does not wait any more."""
        self._pending.pop(correlation_id, None)

    def arrived(self, correlation_id: int, frame: memoryview) -> None:
        """Pass the frame to its request; one for which no request waits is ignored."""
        pending = self._pending.get(correlation_id)
        if pending is not None and not pending.arrival.done():
            pending.arrival.set_result(frame)

    def close(self, error: Exception) -> None:
        """Fail all requests that wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for pending in self._pending.values():
            if not pending.arrival.done():
                pending.arrival.set_exception(copy_of(error))

    def _arm(self, loop: asyncio.AbstractEventLoop, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(deadline_s, self._expire, loop, deadline_s)

    def _expire(self, loop: asyncio.AbstractEventLoop, deadline_s: float) -> None:
        self._timer = None
        now_s = max(loop.time(), deadline_s)  # A loop calls up to the resolution of its clock too early.
        waiting = [pending for pending in self._pending.values() if not pending.arrival.done()]
        for pending in waiting:
            if pending.deadline_s <= now_s:
                pending.arrival.set_exception(TimeoutError())
        later = [pending.deadline_s for pending in waiting if pending.deadline_s > now_s]
        if later:
            self._arm(loop, min(later))

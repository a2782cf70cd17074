"""Cuts frames out of what arrives, and copies large ones no more often than they have to be.

Small frames come through a buffer of fixed size.  Of a frame that does not fit into what has arrived the size is known
by then, so the kernel writes the rest of it where it stays: a follower takes a megabyte at a time this way.  The memory
of a large frame is used again once nobody holds a view of it: fresh memory would have to be zeroed first.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Callable

from kctl.client.framing import SIZE
from kctl.limits import RESPONSE_BYTES_MAX

_BUFFER_BYTES = 65_536
_REUSABLE_BYTES_MAX = 16 << 20
"""Above the 10 MiB of replica.fetch.response.max.bytes; a larger frame gets memory for itself."""
_WASTE_MAX = 4
"""No frame gets more than so many times the memory that it needs: who keeps a view of it keeps all of that."""


class _FrameMemory:
    """Memory for one frame at a time, page-aligned: some processors fill that several times faster than a bytearray."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: mmap.mmap | None = None

    def take(self, size: int) -> memoryview:
        """So many bytes that nobody else uses, whatever they hold; they stay taken while there is a view of them."""
        pages = self._pages
        if pages is None or len(pages) < size or _is_viewed(pages):
            needed = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            pages = mmap.mmap(-1, needed, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if size <= _REUSABLE_BYTES_MAX:
                self._pages = pages
        elif len(pages) > size * _WASTE_MAX:
            return memoryview(bytearray(size))
        return memoryview(pages)[:size]


def _is_viewed(pages: mmap.mmap) -> bool:
    """Whether there is a view: then the memory may not move, and resizing it is refused even to the size it has."""
    try:
        pages.resize(len(pages))
    except BufferError:
        return True
    except SystemError:  # No mremap here, so nobody can tell.
        return True
    return False


class FrameReceiver(asyncio.BufferedProtocol):
    """`on_frame` gets each frame without its size, as a view of bytes that nobody else uses.

    `on_lost` gets the reason once nothing more arrives: an OSError, None when the other side closed the connection, or
    the size (int) of something that is no frame.  It may be called more than once; the first reason is the true one.
    """

    def __init__(self, on_frame: Callable[[memoryview], None], on_lost: Callable[[OSError | int | None], None]) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        self._memory = _FrameMemory()
        self._frame: memoryview | None = None
        """A frame that is larger than what has arrived of it."""
        self._frame_filled = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        if self._frame is not None:
            return self._frame[self._frame_filled :]
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """So many more bytes are there."""
        if self._frame is None:
            self._filled += nbytes
            self._cut()
            return
        self._frame_filled += nbytes
        if self._frame_filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._on_frame(frame)

    def eof_received(self) -> None:
        self._on_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost(exc if isinstance(exc, OSError) else None)
        self._writable.set()
        self._closed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def write(self, chunks: list[bytes | bytearray | memoryview]) -> None:
        """Sends the chunks as one."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(chunks)

    async def drain(self) -> None:
        """Waits while the other side takes nothing; returns too when the connection is lost."""
        await self._writable.wait()

    def close(self) -> None:
        """Hangs up after what was written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Hangs up at once; what was not sent yet is lost."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Returns when the connection is gone."""
        if self._transport is not None:
            await self._closed.wait()

    def _cut(self) -> None:
        position = 0
        while self._filled - position >= SIZE.size:
            (size,) = SIZE.unpack_from(self._buffer, position)
            if not 0 <= size <= RESPONSE_BYTES_MAX:
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

"""Bytes from a socket, cut into frames.

A frame is a 32-bit length and that many bytes.  The buffer is anonymous memory: page-aligned, which the kernel fills
several times faster than a bytearray on some processors, and resident only as far as it was ever used.

Owner: event loop.
"""

from __future__ import annotations

import mmap
import socket
import struct

from kctl.errors import MalformedRequest

_LENGTH = struct.Struct(">i")
_BUFFER_BYTES = 1 << 20
_RETAINED_BYTES_MAX = 8 << 20


class Inbox:
    """The receive buffer of one connection; frames are views into it, valid until the next `receive`."""

    __slots__ = ("_buffer", "_end", "_frame_bytes_max", "_start", "_view")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = mmap.mmap(-1, _BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

    def receive(self, sock: socket.socket) -> int:
        """Reads once from a non-blocking socket; 0 means that the peer has closed.  Raises OSError."""
        if self._start == self._end:
            self._start = self._end = 0
        received = sock.recv_into(self._view[self._end :])
        self._end += received
        return received

    @property
    def is_full(self) -> bool:
        """Whether nothing more can be received before a frame is taken out."""
        return self._end == len(self._view)

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, or None when more bytes are needed, for which room is made.

        Raises MalformedRequest for a length that is negative or above socket.request.max.bytes.
        """
        start = self._start
        available = self._end - start
        if available < 4:
            if len(self._view) - start < 4:
                self._compact(_BUFFER_BYTES)
            return None
        (size,) = _LENGTH.unpack_from(self._view, start)
        if size < 0 or size > self._frame_bytes_max:
            raise MalformedRequest(f"frame of {size} bytes; socket.request.max.bytes is {self._frame_bytes_max}")
        if available < 4 + size:
            if len(self._view) - start < 4 + size:
                self._compact(4 + size)
            return None
        self._start = start + 4 + size
        return self._view[start + 4 : self._start]

    def _compact(self, needed: int) -> None:
        """Moves what is left to the front, of a larger buffer if the frame needs one."""
        left = bytes(self._view[self._start : self._end])
        size = len(self._view)
        if needed > size or size > _RETAINED_BYTES_MAX >= needed:
            # Views of the old buffer may still be alive in a waiting request; it goes when they do.
            self._buffer = mmap.mmap(-1, max(_BUFFER_BYTES, -(-needed // mmap.PAGESIZE) * mmap.PAGESIZE))
            self._view = memoryview(self._buffer)
        self._view[: len(left)] = left
        self._start, self._end = 0, len(left)

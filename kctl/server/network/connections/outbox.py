"""Bytes and file slices to be sent to a socket: gathered into few system calls, long file slices by sendfile.

See tls_outbox for connections with TLS.

Owner: event loop.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Generic, Protocol, TypeVar, runtime_checkable

from kctl.limits import Subject, bound
from kctl.system.operating_system import MSG_MORE, send_file

UNREAD_RESPONSE_BYTES_MAX = bound(
    Subject.CONNECTIONS,
    "responses in memory that clients have not read, over all connections; records in files are not counted",
    512 << 20,
    "bytes",
    on_excess="connections are closed, first those whose clients have not read for the longest time",
)
FLUSH_BYTES_MAX = bound(
    Subject.CONNECTIONS,
    "bytes sent to one connection in a row",
    8 << 20,
    "bytes",
    on_excess="the other connections get their turn first",
)
SEND_BYTES_MAX = bound(
    Subject.CONNECTIONS,
    "bytes from memory given to the operating system in one call",
    1 << 20,
    "bytes",
    on_excess="further calls send the rest",
)
"""While the peer reads, Linux takes more than its send buffer holds: 23 MB in one call, which took 12 ms."""


_GATHER_MAX = 512
"""Chunks for one sendmsg; Linux takes 1,024."""
_IN_MEMORY = (bytes, bytearray, memoryview)
_READ_BYTES_MAX = 1 << 13
"""A slice of at most this size is read: one call to read it and one to send the response, instead of one for the bytes
before, one for the slice and one for the bytes after.
"""
_JOINED_BYTES_MAX = 1 << 14
"""Chunks of at most this size in all are copied into one: sendmsg takes longer than send and the copy."""


@runtime_checkable
class FileSlice(Protocol):
    """A range of an open file, as storage returns it; keeps the file open."""

    position: int
    size: int

    def fileno(self) -> int:
        """Return the descriptor of the file, for sendfile."""
        ...

    def __len__(self) -> int: ...


Chunk = bytes | bytearray | memoryview | FileSlice


class SliceLeft:
    """The range of a slice that has not been sent."""

    __slots__ = ("position", "remaining", "source")

    def __init__(self, source: FileSlice) -> None:
        self.source = source
        self.position = source.position
        self.remaining = source.size


class Outbox(ABC):
    """The queue of one connection, in order."""

    __slots__ = ("_chunks", "_sent")

    def __init__(self) -> None:
        self._sent = 0
        """Bytes sent by the current flush."""
        self._chunks: deque[bytes | bytearray | memoryview | SliceLeft] = deque()

    def put(self, chunks: Iterable[Chunk]) -> int:
        """Queue; nothing is sent before `flush`.  Return the size of the chunks in bytes."""
        size = 0
        for chunk in chunks:
            chunk_bytes = len(chunk)
            if chunk_bytes:
                size += chunk_bytes
                self._chunks.append(chunk if isinstance(chunk, _IN_MEMORY) else self._queued(chunk))
        return size

    def _queued(self, chunk: FileSlice) -> bytes | SliceLeft:
        """Return the queue entry of a file slice."""
        return SliceLeft(chunk)

    @property
    def memory_bytes(self) -> int:
        """Size of the queued chunks that are in memory, not in files."""
        return sum(len(chunk) for chunk in self._chunks if not isinstance(chunk, SliceLeft))

    def clear(self) -> None:
        """Discard the queue."""
        self._chunks.clear()

    def flush(self) -> bool:
        """Send as much as the socket takes, up to FLUSH_BYTES_MAX; return whether nothing is left.

        Raises OSError when the peer is gone.
        """
        chunks = self._chunks
        self._sent = 0
        try:
            while chunks and self._sent < FLUSH_BYTES_MAX:
                head = chunks[0]
                done = self._send_slice(head) if isinstance(head, SliceLeft) else self._send_bytes()
                if not done:
                    return False
        except BlockingIOError:
            return False
        return not chunks

    @abstractmethod
    def _send_bytes(self) -> bool:
        """Send some or all chunks before the next slice; return whether more may be sent in this flush."""

    @abstractmethod
    def _send_slice(self, left: SliceLeft) -> bool:
        """Send some or all of the slice at the head; return whether more may be sent in this flush."""


class PlainOutbox(Outbox):
    """Sends to a socket without TLS."""

    __slots__ = ("_sock",)

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock

    def _queued(self, chunk: FileSlice) -> bytes | SliceLeft:
        if chunk.size <= _READ_BYTES_MAX:
            try:
                read = os.pread(chunk.fileno(), chunk.size, chunk.position)
            except OSError:  # Sending the slice reports it.
                return SliceLeft(chunk)
            if len(read) == chunk.size:
                return read
        return SliceLeft(chunk)

    def flush(self) -> bool:
        """See Outbox.flush."""
        chunks = self._chunks
        if len(chunks) > 1:
            self._join_small()
        if len(chunks) != 1 or isinstance(chunks[0], SliceLeft):
            return super().flush()
        head = chunks[0]  # Of most responses, all there is.
        if len(head) > SEND_BYTES_MAX:
            return super().flush()
        try:
            sent = self._sock.send(head)
        except BlockingIOError:
            return False
        if sent < len(head):
            chunks[0] = memoryview(head)[sent:]
            return False
        chunks.clear()
        return True

    def _join_small(self) -> None:
        """Make one chunk of those that are queued, if they are short and none is a file slice."""
        chunks = self._chunks
        parts: list[bytes | bytearray | memoryview] = []
        size = 0
        for chunk in chunks:
            if isinstance(chunk, SliceLeft):
                return
            size += len(chunk)
            if size > _JOINED_BYTES_MAX:
                return
            parts.append(chunk)
        chunks.clear()
        chunks.append(b"".join(parts))

    def _send_bytes(self) -> bool:
        chunks = self._chunks
        gathered: list[bytes | bytearray | memoryview] = []
        flags, left = 0, SEND_BYTES_MAX
        for chunk in islice(chunks, _GATHER_MAX):
            if isinstance(chunk, SliceLeft):
                flags = MSG_MORE
                break
            if len(chunk) >= left:
                gathered.append(memoryview(chunk)[:left])
                left = 0
                break
            gathered.append(chunk)
            left -= len(chunk)
        sent = self._sock.send(gathered[0], flags) if len(gathered) == 1 else self._sock.sendmsg(gathered, (), flags)
        self._sent += sent
        is_full = sent < SEND_BYTES_MAX - left
        while sent:
            head = chunks[0]
            assert not isinstance(head, SliceLeft)
            if sent < len(head):
                chunks[0] = memoryview(head)[sent:]
                break
            sent -= len(head)
            chunks.popleft()
        return not is_full

    def _send_slice(self, left: SliceLeft) -> bool:
        sent = send_file(self._sock.fileno(), left.source.fileno(), left.position, min(left.remaining, FLUSH_BYTES_MAX))
        if sent == 0:
            raise ConnectionAbortedError("the file ended before its slice did")
        self._sent += sent
        left.position += sent
        left.remaining -= sent
        if left.remaining:
            # The socket is full; other connections get a turn.
            return False
        self._chunks.popleft()
        return True


# Responses in memory whose clients do not read them, over all connections.
#
# Each connection has few responses in memory, but thousands of connections that do not read would use up the memory.
# Beyond the bound those that have not read anything for the longest time are closed.
#
# Owner: event loop.


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
        """Note that the socket of the connection takes no more; `size_bytes` remain in memory."""
        self._blocked[connection] = size_bytes
        self._total_bytes += size_bytes
        while self._total_bytes > self._bytes_max:
            oldest = next(iter(self._blocked))
            self.resumed(oldest)
            self._on_excess(oldest)

    def progressed(self, connection: C) -> None:
        """Note that the client has read something."""
        size_bytes = self._blocked.pop(connection, None)
        if size_bytes is not None:
            self._blocked[connection] = size_bytes

    def resumed(self, connection: C) -> None:
        """Everything has been sent, or the connection is closed."""
        self._total_bytes -= self._blocked.pop(connection, 0)

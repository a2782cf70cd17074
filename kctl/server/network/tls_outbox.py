"""The outbox of a TLS connection.

Small chunks are joined, because each record costs a header and a tag.  File slices are read in pieces into a buffer
that all connections share.

Owner: event loop.
"""

from __future__ import annotations

from kctl.operating_system import read_into
from kctl.server.network.outbox import Outbox, SliceLeft
from kctl.server.network.tls_stream import TlsStream

_shared = memoryview(bytearray(1 << 17))
"""Joined chunks and pieces of files, which are encrypted and sent together."""


class TlsOutbox(Outbox):
    """Sends records of at most 16 KiB."""

    __slots__ = ("_stream",)

    def __init__(self, stream: TlsStream) -> None:
        super().__init__()
        self._stream = stream

    @property
    def memory_bytes(self) -> int:
        """Size of the queued chunks that are in memory, and of encrypted bytes."""
        return super().memory_bytes + self._stream.unsent_bytes

    def flush(self) -> bool:
        """See Outbox.flush."""
        return self._stream.flush() and super().flush()

    def _send_bytes(self) -> bool:
        head = self._chunks[0]
        assert not isinstance(head, SliceLeft)
        if len(head) < len(_shared):
            return self._send_joined()
        data = memoryview(head)[: len(_shared)]
        self._drop(len(data))
        return self._stream.send(data)

    def _send_slice(self, left: SliceLeft) -> bool:
        return self._send_joined()

    def _send_joined(self) -> bool:
        size = self._fill()
        self._drop(size)
        return self._stream.send(_shared[:size])

    def _fill(self) -> int:
        """Copies the next bytes into the shared buffer; returns how many."""
        size = 0
        for chunk in self._chunks:
            room = len(_shared) - size
            if not room:
                break
            if not isinstance(chunk, SliceLeft):
                part = chunk[:room]
                _shared[size : size + len(part)] = part
                size += len(part)
                continue
            piece_bytes = min(room, chunk.remaining)
            if read_into(chunk.source.fileno(), _shared[size : size + piece_bytes], chunk.position) < piece_bytes:
                raise ConnectionAbortedError("the file ended before its slice did")
            size += piece_bytes
        return size

    def _drop(self, sent: int) -> None:
        """Removes encrypted bytes from the queue."""
        self._sent += sent
        chunks = self._chunks
        while sent:
            head = chunks[0]
            if isinstance(head, SliceLeft):
                done = min(sent, head.remaining)
                head.position += done
                head.remaining -= done
                is_done = not head.remaining
            else:
                done = min(sent, len(head))
                is_done = done == len(head)
                if not is_done:
                    chunks[0] = memoryview(head)[done:]
            sent -= done
            if is_done:
                chunks.popleft()

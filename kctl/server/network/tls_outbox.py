"""The outbox of a TLS connection.

Small chunks are joined, because each record costs a header, a tag and a system call.  File slices are read in pieces
into a buffer that all connections share; if the kernel encrypts (kTLS), they are sent by sendfile.

Owner: event loop.
"""

from __future__ import annotations

from kctl.operating_system import read_into
from kctl.server.network.outbox import Outbox, SliceLeft
from kctl.server.network.tls_stream import TlsStream

_RECORD_BYTES_MAX = 1 << 14
_shared = memoryview(bytearray(1 << 17))
"""The size of the buffer for joined chunks and pieces of files.

If the socket is full, OpenSSL keeps the record that it has encrypted, and the next call must pass at least the same
bytes again.  They are then joined and read again: the chunks at the head do not change until they have been sent.
"""


class TlsOutbox(Outbox):
    """Sends records of at most 16 KiB."""

    __slots__ = ("_has_sendfile", "_stream")

    def __init__(self, stream: TlsStream) -> None:
        super().__init__()
        self._stream = stream
        self._has_sendfile = stream.is_encrypted_by_kernel

    def _send_bytes(self) -> bool:
        head = self._chunks[0]
        assert not isinstance(head, SliceLeft)
        if len(head) >= _RECORD_BYTES_MAX:
            self._drop(self._stream.send(head))
        else:
            self._send_joined()
        return True

    def _send_slice(self, left: SliceLeft) -> bool:
        if self._has_sendfile:
            return self._send_file(self._stream.fileno(), left)
        self._send_joined()
        return True

    def _send_joined(self) -> None:
        size = self._fill()
        done = 0
        while done < size:
            sent = self._stream.send(_shared[done:size])
            done += sent
            self._drop(sent)

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
            if self._has_sendfile:
                break
            piece_bytes = min(room, chunk.remaining)
            if read_into(chunk.source.fileno(), _shared[size : size + piece_bytes], chunk.position) < piece_bytes:
                raise ConnectionAbortedError("the file ended before its slice did")
            size += piece_bytes
        return size

    def _drop(self, sent: int) -> None:
        """Removes sent bytes from the queue."""
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

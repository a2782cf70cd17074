"""A TLS connection on a non-blocking socket, with the methods of a socket that a Connection uses.

OpenSSL works on buffers in memory, not on the socket: there it needs two system calls for each record that it reads,
and some clients send records of a few bytes.  Here one call receives many records, and one sends many.

Owner: event loop.
"""

from __future__ import annotations

import contextlib
import socket
import ssl

from kctl.limits import Subject, bound
from kctl.server.network.connections.outbox import Outbox, SliceLeft
from kctl.system.operating_system import private_pages, read_into

TLS_HANDSHAKE_BYTES_MAX = bound(
    Subject.CONNECTIONS,
    "bytes from a client in one TLS handshake; the certificates of a chain take 0.1 ms each to read",
    1 << 15,
    "bytes",
    on_excess="the connection is closed",
)
"""As in Java: jdk.tls.maxHandshakeMessageSize.  OpenSSL reads 100 KB of certificates, which take it 60 ms."""
TLS_RECEIVE_BYTES_MAX = bound(
    Subject.CONNECTIONS,
    "bytes of one TLS connection that are received and decrypted in a row",
    1 << 18,
    "bytes",
    on_excess="other connections are served first",
)
TLS_RECORDS_MAX = bound(
    Subject.CONNECTIONS,
    "records of one TLS connection that are decrypted in a row; a client may change its keys with each",
    250,
    "records",
    on_excess="other connections are served first",
)
TLS_UNSENT_BYTES_MAX = bound(
    Subject.CONNECTIONS,
    "encrypted bytes that one TLS connection holds until its client reads them",
    1 << 18,
    "bytes",
    on_excess="responses are encrypted later; a client that makes TLS itself send more is disconnected",
)


_incoming, _outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
"""What OpenSSL reads and writes.  All connections share these buffers, because they never shrink; each method that
calls OpenSSL leaves them empty.
"""

_HEADER_BYTES = 5
"""The size of the header of a record: its type, the version, and in the last two bytes the size of the rest."""
_HANDSHAKE_BYTES_MAX = 1 << 14
"""Received at a time during a handshake: a refused client makes the broker hold the rest of them."""
_received = memoryview(private_pages(TLS_RECEIVE_BYTES_MAX))


class TlsStream:
    """Takes over an accepted socket; `handshake` comes first."""

    __slots__ = (
        "_handshake_bytes_left",
        "_has_ended",
        "_has_records",
        "_sock",
        "_tls",
        "_to_next_record",
        "_undecrypted",
        "_unsent",
    )

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        self._tls = context.wrap_bio(_incoming, _outgoing, server_side=True)
        self._undecrypted = b""
        """Received bytes that OpenSSL does not have: records for later, or a part of the header of the next record."""
        self._has_records = False
        """Whether they are records."""
        self._to_next_record = 0
        """How many more bytes the last record has that OpenSSL has received a part of."""
        self._unsent: memoryview | bytes = b""
        """Encrypted bytes that the socket has not taken."""
        self._has_ended = False
        self._handshake_bytes_left = TLS_HANDSHAKE_BYTES_MAX

    def fileno(self) -> int:
        """Return the descriptor, for the event loop; -1 after `close`."""
        return self._sock.fileno()

    def handshake(self) -> None:
        """Continue the handshake with the bytes of one system call.

        Raises ssl.SSLWantReadError and ssl.SSLWantWriteError when it has to wait, OSError when it fails; `half_close`
        and `close` then send the alert with the reason.
        """
        has_received = False
        while True:
            try:
                self._tls.do_handshake()
                has_finished = True
            except ssl.SSLWantReadError:
                has_finished = False
            finally:
                self._empty_buffers()
            if not self.flush():
                raise ssl.SSLWantWriteError
            if has_finished:
                return
            if self._has_records:
                self._pass_on(b"")
                continue
            if has_received:
                raise ssl.SSLWantReadError
            has_received = True
            if not self._handshake_bytes_left:
                raise ConnectionAbortedError(f"more than {TLS_HANDSHAKE_BYTES_MAX} bytes in the handshake")
            try:
                size = self._sock.recv_into(_received, min(self._handshake_bytes_left, _HANDSHAKE_BYTES_MAX))
            except BlockingIOError:
                raise ssl.SSLWantReadError from None
            if not size:
                raise ssl.SSLEOFError
            self._handshake_bytes_left -= size
            self._pass_on(_received[:size])

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the client, DER encoded; None if it sent none."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def has_pending(self) -> bool:
        """Whether more bytes, or the end, have been received already; the loop does not report them as readable."""
        return self._has_ended or self._has_records or self._tls.pending() > 0

    def recv_into(self, buffer: memoryview) -> int:
        """Receive up to TLS_RECEIVE_BYTES_MAX in up to TLS_RECORDS_MAX records; 0 at the end of the connection.

        Raises BlockingIOError if nothing has arrived, OSError if the connection has failed.
        """
        if self.has_pending:
            self._pass_on(b"")
        else:
            size = self._sock.recv_into(_received, min(len(buffer), TLS_RECEIVE_BYTES_MAX))
            self._pass_on(_received[:size])
            self._has_ended = not size
        try:
            count = self._decrypt(buffer)
        finally:
            self._empty_buffers()
        self.flush()  # Alerts and changes of keys, which reading may cause.
        if not count and not self._has_ended:
            raise BlockingIOError
        return count

    def _pass_on(self, received: memoryview | bytes) -> None:
        """Pass bytes to OpenSSL, at most TLS_RECORDS_MAX records, and keep the rest.

        A record without data can take 30 us: in 256 KB there are 10,000 changes of keys.
        """
        data: memoryview | bytes = self._undecrypted + received if self._undecrypted else received
        end, size, count = self._to_next_record, len(data), 0
        while end + _HEADER_BYTES <= size and count < TLS_RECORDS_MAX:
            end += _HEADER_BYTES + (data[end + 3] << 8) + data[end + 4]
            count += 1
        self._has_records = end + _HEADER_BYTES <= size
        self._to_next_record = max(end - size, 0)
        self._undecrypted = bytes(data[end:])
        _incoming.write(data[:end])

    def _decrypt(self, buffer: memoryview) -> int:
        """Decrypt until the buffer is full or more bytes are needed; return the number of bytes."""
        if self._has_ended:
            return 0
        count, size = 0, len(buffer)
        # The method of OpenSSL's object: its wrapper is a further call for each record, which may have a few bytes.
        read = self._tls._sslobj.read  # type: ignore[attr-defined] # noqa: SLF001
        try:
            while count < size:
                part = read(size - count, buffer[count:])  # One record.
                if not part:
                    self._has_ended = True
                    break
                count += part
        except ssl.SSLWantReadError:
            pass
        except OSError:
            self._has_ended = True  # The bytes before the failure are processed first.
        return count

    def _empty_buffers(self) -> None:
        if _incoming.pending:  # From the beginning of a record on: OpenSSL reads no bytes ahead.
            self._undecrypted = _incoming.read() + self._undecrypted
            self._has_records, self._to_next_record = True, 0
        if _outgoing.pending:
            self._unsent = bytes(self._unsent) + _outgoing.read() if self._unsent else _outgoing.read()

    def send(self, data: memoryview) -> bool:
        """Encrypt everything and send what the socket takes; return whether that is all.

        If not, `flush` sends the rest, and must have succeeded before the next call.
        """
        done = 0
        try:
            while done < len(data):
                done += self._tls.write(data[done:])  # One record.
        finally:
            self._empty_buffers()
        return self.flush()

    @property
    def unsent_bytes(self) -> int:
        """Size of the encrypted bytes that the socket has not taken."""
        return len(self._unsent)

    def flush(self) -> bool:
        """Send encrypted bytes; return whether none are left.

        Raises OSError when the peer is gone, or does not read what it makes the broker send.
        """
        if not self._unsent:
            return True
        with contextlib.suppress(BlockingIOError):
            sent = self._sock.send(self._unsent)
            self._unsent = memoryview(self._unsent)[sent:] if sent < len(self._unsent) else b""
        if len(self._unsent) > TLS_UNSENT_BYTES_MAX:
            raise ConnectionAbortedError("the client does not read the answers to its TLS messages")
        return not self._unsent

    def half_close(self) -> None:
        """End what is sent, after the alert of a failed handshake or after close_notify; call `discard` then."""
        self._notify_close()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def discard(self) -> int:
        """Drop bytes that the client has sent after `half_close`, and return how many; 0 at the end.

        Raises BlockingIOError if nothing has arrived, and other OSErrors.
        """
        return self._sock.recv_into(_received)

    def close(self) -> None:
        """Send close_notify, which shows that no bytes are missing, if the socket has room for it, and close."""
        self._notify_close()
        self._sock.close()

    def _notify_close(self) -> None:
        try:
            with contextlib.suppress(OSError):
                self._tls.unwrap()
        finally:
            self._empty_buffers()
        with contextlib.suppress(OSError):
            self.flush()


# The outbox of a TLS connection.
#
# Small chunks are joined, because each record costs a header and a tag. File slices are read in pieces into a buffer
# that all connections share.
#
# Owner: event loop.


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
        """Copy the next bytes into the shared buffer; return how many."""
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
        """Remove encrypted bytes from the queue."""
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

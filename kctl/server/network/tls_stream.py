"""A TLS connection on a non-blocking socket, with the methods of a socket that a Connection uses.

OpenSSL works on buffers in memory, not on the socket: there it needs two system calls for each record that it reads, and
clients send records of some bytes.  Here one call receives many records, and one sends many.

Owner: event loop.
"""

from __future__ import annotations

import contextlib
import mmap
import socket
import ssl

from kctl.limits import TLS_RECEIVE_BYTES_MAX, TLS_UNSENT_BYTES_MAX

_RECORD_BYTES_MAX = 1 << 14
"""OpenSSL's buffers in memory never shrink, so they are given little more than one record at a time."""
_received = memoryview(mmap.mmap(-1, TLS_RECEIVE_BYTES_MAX))
"""Encrypted bytes of the connection that receives at the moment."""


class TlsStream:
    """Takes over an accepted socket; `handshake` comes first."""

    __slots__ = ("_has_ended", "_incoming", "_outgoing", "_sock", "_tls", "_unsent")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent: list[bytes | memoryview] = []
        """Encrypted bytes that the socket has not taken."""
        self._has_ended = False

    def fileno(self) -> int:
        """The descriptor, for the event loop; -1 after `close`."""
        return self._sock.fileno()

    def handshake(self) -> None:
        """Continues the handshake.  Raises ssl.SSLWantReadError and ssl.SSLWantWriteError when it has to wait, OSError
        when it fails.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush_handshake()
                try:
                    size = self._sock.recv_into(_received, _RECORD_BYTES_MAX)
                except BlockingIOError:
                    raise ssl.SSLWantReadError from None
                self._feed(_received[:size])
            except OSError:
                with contextlib.suppress(OSError):
                    self.flush()  # The alert.
                raise
            else:
                self._flush_handshake()
                return

    def _flush_handshake(self) -> None:
        if not self.flush():
            raise ssl.SSLWantWriteError

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the client, DER encoded; None if it sent none."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def has_pending(self) -> bool:
        """Whether more bytes, or the end, have been received already; the loop does not report them as readable."""
        return self._has_ended or self._incoming.pending > 0 or self._tls.pending() > 0

    def recv_into(self, buffer: memoryview) -> int:
        """Receives up to TLS_RECEIVE_BYTES_MAX; 0 at the end of the connection.

        Raises BlockingIOError if nothing has arrived, OSError if the connection has failed.
        """
        if self.has_pending:
            count = self._decrypt(buffer)
        else:
            count = 0
            size = self._sock.recv_into(_received, min(len(buffer), TLS_RECEIVE_BYTES_MAX))
            for start in range(0, size or 1, _RECORD_BYTES_MAX):
                self._feed(_received[start : min(start + _RECORD_BYTES_MAX, size)])
                count += self._decrypt(buffer[count:])
        if self._outgoing.pending:
            self.flush()  # Alerts and changes of keys, which reading has caused.
        if not count and not self._has_ended:
            raise BlockingIOError
        return count

    def _feed(self, received: memoryview) -> None:
        if received:
            self._incoming.write(received)
        else:
            self._incoming.write_eof()

    def _decrypt(self, buffer: memoryview) -> int:
        """Decrypts until the buffer is full or more bytes are needed; returns the number of bytes."""
        count, size = 0, len(buffer)
        read = self._tls.read
        try:
            while count < size and not self._has_ended:
                part = read(size - count, buffer[count:])  # One record.
                count += part
                self._has_ended = not part
        except ssl.SSLWantReadError:
            pass
        except OSError:
            self._has_ended = True  # The bytes before the failure are processed first.
        return count

    def send(self, data: memoryview) -> bool:
        """Encrypts everything and sends what the socket takes; returns whether that is all.

        If not, `flush` sends the rest, and must have succeeded before the next call.
        """
        for start in range(0, len(data), _RECORD_BYTES_MAX):
            self._tls.write(data[start : start + _RECORD_BYTES_MAX])
            self._unsent.append(self._outgoing.read())
        return self.flush()

    @property
    def unsent_bytes(self) -> int:
        """Size of the encrypted bytes that the socket has not taken."""
        return sum(map(len, self._unsent))

    def flush(self) -> bool:
        """Sends encrypted bytes; returns whether none are left.

        Raises OSError when the peer is gone or does not read what it makes the broker send.
        """
        unsent = self._unsent
        if self._outgoing.pending:
            unsent.append(self._outgoing.read())
        if not unsent:
            return True
        try:
            sent = self._sock.sendmsg(unsent)
        except BlockingIOError:
            sent = 0
        done = 0
        for data in unsent:
            if sent < len(data):
                break
            sent -= len(data)
            done += 1
        del unsent[:done]
        if not unsent:
            return True
        unsent[0] = memoryview(unsent[0])[sent:]
        if self.unsent_bytes > TLS_UNSENT_BYTES_MAX:
            raise ConnectionAbortedError("the client does not read the answers to its TLS messages")
        return False

    def half_close(self) -> None:
        """Ends what is sent, after the alert of a failed handshake or after close_notify; call `discard` then."""
        self._notify_close()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def discard(self) -> int:
        """Drops bytes that the client has sent after `half_close`, and returns how many; 0 at the end.

        Raises BlockingIOError if nothing has arrived, and other OSErrors.
        """
        return self._sock.recv_into(_received, _RECORD_BYTES_MAX)

    def close(self) -> None:
        """Sends close_notify, which shows that no bytes are missing, if the socket has room for it, and closes."""
        self._notify_close()
        self._sock.close()

    def _notify_close(self) -> None:
        with contextlib.suppress(OSError):
            self._tls.unwrap()
        with contextlib.suppress(OSError):
            self.flush()

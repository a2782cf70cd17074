"""A TLS connection on a non-blocking socket, with the methods of a socket that a Connection uses.

Owner: event loop.
"""

from __future__ import annotations

import contextlib
import socket
import ssl

from kctl.limits import TLS_RECEIVE_BYTES_MAX

_SOL_TLS = 282
_TLS_TX = 1
"""Linux: linux/tls.h."""
_DISCARDED_BYTES = 16_384


class TlsStream:
    """Wraps an accepted socket; `handshake` comes first."""

    __slots__ = ("_has_ended", "_tls")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        """Takes over the socket.  Raises OSError if it is not connected any more."""
        self._has_ended = False
        self._tls = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def fileno(self) -> int:
        """The descriptor, for the event loop; -1 after `close`."""
        return self._tls.fileno()

    def handshake(self) -> None:
        """Continues the handshake.  Raises ssl.SSLWantReadError and ssl.SSLWantWriteError when it has to wait, OSError
        when it fails.
        """
        self._tls.do_handshake()

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the client, DER encoded; None if it sent none."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def is_encrypted_by_kernel(self) -> bool:
        """Whether the kernel encrypts what is sent (kTLS), so that sendfile works."""
        try:
            return bool(self._tls.getsockopt(_SOL_TLS, _TLS_TX, 4))
        except OSError:
            return False

    @property
    def has_pending(self) -> bool:
        """Whether received bytes, or the end, are decrypted already; the loop does not report them as readable."""
        return self._has_ended or self._tls.pending() > 0

    def recv_into(self, buffer: memoryview) -> int:
        """Receives until the buffer is full, up to TLS_RECEIVE_BYTES_MAX; 0 at the end of the connection.

        OpenSSL returns one record of at most 16 KiB at a time.  Raises BlockingIOError if nothing has arrived.
        """
        size = min(len(buffer), TLS_RECEIVE_BYTES_MAX)
        received = 0
        try:
            while received < size:
                count = self._tls.recv_into(buffer[received:size])
                if not count:
                    self._has_ended = True
                    break
                received += count
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not received:
                raise BlockingIOError from None
        except OSError:
            if not received:
                raise
            self._has_ended = True  # The bytes before the failure are processed first; the next call fails again.
        return received

    def send(self, chunk: bytes | bytearray | memoryview) -> int:
        """Sends the first bytes, at most one record.  Raises BlockingIOError when the socket is full."""
        try:
            return self._tls.send(chunk)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def half_close(self) -> None:
        """Ends what is sent, after the alert of a failed handshake or after close_notify; call `discard` then."""
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        with contextlib.suppress(OSError):
            self._tls.shutdown(socket.SHUT_WR)

    def discard(self) -> int:
        """Drops bytes that the client has sent after `half_close`, and returns how many; 0 at the end.

        Raises BlockingIOError if nothing has arrived, and other OSErrors.
        """
        return len(self._tls.recv(_DISCARDED_BYTES))

    def close(self) -> None:
        """Sends close_notify, which shows that no bytes are missing, if the socket has room for it, and closes."""
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        self._tls.close()

"""TLS handshakes of accepted sockets, before they become connections.

A handshake computes a signature, about a millisecond, and reads the certificates of the client, which takes longer if
they are many, so only a few steps run in one iteration of the event loop.  A client has a deadline and sends a limited
number of bytes, and above a number of unfinished handshakes the oldest is closed.  A client that sends nothing uses
only a socket: memory for TLS is allocated after its first byte.

A client of TLS 1.3 may have sent requests before the broker refuses its certificate.  Closing a socket with unread
bytes resets the connection, and the client loses the alert with the reason.  So the broker reads from a refused client
for a limited time, and drops the bytes.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from kctl.errors import KctlError
from kctl.limits import Subject, bound
from kctl.output.log_lines import by_peer
from kctl.server.network.tls.stream import TlsStream
from kctl.server.requests.context import Peer

TLS_HANDSHAKE_TIMEOUT_MS = bound(
    Subject.CONNECTIONS,
    "time for a TLS handshake",
    10_000,
    "ms",
    on_excess="the connection is closed",
)
TLS_HANDSHAKES_MAX = bound(
    Subject.CONNECTIONS,
    "unfinished TLS handshakes",
    1_024,
    "connections",
    on_excess="the oldest one is closed",
)
TLS_REFUSED_MS_MAX = bound(
    Subject.CONNECTIONS,
    "time for a client whose TLS handshake is refused to read the reason and close",
    2_000,
    "ms",
    on_excess="the connection is closed, and the client may see no reason",
)
TLS_REFUSED_BYTES_MAX = bound(
    Subject.CONNECTIONS,
    "bytes that are received and dropped from a client whose TLS handshake is refused",
    65_536,
    "bytes",
    on_excess="the connection is closed, and the client may see no reason",
)
TLS_HANDSHAKE_STEPS_MAX = bound(
    Subject.CONNECTIONS,
    "steps of TLS handshakes in one iteration of the event loop, of about 1 ms each",
    4,
    "steps",
    on_excess="other connections are served first",
)
TLS_HANDSHAKES_MS_MAX = bound(
    Subject.CONNECTIONS,
    "time for steps of TLS handshakes in one iteration of the event loop, after the first",
    4,
    "ms",
    on_excess="other connections are served first",
)


log = logging.getLogger(__name__)


class ListenerTls(Protocol):
    """The certificates of TLS listeners and the names of their clients."""

    def context(self, listener: str) -> ssl.SSLContext:
        """Return the current context of a listener."""
        ...

    def principal(self, listener: str, certificate: bytes | None) -> str:
        """Return the principal of a client with this certificate (DER), None without one.

        Raises KctlError, ValueError.
        """
        ...


class _Handshake:
    """One socket; `stream` is None before its first byte."""

    __slots__ = ("deadline", "is_queued", "is_refused", "is_writing", "peer", "sock", "stream", "unread_bytes_max")

    def __init__(self, sock: socket.socket, peer: Peer) -> None:
        self.sock = sock
        self.peer = peer
        self.stream: TlsStream | None = None
        self.deadline: asyncio.TimerHandle | None = None
        self.is_queued = False
        self.is_writing = False
        self.is_refused = False
        """Whether it has failed, and the client may still read the alert."""
        self.unread_bytes_max = TLS_REFUSED_BYTES_MAX

    def fileno(self) -> int:
        return self.sock.fileno()


class TlsHandshakes:
    """Runs handshakes; passes each finished one to `on_done`, with the authenticated peer, others to `on_failed`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tls: ListenerTls,
        *,
        on_done: Callable[[TlsStream, Peer], None],
        on_failed: Callable[[Peer], None],
    ) -> None:
        self._loop = loop
        self._tls = tls
        self._on_done = on_done
        self._on_failed = on_failed
        self._open: dict[_Handshake, None] = {}
        self._ready: deque[_Handshake] = deque()

    def __len__(self) -> int:
        """Return the number of unfinished handshakes."""
        return len(self._open)

    def begin(self, sock: socket.socket, peer: Peer) -> None:
        """Take over a socket."""
        if len(self._open) >= TLS_HANDSHAKES_MAX:
            self._fail(next(iter(self._open)), "too many unfinished handshakes")
        handshake = _Handshake(sock, peer)
        self._open[handshake] = None
        handshake.deadline = self._loop.call_later(
            TLS_HANDSHAKE_TIMEOUT_MS / 1000, self._fail, handshake, "not finished in time"
        )
        self._loop.add_reader(sock, self._on_event, handshake)

    def close(self, listener: str | None = None) -> None:
        """Close all sockets, or those of one listener."""
        for handshake in [
            open_handshake for open_handshake in self._open if listener in {None, open_handshake.peer.listener}
        ]:
            self._end(handshake)

    def _on_event(self, handshake: _Handshake) -> None:
        if handshake.is_queued:
            return
        handshake.is_queued = True
        if not self._ready:
            self._loop.call_soon(self._run_some)
        self._ready.append(handshake)

    def _run_some(self) -> None:
        now = deque(self._ready.popleft() for _ in range(min(TLS_HANDSHAKE_STEPS_MAX, len(self._ready))))
        if self._ready:
            self._loop.call_soon(self._run_some)
        end_s = self._loop.time() + TLS_HANDSHAKES_MS_MAX / 1000
        while now:
            self._run_one(now.popleft())
            if now and self._loop.time() >= end_s:
                if not self._ready:
                    self._loop.call_soon(self._run_some)
                self._ready.extendleft(reversed(now))
                return

    def _run_one(self, handshake: _Handshake) -> None:
        handshake.is_queued = False
        if handshake not in self._open:
            return
        try:
            if handshake.is_refused:
                self._discard(handshake)
            else:
                self._step(handshake)
        except Exception:
            # Raised, it would keep the others of this iteration from being continued.
            log.exception("TLS handshake failed unexpectedly, closing connection peer=%s", handshake.peer.client_host)
            if handshake in self._open:
                self._end(handshake)

    def _step(self, handshake: _Handshake) -> None:
        try:
            if handshake.stream is None:
                handshake.stream = TlsStream(handshake.sock, self._tls.context(handshake.peer.listener))
            handshake.stream.handshake()
            principal = self._tls.principal(handshake.peer.listener, handshake.stream.peer_certificate)
        except ssl.SSLWantReadError:
            self._watch_writing(handshake, is_writing=False)
        except ssl.SSLWantWriteError:
            self._watch_writing(handshake, is_writing=True)
        except (OSError, KctlError, ValueError) as error:
            self._refuse(handshake, _reason(error))
        else:
            self._release(handshake)
            self._on_done(handshake.stream, replace(handshake.peer, principal=principal))

    def _refuse(self, handshake: _Handshake, reason: str) -> None:
        """Leave the client time to read the alert, which OpenSSL has sent."""
        stream = handshake.stream
        if stream is None:
            self._fail(handshake, reason)
            return
        self._record(handshake, reason)
        handshake.is_refused = True
        self._watch_writing(handshake, is_writing=False)
        stream.half_close()
        if handshake.deadline is not None:
            handshake.deadline.cancel()
        handshake.deadline = self._loop.call_later(TLS_REFUSED_MS_MAX / 1000, self._end, handshake)
        self._on_event(handshake)

    def _discard(self, handshake: _Handshake) -> None:
        assert handshake.stream is not None
        try:
            size = handshake.stream.discard()
        except BlockingIOError:
            return
        except OSError:
            size = 0
        handshake.unread_bytes_max -= size
        if not size or handshake.unread_bytes_max <= 0:
            self._end(handshake)

    def _watch_writing(self, handshake: _Handshake, *, is_writing: bool) -> None:
        if is_writing is handshake.is_writing:
            return
        handshake.is_writing = is_writing
        if is_writing:
            self._loop.add_writer(handshake, self._on_event, handshake)
        else:
            self._loop.remove_writer(handshake)

    def _release(self, handshake: _Handshake) -> None:
        del self._open[handshake]
        if handshake.deadline is not None:
            handshake.deadline.cancel()
        if handshake.fileno() >= 0:
            self._loop.remove_reader(handshake)
            self._watch_writing(handshake, is_writing=False)

    def _end(self, handshake: _Handshake) -> None:
        self._release(handshake)
        if handshake.stream is None:
            handshake.sock.close()
        else:
            handshake.stream.close()
        self._on_failed(handshake.peer)

    def _fail(self, handshake: _Handshake, reason: str) -> None:
        self._end(handshake)
        if not handshake.is_refused:
            self._record(handshake, reason)

    def _record(self, handshake: _Handshake, reason: str) -> None:
        peer = handshake.peer
        log.info(
            "TLS handshake failed, closing connection listener=%s peer=%s reason=%s",
            peer.listener,
            peer.client_host,
            reason,
            extra=by_peer(peer.listener),
        )


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"client certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "the client closed the connection"
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).lower().replace("_", " ")
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error)

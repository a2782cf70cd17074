"""One accepted connection: reads frames, has them handled one at a time, sends the answers in order.

As in Kafka a connection is muted from the moment a request is taken until its answer has been handed over: the next
frame, though it may have arrived, waits.  That gives answers in request order without bookkeeping.

A raw non-blocking socket on the loop's add_reader and add_writer: asyncio's transports copy and have no sendfile that
can be mixed with other writes.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from kctl.errors import MalformedRequest
from kctl.server.network.inbox import Inbox
from kctl.server.network.outbox import Chunk, Outbox
from kctl.server.requests.context import Peer

log = logging.getLogger(__name__)

Reply = list[Chunk] | None
"""The chunks of one framed response; None for a request without an answer (produce with acks=0)."""

Handle = Callable[[memoryview, Peer], "Reply | asyncio.Future[Reply]"]


class Connection:
    """Owns its socket; `on_close` is called once, whoever ended it."""

    def __init__(
        self,
        sock: socket.socket,
        peer: Peer,
        *,
        loop: asyncio.AbstractEventLoop,
        handle: Handle,
        frame_bytes_max: int,
        on_close: Callable[[Connection], None],
        on_malformed: Callable[[], None],
    ) -> None:
        self.peer = peer
        self.last_active_s = loop.time()
        self._sock = sock
        self._loop = loop
        self._handle = handle
        self._on_close = on_close
        self._on_malformed = on_malformed
        self._inbox = Inbox(frame_bytes_max)
        self._outbox = Outbox(sock)
        self._pending: asyncio.Future[Reply] | None = None
        self._is_reading = False
        self._is_writing = False
        self._is_closed = False
        self._resume_reading()

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self._pending is None and not self._outbox

    def close(self) -> None:
        """Ends the connection at once; an answer under way is lost."""
        if self._is_closed:
            return
        self._is_closed = True
        self._pause_reading()
        if self._is_writing:
            self._loop.remove_writer(self._sock)
        # A request under way goes on: half of a topic creation is worse than an answer that nobody reads.
        self._sock.close()
        self._on_close(self)

    def _resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self._sock, self._on_readable)

    def _pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._sock)

    def _on_readable(self) -> None:
        if self._inbox.is_full:
            self._pause_reading()
            return
        try:
            received = self._inbox.receive(self._sock)
        except BlockingIOError:
            return
        except OSError:
            received = 0
        if not received:
            self.close()
            return
        self._process()

    def _process(self) -> None:
        """Handles frames until one has to wait, the answers do not fit into the socket, or more bytes are needed."""
        self.last_active_s = self._loop.time()
        try:
            while self._pending is None and not self._is_writing:
                frame = self._inbox.next_frame()
                if frame is None:
                    break
                reply = self._handle(frame, self.peer)
                if isinstance(reply, asyncio.Future):
                    self._pending = reply
                    reply.add_done_callback(self._on_reply)
                elif reply is not None:
                    self._outbox.put(reply)
        except MalformedRequest as error:
            self._on_malformed()
            log.info("closing connection peer=%s reason=%s", self.peer.client_host, error)
            self._flush()
            self.close()
            return
        except Exception:
            log.exception("closing connection peer=%s after a failure in a handler", self.peer.client_host)
            self.close()
            return
        self._flush()
        if not self._is_closed and not self._inbox.is_full:
            self._resume_reading()

    def _on_reply(self, future: asyncio.Future[Reply]) -> None:
        self._pending = None
        error = None if future.cancelled() else future.exception()
        if isinstance(error, MalformedRequest):
            log.info("closing connection peer=%s reason=%s", self.peer.client_host, error)
        elif error is not None:
            log.error("closing connection peer=%s after a failure", self.peer.client_host, exc_info=error)
        if future.cancelled() or error is not None:
            self.close()
        if self._is_closed:
            return
        reply = future.result()
        if reply is not None:
            self._outbox.put(reply)
            self._flush()
        if not self._is_closed:
            self._process()

    def _flush(self) -> None:
        if self._is_writing or not self._outbox:
            return
        try:
            is_sent = self._outbox.flush()
        except OSError:
            self.close()
            return
        if not is_sent:
            self._is_writing = True
            self._loop.add_writer(self._sock, self._on_writable)

    def _on_writable(self) -> None:
        try:
            is_sent = self._outbox.flush()
        except OSError:
            self.close()
            return
        if is_sent:
            self._is_writing = False
            self._loop.remove_writer(self._sock)
            self._process()

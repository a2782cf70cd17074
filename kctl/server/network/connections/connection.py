"""One accepted connection: moves bytes between its socket and its request pump.

A raw non-blocking socket, or a TLS stream on it, on the loop's add_reader and add_writer: asyncio's transports copy and
have no sendfile that can be mixed with other writes.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable

from kctl.errors import MalformedRequest, UnansweredRequestFailed
from kctl.limits import Subject, bound
from kctl.output.log_lines import by_peer
from kctl.server.network.connections.buffer_pool import BufferPool
from kctl.server.network.connections.channel import ChannelEnded, OpenChannel
from kctl.server.network.connections.inbox import Inbox
from kctl.server.network.connections.outbox import PlainOutbox, UnreadResponses
from kctl.server.network.connections.request_pump import RequestPump, TurnEnd
from kctl.server.network.connections.turns import Turns
from kctl.server.network.tls.stream import TlsOutbox, TlsStream
from kctl.server.requests.context import Peer

RECEIVED_UNTIMED_MAX = bound(
    Subject.CONNECTIONS,
    "bytes that connections receive in one iteration of the event loop without a look at the time that it takes",
    256 << 10,
    "bytes",
    on_excess="connections receive in turns when the time for connections is over",
)


log = logging.getLogger(__name__)
_HAS_MORE, _ANSWERED_ONE = TurnEnd.HAS_MORE, TurnEnd.ANSWERED_ONE
"""Constants, because Python 3.11 takes 0.1 us to find a member of an enum."""
_length_of = struct.Struct(">i").unpack_from
_LENGTH_BYTES = 4


class Connection:
    """Owns its socket; `on_close` is called once, whichever side closes the connection."""

    def __init__(
        self,
        sock: socket.socket | TlsStream,
        peer: Peer,
        *,
        loop: asyncio.AbstractEventLoop,
        turns: Turns,
        buffers: BufferPool,
        unread: UnreadResponses[Connection],
        open_channel: OpenChannel,
        on_close: Callable[[Connection], None],
        on_malformed: Callable[[Peer, str], None],
        is_urgent: bool = False,
    ) -> None:
        self.peer = peer
        self.is_urgent = is_urgent
        """Whether its requests overtake those of other connections."""
        self.share_used_until_s = 0.0
        """See TakesTurns."""
        self.had_more = False
        """See TakesTurns."""
        self.last_active_s = loop.time()
        """When the acceptor last saw `was_active`."""
        self.was_active = False
        """Whether bytes were received or sent since the acceptor's last check."""
        self._timing = peer.timing
        self._sock = sock
        self._loop = loop
        self._turns = turns
        self._on_close = on_close
        self._on_malformed = on_malformed
        self._channel = channel = open_channel(peer)
        self._inbox = Inbox(buffers, channel.frame_bytes_max)
        self._tls = sock if isinstance(sock, TlsStream) else None
        self._outbox = PlainOutbox(sock) if isinstance(sock, socket.socket) else TlsOutbox(sock)
        self._pump = RequestPump(
            self._inbox, channel, loop=loop, put=self._outbox.put, on_wake=self._take_or_queue_turn
        )
        self._buffers = buffers
        self._waits_for_buffers = buffers.is_limited
        self._unread = unread
        self._is_queued = False
        self._receives_in_turn = False
        """Whether its next turn begins with what has arrived at the socket."""
        self._shared = buffers.shared
        self._may_share = not buffers.is_limited
        self._expects_one = False
        """Whether the next bytes are likely to be one short request: the last ones were, and it has been answered.

        No request waits then, the inbox is empty, and so is the outbox.
        """
        self._is_reading = False
        self._is_rereading = False
        self._waits_for_memory = False
        self._is_writing = False
        self._is_closed = False
        self._settle()

    @property
    def is_muted(self) -> bool:
        """Whether the broker takes no requests because of a quota, so that the client cannot be idle."""
        return self._pump.is_muted

    @property
    def is_writing(self) -> bool:
        """Whether responses wait for the peer to read."""
        return self._is_writing

    def close(self) -> None:
        """Close the connection at once; a response that is being sent is lost, and waiting requests are cancelled."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._waits_for_memory:
            self._buffers.stop_waiting(self._on_memory)
        if self._is_reading:
            self._loop.remove_reader(self._sock)
        if self._is_writing:
            self._loop.remove_writer(self._sock)
            self._unread.resumed(self)
        self._pump.close()
        self._outbox.clear()
        self._sock.close()
        self._on_close(self)

    def take_turn(self) -> bool:
        """Handle requests that have arrived and send their responses; return whether there may be more requests."""
        self._is_queued = False
        frame = None
        if self._receives_in_turn:
            self._receives_in_turn = False
            if self._expects_one:
                frame = self._receive_one()
            elif not self._is_closed:
                self._receive()
        if self._is_closed:
            return False
        if self._is_writing:
            # Stop handling requests while responses back up.
            self._settle()
            return False
        try:
            end = self._pump.turn(self._turns.turn_s) if frame is None else self._pump.turn_of_one(frame)
        except (Exception, asyncio.CancelledError) as error:
            self._report(error)
            # Its frames refer to the request, whose memory could not be returned before they are freed.
            error.__traceback__ = error.__context__ = error.__cause__ = None
            self.close()
            return False
        if not self._send():
            self._block()
        if end is _HAS_MORE and not self._is_writing:
            self._is_queued = True
            return True
        self._expects_one = end is _ANSWERED_ONE and self._may_share and not self._is_writing
        if frame is not None and self._buffers.is_poisoned:
            self._buffers.poison(frame)
        if frame is None or self._tls is not None:
            self._settle()
        return False

    def _report(self, error: BaseException) -> None:
        """Log why a turn of the pump has failed, and send what is answered, before the connection is closed."""
        match error:
            case asyncio.CancelledError():
                return
            case MalformedRequest():
                self._on_malformed(self.peer, str(error))
            case UnansweredRequestFailed():
                log.info(
                    "closing connection after a failed request without a response listener=%s peer=%s error=%s",
                    self.peer.listener,
                    self.peer.client_host,
                    error,
                    extra=by_peer(self.peer.listener),
                )
            case ChannelEnded():
                pass
            case _:
                log.error(
                    "closing connection after a failure in a handler listener=%s peer=%s",
                    self.peer.listener,
                    self.peer.client_host,
                    exc_info=error,
                )
                return
        self._flush()

    def _take_or_queue_turn(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            self._turns.take_or_queue(self)

    def _on_readable(self) -> None:
        if self._is_queued:
            return  # Received in or after the turn.
        turns = self._turns
        started_s = turns.iteration.started_s
        if turns.received_in_s != started_s:
            turns.received_in_s, turns.received = started_s, 0
        elif turns.received >= RECEIVED_UNTIMED_MAX and not turns.may_receive(is_urgent=self.is_urgent):
            # In a turn: a hundred connections that receive 1 MB at once would hold the loop for tens of milliseconds.
            self._receives_in_turn = self._is_queued = True
            turns.queue(self)
            return
        if self._expects_one:
            self._receives_in_turn = self._is_queued = True
            turns.take_or_queue(self)
        elif self._receive():
            if self._pump.is_waiting or self._is_writing:
                self._settle()
            else:
                self._take_or_queue_turn()

    def _receive_one(self) -> memoryview | None:
        """Receive once, into the buffer that all connections share; return the frame if that is one short request.

        Other bytes are moved to the inbox.
        """
        shared = self._shared
        try:
            received = self._sock.recv_into(shared)
        except BlockingIOError:
            return None
        except OSError:
            received = 0
        if not received:
            self.close()
            return None
        self._note_received(received)
        if received > _LENGTH_BYTES:
            size = _length_of(shared)[0]
            if size == received - _LENGTH_BYTES and size <= self._channel.frame_bytes_max:
                return shared[_LENGTH_BYTES:received]
        self._inbox.add(shared[:received])
        return None

    def _receive(self) -> bool:
        """Receive once; return whether there are new bytes."""
        if self._waits_for_buffers and not self._inbox.has_memory():
            self._wait_for_memory()
            return False
        try:
            received = self._sock.recv_into(self._inbox.buffer())
        except BlockingIOError:
            self._settle()
            return False
        except OSError:
            received = 0
        if not received:
            self.close()
            return False
        self._inbox.received(received)
        self._note_received(received)
        return True

    def _note_received(self, count: int) -> None:
        self._turns.received += count
        if self._timing is not None and self._timing.measuring.is_on:
            self._timing.received_s = self._loop.time()
        self.was_active = True

    def _settle(self) -> None:
        """Free memory; stop receiving while enough is buffered for later turns."""
        if self._is_closed:
            return
        needs_bytes = self._inbox.settle() and not self._waits_for_memory
        if needs_bytes is not self._is_reading:
            self._is_reading = needs_bytes
            if needs_bytes:
                self._loop.add_reader(self._sock, self._on_readable)
            else:
                self._loop.remove_reader(self._sock)
        if needs_bytes and self._tls is not None and self._tls.has_pending and not self._is_rereading:
            self._is_rereading = True
            self._loop.call_soon(self._reread)

    def _reread(self) -> None:
        """Read bytes that OpenSSL has decrypted already, which the loop does not report as readable."""
        self._is_rereading = False
        if self._is_reading and not self._is_closed:
            self._on_readable()

    def _wait_for_memory(self) -> None:
        self._waits_for_memory = True
        self._buffers.wait_for_room(self._on_memory, is_growing=len(self._inbox) > 0)
        self._settle()

    def _on_memory(self) -> None:
        self._waits_for_memory = False
        self._settle()

    def _flush(self) -> None:
        if not self._is_writing and not self._send():
            self._block()

    def _block(self) -> None:
        """Wait, since the socket takes no more, until it is writable."""
        if not self._is_closed:
            self._is_writing = True
            self._loop.add_writer(self._sock, self._on_writable)
            self._unread.blocked(self, self._outbox.memory_bytes)

    def _on_writable(self) -> None:
        if self._send():
            self._is_writing = False
            self._loop.remove_writer(self._sock)
            self._unread.resumed(self)
            self._take_or_queue_turn()
        else:
            self._unread.progressed(self)

    def _send(self) -> bool:
        """Return whether everything has been sent; close the connection when the peer is gone."""
        timing = self._timing
        if timing is not None and timing.unsent and not timing.flushing_s:
            timing.flushing_s = self._loop.time()
        try:
            is_sent = self._outbox.flush()
        except OSError:
            self.close()
            return False
        self.was_active = True
        if is_sent and timing is not None and timing.unsent:
            timing.sent(self._loop.time())
        return is_sent

"""The connection of a client: reads frames, and writes responses and watch events.

The first four bytes are the length of a connect request or a four-letter word.  Output is buffered until the server
calls `flush`, after the changes that it reports are on the disk.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kctl.limits import Subject, bound
from kctl.output.log_lines import by_peer
from kctl.system.reference_cycles import free_transports
from kctl.zookeeper.embedded.acl import Id
from kctl.zookeeper.embedded.messages import responses
from kctl.zookeeper.embedded.messages.codes import EventType

ZOOKEEPER_FRAME_BYTES_MAX = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "size of one request to the embedded ZooKeeper server (jute.maxbuffer)",
    0xFFFFF,
    "bytes",
    on_excess="the connection is closed before the frame is read",
)
ZOOKEEPER_UNREAD_BYTES_MAX = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "responses and events that a client of the embedded ZooKeeper server has not read",
    64 << 20,
    "bytes",
    on_excess="the connection is closed",
)


# Limits how long the frames of all clients are read in one iteration of the event loop.
#
# A client may send hundreds of requests at once, and hundreds of clients may do so in one iteration.
#
# Owner: event loop.


TURN_S = 0.004
"""The time for frames in one iteration."""

_REASON = "frames of other connections"


class Reader(Protocol):
    """A connection with received bytes."""

    def read_frames(self, may_continue: Callable[[], bool]) -> bool:
        """Read frames while `may_continue`, at least one; return whether no whole frame is left."""

    def pause_reading(self, reason: str) -> None:
        """Receive nothing until `resume_reading` is called with the same reason."""

    def resume_reading(self, reason: str) -> None:
        """Receive again if there is no other reason to wait."""


class InputTurns:
    """Reads the frames of a connection at once if there is time, and otherwise in the following iterations.

    A connection receives nothing while it waits for its turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Reader] = deque()
        self._ends_s = 0.0
        self._is_begun = False

    def received(self, reader: Reader) -> None:
        """Handle that the connection has received bytes."""
        if not self._is_begun:
            self._begin()
        if self._waiting or not self._may_continue() or not reader.read_frames(self._may_continue):
            reader.pause_reading(_REASON)
            self._waiting.append(reader)

    def _begin(self) -> None:
        self._is_begun = True
        self._ends_s = self._loop.time() + TURN_S
        self._loop.call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._is_begun = False
        if not self._waiting:
            return
        self._begin()
        for _ in range(len(self._waiting)):
            reader = self._waiting.popleft()
            if reader.read_frames(self._may_continue):
                reader.resume_reading(_REASON)
            else:
                self._waiting.append(reader)
            if not self._may_continue():
                return

    def _may_continue(self) -> bool:
        return self._loop.time() < self._ends_s


log = logging.getLogger(__name__)

SESSIONLESS_TIMEOUT_S = 10.0

_LENGTH = struct.Struct(">i")


class Server(Protocol):
    """The callbacks of a connection, implemented by EmbeddedZooKeeper."""

    def connection_made(self, connection: Connection) -> bool:
        """Return a client connected; return False to refuse the connection."""

    def frame_received(self, connection: Connection, frame: bytes) -> None:
        """Handle a complete frame."""

    def four_letter_word_response(self, word: str) -> str | None:
        """Return the output of a four-letter word; None if it is not one."""

    def has_output(self, connection: Connection) -> None:
        """Handle that the connection has output to be flushed."""

    def connection_lost(self, connection: Connection) -> None:
        """Handle that the connection was closed."""


class Connection(asyncio.Protocol):
    """A connection of a client; `session_id` is 0 until it has a session."""

    def __init__(self, server: Server, turns: InputTurns) -> None:
        self.session_id = 0
        self.identities: tuple[Id, ...] = ()
        self.peer: tuple[str, int] = ("", 0)
        self.received_count = 0
        self.sent_count = 0
        self.is_open = False
        self._server = server
        self._turns = turns
        self._transport: asyncio.Transport | None = None
        self._is_greeted = False
        self._buffer = bytearray()
        self._output: list[bytes] = []
        self._ends_after_output = False
        self._pause_reasons: set[str] = set()
        self._session_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection; see asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = transport.get_extra_info("peername")[:2]
        self.identities = (Id("ip", self.peer[0]),)
        self.is_open = self._server.connection_made(self)
        if not self.is_open:
            transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._session_timer = loop.call_later(SESSIONLESS_TIMEOUT_S, self.abort, "no connect request in time")

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister the connection; see asyncio.Protocol."""
        self._stop_waiting_for_session()
        self.is_open = False
        self._server.connection_lost(self)
        if self._transport is not None:
            free_transports([self._transport])
            self._transport = None

    def data_received(self, data: bytes) -> None:
        """Pass complete frames to the server; see asyncio.Protocol."""
        if self.is_open:
            self._buffer += data
            self._turns.received(self)

    def read_frames(self, may_continue: Callable[[], bool]) -> bool:
        """Pass frames to the server while `may_continue`, at least one; return whether no whole frame is left."""
        is_first = True
        while self.is_open and len(self._buffer) >= _LENGTH.size:
            if not self._is_greeted and self._handle_four_letter_word():
                return True
            (length,) = _LENGTH.unpack_from(self._buffer)
            if not 0 < length <= ZOOKEEPER_FRAME_BYTES_MAX:
                self.abort(f"invalid frame length {length}")
                return True
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return True
            if not (is_first or may_continue()):
                return False
            is_first = False
            frame = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            self._is_greeted = True
            self.received_count += 1
            self._server.frame_received(self, frame)
        return True

    def pause_writing(self) -> None:
        """Stop reading requests while responses back up."""
        self.pause_reading("unread responses")

    def resume_writing(self) -> None:
        """Read requests again once the responses are sent."""
        self.resume_reading("unread responses")

    def pause_reading(self, reason: str) -> None:
        """Stop reading requests until `resume_reading` is called with the same reason."""
        if self._transport is not None and not self._pause_reasons and not self._transport.is_closing():
            self._transport.pause_reading()
        self._pause_reasons.add(reason)

    def resume_reading(self, reason: str) -> None:
        """Read requests again if there is no other reason to wait."""
        self._pause_reasons.discard(reason)
        if self._transport is not None and not self._pause_reasons and not self._transport.is_closing():
            self._transport.resume_reading()

    def begin_session(self, session_id: int) -> None:
        """Bind the connection to a session."""
        self.session_id = session_id
        self._stop_waiting_for_session()

    def notify(self, event: EventType, path: str, zxid: int) -> None:
        """Send a watch event."""
        self.send(responses.watch_event(event, path, zxid))

    def send(self, frame: bytes) -> None:
        """Add a frame to the output; it is sent by `flush`."""
        if self.is_open:
            self._output.append(frame)
            self.sent_count += 1
            self._server.has_output(self)

    def end(self) -> None:
        """Close the connection after its output is sent; further requests are ignored."""
        self.is_open = False
        self._ends_after_output = True
        self._server.has_output(self)

    def flush(self) -> None:
        """Send the buffered output."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._output:
            self._transport.write(b"".join(self._output))
            self._output.clear()
        if self._ends_after_output:
            self._transport.close()
        elif self._transport.get_write_buffer_size() > ZOOKEEPER_UNREAD_BYTES_MAX:
            self.abort("too much unread output")

    def abort(self, reason: str) -> None:
        """Close the connection at once and drop its output."""
        if self._transport is not None and not self._transport.is_closing():
            log.info(
                "closing ZooKeeper connection peer=%s:%d reason=%s", *self.peer, reason, extra=by_peer("zookeeper")
            )
            self._transport.abort()
        self.is_open = False

    def _handle_four_letter_word(self) -> bool:
        """Answer a four-letter word; return False if the buffer does not start with one."""
        word = bytes(self._buffer[:4])
        if not (word.isascii() and word.isalpha()):
            return False
        response = self._server.four_letter_word_response(word.decode())
        if response is None:
            return False
        assert self._transport is not None
        self._transport.write(response.encode())
        self._transport.close()
        self.is_open = False
        return True

    def _stop_waiting_for_session(self) -> None:
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None

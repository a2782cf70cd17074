"""One client's connection: frames in, answers and watch events out, and no decisions.

The first four bytes are either the length of a connect request or a four-letter word.  Answers are collected until the
server says `flush`, which it does when what they tell is on disk.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Protocol

from kctl.zookeeper.embedded import responses
from kctl.zookeeper.embedded.acl import Id
from kctl.zookeeper.embedded.codes import EventType

log = logging.getLogger(__name__)

JUTE_MAX_BUFFER = 0xFFFFF
"""The longest frame taken, as with ZooKeeper's jute.maxbuffer."""
UNREAD_BYTES_MAX = 64 << 20
"""A client that lets more than this pile up in front of it is cut off."""
SESSIONLESS_TIMEOUT_S = 10.0

_LENGTH = struct.Struct(">i")


class Server(Protocol):
    """What a connection tells; implemented by EmbeddedZooKeeper."""

    def connection_made(self, connection: Connection) -> bool: ...

    def frame_received(self, connection: Connection, frame: bytes) -> None: ...

    def answer_word(self, word: str) -> str | None: ...

    def has_output(self, connection: Connection) -> None: ...

    def connection_lost(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """Frames on a socket; `session_id` is 0 until the server has given it one."""

    def __init__(self, server: Server) -> None:
        self.session_id = 0
        self.identities: tuple[Id, ...] = ()
        self.peer: tuple[str, int] = ("", 0)
        self.received_count = 0
        self.sent_count = 0
        self.is_open = False
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._is_greeted = False
        self._buffer = bytearray()
        self._output: list[bytes] = []
        self._ends_after_output = False
        self._reasons_to_wait: set[str] = set()
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = transport.get_extra_info("peername")[:2]
        self.identities = (Id("ip", self.peer[0]),)
        self.is_open = self._server.connection_made(self)
        if not self.is_open:
            transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(SESSIONLESS_TIMEOUT_S, self.abort, "no session was asked for")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting_for_session()
        self.is_open = False
        self._server.connection_lost(self)

    def data_received(self, data: bytes) -> None:
        if not self.is_open:
            return
        self._buffer += data
        while self.is_open and len(self._buffer) >= _LENGTH.size:
            if not self._is_greeted and self._answers_word():
                return
            (length,) = _LENGTH.unpack_from(self._buffer)
            if not 0 < length <= JUTE_MAX_BUFFER:
                self.abort(f"a frame of {length} bytes")
                return
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            self._is_greeted = True
            self.received_count += 1
            self._server.frame_received(self, frame)

    def pause_writing(self) -> None:
        """Who does not read answers need not ask more."""
        self.wait("unread answers")

    def resume_writing(self) -> None:
        self.go_on("unread answers")

    def wait(self, reason: str) -> None:
        """Read no more requests until `go_on` with the same reason."""
        if self._transport is not None and not self._reasons_to_wait and not self._transport.is_closing():
            self._transport.pause_reading()
        self._reasons_to_wait.add(reason)

    def go_on(self, reason: str) -> None:
        self._reasons_to_wait.discard(reason)
        if self._transport is not None and not self._reasons_to_wait and not self._transport.is_closing():
            self._transport.resume_reading()

    def begin_session(self, session_id: int) -> None:
        self.session_id = session_id
        self._stop_waiting_for_session()

    def notify(self, event: EventType, path: str, zxid: int) -> None:
        self.send(responses.watch_event(event, path, zxid))

    def send(self, frame: bytes) -> None:
        if self.is_open:
            self._output.append(frame)
            self.sent_count += 1
            self._server.has_output(self)

    def end(self) -> None:
        """Close once everything sent so far is out; nothing is taken in any more."""
        self.is_open = False
        self._ends_after_output = True
        self._server.has_output(self)

    def flush(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._output:
            self._transport.write(b"".join(self._output))
            self._output.clear()
        if self._ends_after_output:
            self._transport.close()
        elif self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self.abort("the client does not read its answers")

    def abort(self, reason: str) -> None:
        """Close at once, without what was not flushed."""
        if self._transport is not None and not self._transport.is_closing():
            log.info("ZooKeeper connection of %s:%d closed: %s", *self.peer, reason)
            self._transport.abort()
        self.is_open = False

    def _answers_word(self) -> bool:
        """Whether the client is a person, or a monitor, with a four-letter word."""
        word = bytes(self._buffer[:4])
        if not (word.isascii() and word.isalpha()):
            return False
        answer = self._server.answer_word(word.decode())
        if answer is None:
            return False
        assert self._transport is not None
        self._transport.write(answer.encode())
        self._transport.close()
        self.is_open = False
        return True

    def _stop_waiting_for_session(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

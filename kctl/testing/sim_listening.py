"""A broker's listeners on the simulated network: network.acceptor and network.connection without sockets.

Requests of one connection are handled one at a time and answered in order, as the real connection does it.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from functools import partial
from typing import Any

from kctl.errors import MalformedRequest
from kctl.model import Endpoint
from kctl.server.network.connection import Handle, Reply
from kctl.server.network.outbox import Chunk
from kctl.server.requests.context import Peer
from kctl.storage.lookup import RecordsSlice
from kctl.testing.sim_network import SimNetwork, SimServer

_LENGTH = struct.Struct(">i")


class SimListening:
    """Implements kctl.server.world.Listening; binding takes a port that is not 0."""

    def __init__(
        self, network: SimNetwork, *, handle: Handle, frame_bytes_max: int, connections_max_idle_ms: int
    ) -> None:
        """Idle connections stay: `connections_max_idle_ms` is for the real acceptor."""
        self._network = network
        self.handle = handle
        self.frame_bytes_max = frame_bytes_max
        self._endpoints: list[Endpoint] = []
        self._servers: list[SimServer] = []
        self._connections: dict[SimBrokerConnection, None] = {}
        self.malformed_count = 0

    def bind(self, endpoint: Endpoint) -> Endpoint:
        self._endpoints.append(endpoint)
        return endpoint

    def start(self) -> None:
        for endpoint in self._endpoints:
            self._servers.append(self._network.listen(partial(self._accept, endpoint.listener), endpoint.port))

    def stop_accepting(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    def close(self) -> None:
        self.stop_accepting()
        for connection in list(self._connections):
            connection.close()

    def _accept(self, listener: str) -> SimBrokerConnection:
        connection = SimBrokerConnection(self, listener)
        self._connections[connection] = None
        return connection

    def forget(self, connection: SimBrokerConnection, *, was_malformed: bool) -> None:
        self._connections.pop(connection, None)
        self.malformed_count += was_malformed


class SimBrokerConnection(asyncio.Protocol):
    """One accepted connection."""

    def __init__(self, listening: SimListening, listener: str) -> None:
        self._listening = listening
        self._listener = listener
        self._received = bytearray()
        self._frames: deque[bytearray] = deque()
        self._pending: asyncio.Future[Reply] | None = None
        self._transport: asyncio.Transport | None = None
        self._was_malformed = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._peer = Peer(f"/{transport.get_extra_info('peername')[0]}", self._listener)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._received)
            if not 0 <= size <= self._listening.frame_bytes_max:
                self._refuse()
                return
            if len(self._received) < _LENGTH.size + size:
                break
            self._frames.append(self._received[_LENGTH.size : _LENGTH.size + size])
            del self._received[: _LENGTH.size + size]
        self._process()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._listening.forget(self, was_malformed=self._was_malformed)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _process(self) -> None:
        while self._frames and self._pending is None and self._transport is not None:
            try:
                reply = self._listening.handle(memoryview(self._frames.popleft()), self._peer)
            except MalformedRequest:
                self._refuse()
                return
            if isinstance(reply, asyncio.Future):
                self._pending = reply
                reply.add_done_callback(self._on_reply)
            else:
                self._answer(reply)

    def _on_reply(self, future: asyncio.Future[Reply]) -> None:
        self._pending = None
        if future.cancelled() or self._transport is None:
            self.close()
            return
        if isinstance(future.exception(), MalformedRequest):
            self._refuse()
            return
        self._answer(future.result())
        self._process()

    def _answer(self, reply: Reply) -> None:
        if reply is not None and self._transport is not None:
            self._transport.write(b"".join(_bytes_of(chunk) for chunk in reply))

    def _refuse(self) -> None:
        self._was_malformed = True
        self.close()


def _bytes_of(chunk: Chunk) -> bytes | bytearray | memoryview:
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return chunk
    assert isinstance(chunk, RecordsSlice)
    return chunk.read()

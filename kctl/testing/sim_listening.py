"""A broker's listeners on the simulated network.  Each connection runs the real request pump.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from kctl.errors import MalformedRequest, UnansweredRequestFailed
from kctl.model import Endpoint
from kctl.server.network.connections.buffer_pool import BufferPool
from kctl.server.network.connections.channel import ChannelEnded, OpenChannel
from kctl.server.network.connections.inbox import Inbox
from kctl.server.network.connections.outbox import Chunk
from kctl.server.network.connections.request_pump import RequestPump, TurnEnd
from kctl.server.network.listen_settings import ListeningState, ListenSettings
from kctl.server.requests.context import Peer
from kctl.storage.log.lookup import RecordsSlice
from kctl.testing.sim_network import SimNetwork, SimServer


class SimListening:
    """Implements kctl.server.network.world.Listening; ports must not be 0."""

    def __init__(self, network: SimNetwork, *, open_channel: OpenChannel, settings: ListenSettings) -> None:
        """Ignore the settings: idle connections stay open, and there is no TLS."""
        self._network = network
        self.open_channel = open_channel
        self._bound: list[Endpoint] = []
        """The endpoints that do not accept connections yet."""
        self._servers: dict[str, SimServer] = {}
        """By listener."""
        self._connections: dict[SimBrokerConnection, None] = {}
        self.buffers = BufferPool(is_poisoned=True)
        self.malformed_count = 0

    def measurements(self) -> ListeningState:
        """Nothing but malformed requests: connections are not measured."""
        return ListeningState(malformed_requests=self.malformed_count)

    def bind(self, endpoint: Endpoint) -> Endpoint:
        """Add a listener, which accepts connections after `start`; return the endpoint unchanged."""
        self._bound.append(endpoint)
        return endpoint

    def unbind(self, listener: str) -> None:
        """Close a listener and its connections."""
        self._bound = [bound for bound in self._bound if bound.listener != listener]
        server = self._servers.pop(listener, None)
        if server is not None:
            server.close()
        for connection in [known for known in self._connections if known.endpoint.listener == listener]:
            connection.close()

    def start(self) -> None:
        """Accept connections on all endpoints, also on those that were bound after an earlier call."""
        for endpoint in self._bound:
            accept = partial(self._accept, endpoint)
            self._servers[endpoint.listener] = self._network.listen(accept, endpoint.port)
        self._bound.clear()

    def stop_accepting(self) -> None:
        """Refuse new connections; open ones stay open."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def close(self) -> None:
        """Stop accepting and close all connections."""
        self.stop_accepting()
        for connection in list(self._connections):
            connection.close()

    def _accept(self, endpoint: Endpoint) -> SimBrokerConnection:
        connection = SimBrokerConnection(self, endpoint)
        self._connections[connection] = None
        return connection

    def forget(self, connection: SimBrokerConnection, *, was_malformed: bool) -> None:
        """Remove a closed connection; count it if it was closed for a malformed request."""
        self._connections.pop(connection, None)
        self.malformed_count += was_malformed


class SimBrokerConnection(asyncio.Protocol):
    """One accepted connection."""

    def __init__(self, listening: SimListening, endpoint: Endpoint) -> None:
        self._listening = listening
        self.endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._was_malformed = False

    def connection_made(self, transport: Any) -> None:
        """Open the channel and the request pump of the connection."""
        self._transport = transport
        host = f"/{transport.get_extra_info('peername')[0]}"
        peer = Peer(host, self.endpoint.listener, security_protocol=self.endpoint.security_protocol)
        channel = self._listening.open_channel(peer)
        self._inbox = Inbox(self._listening.buffers, channel.frame_bytes_max)
        self._pump = RequestPump(
            self._inbox,
            channel,
            loop=self._loop,
            put=self._send,
            on_wake=self._take_turn,
        )

    def data_received(self, data: bytes) -> None:
        """Put the bytes into the inbox and run one turn of the request pump."""
        while data:
            room = self._inbox.buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self._inbox.received(count)
            data = data[count:]
        self._take_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the request pump and leave the list of connections."""
        self._transport = None
        self._pump.close()
        self._listening.forget(self, was_malformed=self._was_malformed)

    def close(self) -> None:
        """Close the connection; no effect if it is closed."""
        if self._transport is not None:
            self._transport.close()

    def _take_turn(self) -> None:
        if self._transport is None:
            return
        try:
            end = self._pump.turn()
        except MalformedRequest:
            self._was_malformed = True
            self.close()
            return
        except (UnansweredRequestFailed, ChannelEnded, asyncio.CancelledError):
            self.close()
            return
        if end is TurnEnd.HAS_MORE:
            self._loop.call_soon(self._take_turn)
        else:
            self._inbox.settle()

    def _send(self, chunks: list[Chunk]) -> int:
        data = b"".join(_bytes_of(chunk) for chunk in chunks)
        if self._transport is not None:
            self._transport.write(data)
        return len(data)


def _bytes_of(chunk: Chunk) -> bytes | bytearray | memoryview:
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return chunk
    assert isinstance(chunk, RecordsSlice)
    return chunk.read()

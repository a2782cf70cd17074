"""A simulated network of named hosts for asyncio servers and streams, with delay, loss, partitions and resets.

    async def main(loop: SimLoop) -> None:
        network = SimNetwork(loop)
        with network.on_host("broker-1"):
            server = await asyncio.start_server(serve, port=9092)
        with network.on_host("client"):
            reader, writer = await asyncio.open_connection("broker-1", 9092)
        network.partition(["broker-1"], ["client"])

The current host is a context variable, which tasks and callbacks inherit; code outside of `on_host` runs on the host
"test".  A host exists once code has run on it.  Random numbers depend on the loop's seed.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from kctl.testing.sim_link import LinkConditions, Segment, Signal
from kctl.testing.sim_loop import ProtocolFactory, SimLoop
from kctl.testing.sim_process import SimProcess, current_process
from kctl.testing.sim_transport import Address, SimTransport

CONNECT_TIMEOUT_S = 127.0
"""Connection timeout without a response; from Linux's default number of SYNs."""

_FIRST_EPHEMERAL_PORT = 49_152
_LOCAL_NAMES = frozenset({"", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104 - names only


class SimNetwork:
    """Hosts, links, listeners and connections."""

    def __init__(self, loop: SimLoop, conditions: LinkConditions | None = None) -> None:
        """`conditions` are the initial conditions of all links."""
        loop.network = self
        self._loop = loop
        self._random = random.Random(f"{loop.seed} network")
        self._initial = conditions or LinkConditions()
        self._links: dict[tuple[str, str], LinkConditions] = {}
        self._addresses: dict[str, str] = {}
        self._listeners: dict[Address, SimServer] = {}
        self._transports: dict[SimTransport, tuple[str, str]] = {}
        self._vanished: list[SimTransport] = []
        self._next_port = _FIRST_EPHEMERAL_PORT
        self._opened = asyncio.Event()

    @contextmanager
    def on_host(self, host: str) -> Iterator[None]:
        """Code in this block, and tasks that it starts, run on `host`."""
        self.address_of(host)
        with SimProcess(host).running():
            yield

    def address_of(self, host: str) -> str:
        """Return the IP address of the host; hosts are numbered in order of appearance."""
        known = self._addresses.get(host)
        if known is None:
            known = self._addresses[host] = str(ipaddress.ip_address("10.0.0.1") + len(self._addresses))
        return known

    def link(self, source: str, target: str) -> LinkConditions:
        """Conditions from one host to another; changes apply to bytes sent later."""
        known = self._links.get((source, target))
        if known is None:
            initial = self._initial
            known = self._links[source, target] = LinkConditions(
                initial.delay_s_min, initial.delay_s_mean, initial.loss, initial.split, initial.is_blocked
            )
        return known

    def partition(self, hosts: Iterable[str], others: Iterable[str], *, one_way: bool = False) -> None:
        """Blocks traffic from `hosts` to `others`, and back unless `one_way`; connections stay open."""
        others = sorted(others)  # sorted, because the argument may be a set
        for host in sorted(hosts):
            for other in others:
                self._set_blocked(host, other, is_blocked=True)
                if not one_way:
                    self._set_blocked(other, host, is_blocked=True)

    def heal(self) -> None:
        """Remove all partitions."""
        for source, target in list(self._links):
            self._set_blocked(source, target, is_blocked=False)

    def cut(self, host: str, other: str) -> None:
        """Reset all connections between two hosts; new ones can be opened."""
        for transport, ends in list(self._transports.items()):
            if ends == (host, other):
                transport.reset(ConnectionResetError("connection reset by peer"))

    def kill(self, host: str) -> None:
        """Close the listeners on a host and reset its connections, as when its processes are killed.

        SimLoop.freeze stops their code.
        """
        for server in [server for server in self._listeners.values() if server.host == host]:
            server.close()
        for transport, ends in list(self._transports.items()):
            if ends[0] == host and transport not in self._vanished:
                transport.process_killed()
                self._vanished.append(transport)

    def close(self) -> None:
        """Close all listeners and connections at the end of the run."""
        for server in list(self._listeners.values()):
            server.close()
        for transport in list(self._transports):
            transport.abort()
        for transport in self._vanished:
            transport.finish_killed()
        self._vanished.clear()

    def listen(self, factory: ProtocolFactory, port: int | None) -> SimServer:
        """Implement loop.create_server.  Raises OSError if the port is in use on this host."""
        process = current_process()
        here = process.host
        number = port or self._ephemeral_port()
        if (here, number) in self._listeners:
            raise OSError(98, f"{here}:{number}: address already in use")
        server = SimServer(self._loop, factory, process, number, self.address_of(here), self._forget_listener)
        self._listeners[here, number] = server
        return server

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Implement loop.create_connection.  Raises ConnectionRefusedError, TimeoutError or socket.gaierror."""
        process = current_process()
        here, there = process.host, self._resolve(host)
        await self._handshake(here, there)
        server = self._listeners.get((there, port))
        if server is None:
            raise ConnectionRefusedError(111, f"{there}:{port}: connection refused")
        client, accepted = self._pair(here, there, port)
        with server.process.running():
            accepted.start(server.factory())
        protocol = factory()
        client.start(protocol)
        self._loop.trace.record(self._loop.time(), f"connect {here} {there}:{port}")
        return client, protocol

    async def _handshake(self, here: str, there: str) -> None:
        """Send a SYN and wait for its response, with retransmissions while the link is blocked."""
        deadline_s = self._loop.time() + CONNECT_TIMEOUT_S
        ways = (self.link(here, there), self.link(there, here))
        while any(way.is_blocked for way in ways):
            self._opened.clear()
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._opened.wait()
            except TimeoutError:
                raise TimeoutError(110, f"{there}: connection timed out") from None
        await asyncio.sleep(sum(way.arrival_delay_s(self._random) for way in ways))

    def _pair(self, here: str, there: str, port: int) -> tuple[SimTransport, SimTransport]:
        near, far = (self.address_of(here), self._ephemeral_port()), (self.address_of(there), port)
        client = self._transport((here, there), near, far)
        accepted = self._transport((there, here), far, near)
        client.attach(accepted)
        accepted.attach(client)
        return client, accepted

    def _transport(self, ends: tuple[str, str], address: Address, peer_address: Address) -> SimTransport:
        transport = SimTransport(
            self._loop,
            self._random,
            self.link(*ends),
            address=address,
            peer_address=peer_address,
            on_event=self._record,
            on_gone=self._forget_transport,
        )
        self._transports[transport] = ends
        return transport

    def _record(self, transport: SimTransport, segment: Segment) -> None:
        what = segment.value if isinstance(segment, Signal) else str(len(segment))
        source, target = transport.address, transport.peer_address
        self._loop.trace.record(self._loop.time(), f"{source[0]}:{source[1]} {target[0]}:{target[1]} {what}")

    def _resolve(self, host: str) -> str:
        if host in _LOCAL_NAMES:
            return current_process().host
        for name, address in self._addresses.items():
            if host in {name, address}:
                return name
        raise socket.gaierror(socket.EAI_NONAME, f"{host}: name or service not known")

    def _set_blocked(self, source: str, target: str, *, is_blocked: bool) -> None:
        self.link(source, target).is_blocked = is_blocked
        self._loop.trace.record(self._loop.time(), f"{'block' if is_blocked else 'open'} {source} {target}")
        self._opened.set()
        for transport, ends in list(self._transports.items()):
            if ends == (source, target):
                transport.outgoing.conditions_changed()

    def _ephemeral_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def _forget_listener(self, server: SimServer) -> None:
        self._listeners.pop((server.host, server.port), None)

    def _forget_transport(self, transport: SimTransport) -> None:
        self._transports.pop(transport, None)


class SimServer(asyncio.AbstractServer):
    """A listener; closing it keeps its connections."""

    def __init__(
        self,
        loop: SimLoop,
        factory: ProtocolFactory,
        process: SimProcess,
        port: int,
        address: str,
        on_close: Callable[[SimServer], None],
    ) -> None:
        self.factory = factory
        self.process = process
        self.host = process.host
        self.port = port
        self.sockets: Sequence[SimListenerName] = (SimListenerName((address, port)),)
        self._loop = loop
        self._on_close = on_close
        self._is_serving = True

    def close(self) -> None:
        """Stop listening; accepted connections stay open."""
        self._is_serving = False
        self.sockets = ()
        self._on_close(self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the simulation."""
        return self._loop

    def is_serving(self) -> bool:
        """Return True until `close`."""
        return self._is_serving

    async def start_serving(self) -> None:
        """No effect: it serves since its creation."""

    async def serve_forever(self) -> None:
        """Wait for cancellation, then close."""
        try:
            await self._loop.create_future()
        finally:
            self.close()

    async def wait_closed(self) -> None:
        """Return at once."""


class SimListenerName:
    """A listening socket with getsockname only."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        """Return the address and port."""
        return self._address

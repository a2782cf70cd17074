"""Listening sockets and the connections that came in through them."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket

from kctl.errors import KctlError
from kctl.limits import LISTEN_BACKLOG
from kctl.model import Endpoint
from kctl.server import open_files
from kctl.server.network.buffer_pool import BufferPool
from kctl.server.network.channel import OpenChannel
from kctl.server.network.connection import Connection
from kctl.server.network.turns import Turns
from kctl.server.requests.context import Peer

log = logging.getLogger(__name__)

_ACCEPTS_PER_TURN = 64
_IDLE_CHECKS_PER_TIMEOUT = 10
_RETRY_ACCEPT_S = 1.0


class ListenError(KctlError):
    """A listener could not be bound."""


class Acceptor:
    """All listeners of a broker.  Owner: event loop."""

    def __init__(self, *, open_channel: OpenChannel, connections_max_idle_ms: int) -> None:
        self._open_channel = open_channel
        self._idle_s = connections_max_idle_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._turns = Turns(self._loop)
        self._buffers = BufferPool(release=self._release_in_thread)
        self._descriptors_max = open_files.descriptors_for_connections(open_files.limit())
        self._refused_count = 0
        self._listeners: dict[socket.socket, str] = {}
        self._connections: dict[Connection, None] = {}
        self._idle_check: asyncio.TimerHandle | None = None
        self.malformed_count = 0

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def bind(self, endpoint: Endpoint) -> Endpoint:
        """Binds without accepting yet; port 0 becomes the port that the system chose.  Raises ListenError."""
        family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind((endpoint.host, endpoint.port))
        except OSError as error:
            sock.close()
            raise ListenError(_bind_problem(endpoint, error)) from None
        self._listeners[sock] = endpoint.listener
        port = sock.getsockname()[1]
        return Endpoint(endpoint.listener, endpoint.host, port, endpoint.security_protocol)

    def start(self) -> None:
        """Accepts from now on."""
        for sock in self._listeners:
            sock.listen(LISTEN_BACKLOG)
            self._loop.add_reader(sock, self._accept, sock)
        self._schedule_idle_check()

    def stop_accepting(self) -> None:
        """Closes the listeners; the connections stay."""
        for sock in self._listeners:
            self._loop.remove_reader(sock)
            sock.close()
        self._listeners.clear()

    def close(self) -> None:
        """Closes everything."""
        self.stop_accepting()
        if self._idle_check is not None:
            self._idle_check.cancel()
        for connection in list(self._connections):
            connection.close()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE}:
                    # Without a pause the loop would spin on a listener that stays readable.
                    log.warning("no file descriptors left: accepting pauses for %s s", _RETRY_ACCEPT_S)
                    self._loop.remove_reader(listener)
                    self._loop.call_later(_RETRY_ACCEPT_S, self._resume_accepting, listener)
                    return
                continue
            if sock.fileno() >= self._descriptors_max:
                self._refuse(sock)
            else:
                self._open(sock, "/" + _address_text(address[0]), self._listeners[listener])

    def _refuse(self, sock: socket.socket) -> None:
        """The system gives out the lowest free descriptor, so a high one tells that many are in use."""
        sock.close()
        self._refused_count += 1
        if self._refused_count == 1:
            log.warning(
                "refusing connections open_connections=%s descriptors_for_connections=%s: the other descriptors are "
                "reserved for log files; raise the limit on open files (ulimit -n, LimitNOFILE)",
                len(self._connections),
                self._descriptors_max,
            )

    def _open(self, sock: socket.socket, host: str, listener: str) -> None:
        if self._refused_count:
            log.warning("accepting connections again refused=%s", self._refused_count)
            self._refused_count = 0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection = Connection(
            sock,
            Peer(host, listener),
            loop=self._loop,
            turns=self._turns,
            buffers=self._buffers,
            open_channel=self._open_channel,
            on_close=self._forget,
            on_malformed=self._count_malformed,
        )
        self._connections[connection] = None

    def _resume_accepting(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    def _release_in_thread(self, buffer: memoryview) -> None:
        self._loop.run_in_executor(None, buffer.release)

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def _count_malformed(self) -> None:
        self.malformed_count += 1

    def _schedule_idle_check(self) -> None:
        if self._idle_s > 0:
            self._idle_check = self._loop.call_later(self._idle_s / _IDLE_CHECKS_PER_TIMEOUT, self._close_idle)

    def _close_idle(self) -> None:
        now_s = self._loop.time()
        for connection in list(self._connections):
            if connection.was_active or connection.is_muted:
                connection.was_active = False
                connection.last_active_s = now_s
            elif connection.last_active_s < now_s - self._idle_s:
                connection.close()
        self._schedule_idle_check()


def _address_text(address: str) -> str:
    """IPv4 addresses that arrive mapped into IPv6 are written as IPv4, as Java does."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _bind_problem(endpoint: Endpoint, error: OSError) -> str:
    where = f"{endpoint.host}:{endpoint.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use by another process: stop it, or choose another port with --port or listeners="
    if error.errno == errno.EACCES:
        return f"{where} may not be bound by this user: choose a port above 1023"
    return f"{where} cannot be bound: {error.strerror}: check the host in listeners="

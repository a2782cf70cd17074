"""Listening sockets and their connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from dataclasses import replace

from kctl.errors import KctlError
from kctl.limits import LISTEN_BACKLOG, Subject, bound
from kctl.model import Endpoint
from kctl.output.log_lines import by_peer
from kctl.server.network.connections.buffer_pool import BufferPool
from kctl.server.network.connections.channel import OpenChannel
from kctl.server.network.connections.connection import Connection
from kctl.server.network.connections.outbox import UnreadResponses
from kctl.server.network.connections.turns import Turns
from kctl.server.network.listen_settings import TLS_PROTOCOLS, ListeningState, ListenSettings
from kctl.server.network.tls.handshakes import TlsHandshakes
from kctl.server.network.tls.stream import TlsStream
from kctl.server.requests.context import ConnectionEnd, Peer, peer_address
from kctl.server.requests.recorder import ConnectionTiming
from kctl.system import open_files

REFUSED_SOCKETS_MAX = bound(
    Subject.CONNECTIONS,
    "refused connections that stay open for a time, so that their clients do not return at once",
    1_000,
    "connections",
    on_excess="further ones are closed at once",
)


log = logging.getLogger(__name__)

_ACCEPTS_PER_TURN = 64
_IDLE_CHECKS_PER_TIMEOUT = 10
_RETRY_ACCEPT_S = 1.0
_AT_START = "--port or listeners="
_OF_RUNNING_BROKER = "listeners="
"""How the user chooses a port, for error texts."""


class ListenError(KctlError):
    """A listener could not be bound."""


class Acceptor:
    """All listeners of a broker.  Owner: event loop."""

    def __init__(self, *, open_channel: OpenChannel, settings: ListenSettings) -> None:
        self._open_channel = open_channel
        self._settings = settings
        self._limits = settings.limits
        self._idle_s = settings.connections_max_idle_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._turns = Turns(self._loop)
        self._buffers = BufferPool(release=self._release_in_thread, bytes_max=settings.request_bytes_max)
        # As much again, so that clients that use up the other do not stop the controller.
        self._urgent_buffers = BufferPool(release=self._release_in_thread, bytes_max=settings.request_bytes_max)
        self._unread: UnreadResponses[Connection] = UnreadResponses(self._close_unread)
        self._descriptors_max = open_files.descriptors_for_connections(open_files.limit())
        self._listeners: dict[socket.socket, Endpoint] = {}
        self._bound: list[socket.socket] = []
        """The listeners that do not accept connections yet."""
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        """Listeners that have paused accepting connections."""
        self._full: dict[socket.socket, None] = {}
        """The paused listeners that resume when a connection closes."""
        self._connections: dict[Connection, None] = {}
        self._refused: dict[socket.socket, asyncio.TimerHandle] = {}
        """Refused sockets that are closed later."""
        self._handshakes = (
            TlsHandshakes(self._loop, settings.tls, on_done=self._connect, on_failed=self._released)
            if settings.tls is not None
            else None
        )
        self._idle_check: asyncio.TimerHandle | None = None
        self._port_option = _AT_START
        self.malformed_count = 0

    @property
    def connection_count(self) -> int:
        """Open connections, without unfinished TLS handshakes."""
        return len(self._connections)

    def measurements(self) -> ListeningState:
        """Return the state of the open connections."""
        return ListeningState(
            timings=[timing for connection in self._connections if (timing := connection.peer.timing) is not None],
            queued_requests=len(self._turns),
            queued_responses=sum(connection.is_writing for connection in self._connections),
            received_bytes=self._buffers.used_bytes,
            received_bytes_max=self._settings.request_bytes_max,
            malformed_requests=self.malformed_count,
        )

    def bind(self, endpoint: Endpoint) -> Endpoint:
        """Bind without accepting; return the endpoint, in which the port is never 0.  Raises ListenError."""
        try:
            sock = bound_socket(endpoint.host, endpoint.port, self._settings.receive_buffer_bytes)
        except OSError as error:
            raise ListenError(bind_problem(endpoint.host, endpoint.port, error, self._port_option)) from None
        self._listeners[sock] = endpoint
        self._bound.append(sock)
        return replace(endpoint, port=sock.getsockname()[1])

    def bound_addresses(self) -> list[tuple[str, str]]:
        """Return the name of each listener and the IP address that it is bound to."""
        return [(endpoint.listener, sock.getsockname()[0]) for sock, endpoint in self._listeners.items()]

    def unbind(self, listener: str) -> None:
        """Close a listener and its connections."""
        for sock in [sock for sock, endpoint in self._listeners.items() if endpoint.listener == listener]:
            self._close_listener(sock)
        if self._handshakes is not None:
            self._handshakes.close(listener)
        self.close_connections(lambda peer: peer.listener == listener)

    def close_connections(self, is_chosen: Callable[[Peer], bool]) -> int:
        """Close the connections of the chosen peers; return their number."""
        chosen = [connection for connection in self._connections if is_chosen(connection.peer)]
        for connection in chosen:
            connection.close()
        return len(chosen)

    def start(self) -> None:
        """Start accepting connections, also on listeners that were bound after an earlier call.

        Raises ListenError: see `bound_socket`.
        """
        for sock in self._bound:
            try:
                listen(sock)
            except OSError as error:
                endpoint = self._listeners[sock]
                port = sock.getsockname()[1]
                raise ListenError(bind_problem(endpoint.host, port, error, self._port_option)) from None
            self._loop.add_reader(sock, self._accept, sock)
        self._bound.clear()
        self._port_option = _OF_RUNNING_BROKER
        if self._idle_check is None:
            self._schedule_idle_check()

    def stop_accepting(self) -> None:
        """Close the listeners; the connections stay."""
        for sock in list(self._listeners):
            self._close_listener(sock)

    def close(self) -> None:
        """Close everything."""
        self.stop_accepting()
        if self._idle_check is not None:
            self._idle_check.cancel()
        if self._handshakes is not None:
            self._handshakes.close()
        for timer in self._refused.values():
            timer.cancel()
        for sock in list(self._refused):
            self._close_refused(sock)
        for connection in list(self._connections):
            connection.close()

    def _close_listener(self, sock: socket.socket) -> None:
        self._loop.remove_reader(sock)
        sock.close()
        del self._listeners[sock]
        self._full.pop(sock, None)
        timer = self._paused.pop(sock, None)
        if timer is not None:
            timer.cancel()
        if sock in self._bound:
            self._bound.remove(sock)

    def _accept(self, listener: socket.socket) -> None:
        endpoint = self._listeners[listener]
        for _ in range(_ACCEPTS_PER_TURN):
            if not self._limits.has_slot(endpoint.listener):
                log.info(
                    "accepting pauses until a connection closes listener=%s reason=%s",
                    endpoint.listener,
                    "max.connections",
                    extra=by_peer(endpoint.listener),
                )
                self._full[listener] = None
                self._pause(listener, _RETRY_ACCEPT_S)
                return
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE}:
                    # Without a pause the loop would spin on a listener that stays readable.
                    log.warning(
                        "cannot accept connections, trying again; raise the limit on open files (ulimit -n, "
                        "LimitNOFILE) listener=%s error=%s retry_ms=%d",
                        endpoint.listener,
                        error,
                        _RETRY_ACCEPT_S * 1000,
                    )
                    self._pause(listener, _RETRY_ACCEPT_S)
                    return
                continue
            if sock.fileno() >= self._descriptors_max:
                self._refuse(sock, endpoint)
            elif pause_ms := self._admit(sock, peer_address(address[0].partition("%")[0]), endpoint):
                self._pause(listener, pause_ms / 1000)
                return

    def _refuse(self, sock: socket.socket, endpoint: Endpoint) -> None:
        """Close a socket with a high descriptor: few others are free, because the system assigns the lowest one."""
        sock.close()
        log.warning(
            "closing a new connection, since the descriptors left are reserved for log files; raise the limit on open "
            "files (ulimit -n, LimitNOFILE) listener=%s descriptors_for_connections=%s",
            endpoint.listener,
            self._descriptors_max,
        )

    def _admit(self, sock: socket.socket, address: str, endpoint: Endpoint) -> int:
        """Open or refuse a connection; return for how many ms the listener has to pause."""
        admission = self._limits.admit(endpoint.listener, address, round(self._loop.time() * 1000))
        if admission.refusal is not None:
            log.info(
                "connection refused listener=%s peer=/%s reason=%s",
                endpoint.listener,
                address,
                admission.refusal,
                extra=by_peer(endpoint.listener),
            )
            if admission.close_after_ms and len(self._refused) < REFUSED_SOCKETS_MAX:
                delay_s = admission.close_after_ms / 1000
                self._refused[sock] = self._loop.call_later(delay_s, self._close_refused, sock)
            else:
                sock.close()
            return admission.pause_ms
        if self._limits.has_excess():
            self._close_least_active()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._settings.send_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.send_buffer_bytes)
        peer = Peer(
            "/" + address,
            endpoint.listener,
            security_protocol=endpoint.security_protocol,
            timing=ConnectionTiming(self._settings.measuring),
            end=ConnectionEnd(),
        )
        if endpoint.security_protocol in TLS_PROTOCOLS:
            assert self._handshakes is not None, "a TLS listener needs ListenSettings.tls"
            self._handshakes.begin(sock, peer)
        else:
            self._connect(sock, peer)
        return admission.pause_ms

    def _connect(self, stream: socket.socket | TlsStream, peer: Peer) -> None:
        is_urgent = peer.listener == self._settings.urgent_listener
        connection = Connection(
            stream,
            peer,
            loop=self._loop,
            turns=self._turns,
            buffers=self._urgent_buffers if is_urgent else self._buffers,
            unread=self._unread,
            open_channel=self._open_channel,
            on_close=self._forget,
            on_malformed=self._malformed,
            is_urgent=is_urgent,
        )
        self._connections[connection] = None

    def _close_least_active(self) -> None:
        """Make room for the protected listener: close the connection that has been idle for the longest time."""
        closable = [
            connection for connection in self._connections if self._limits.is_closable(connection.peer.listener)
        ]
        if closable:
            chosen = min(closable, key=lambda connection: (connection.was_active, connection.last_active_s))
            log.info(
                "idle connection closed listener=%s peer=%s reason=%s",
                chosen.peer.listener,
                chosen.peer.client_host,
                "max.connections",
                extra=by_peer(chosen.peer.listener),
            )
            chosen.close()

    def _close_unread(self, connection: Connection) -> None:
        log.info(
            "closing connection: responses that clients do not read fill the memory listener=%s peer=%s",
            connection.peer.listener,
            connection.peer.client_host,
            extra=by_peer(connection.peer.listener),
        )
        connection.close()

    def _close_refused(self, sock: socket.socket) -> None:
        del self._refused[sock]
        sock.close()

    def _pause(self, listener: socket.socket, delay_s: float) -> None:
        self._loop.remove_reader(listener)
        self._paused[listener] = self._loop.call_later(delay_s, self._resume_accepting, listener)

    def _resume_accepting(self, listener: socket.socket) -> None:
        timer = self._paused.pop(listener, None)
        if timer is not None:
            timer.cancel()
        if listener in self._listeners:
            self._full.pop(listener, None)
            self._loop.add_reader(listener, self._accept, listener)

    def _release_in_thread(self, buffer: memoryview) -> None:
        self._loop.run_in_executor(None, buffer.release)

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._released(connection.peer)
        if connection.peer.end is not None:
            connection.peer.end.run()

    def _released(self, peer: Peer) -> None:
        self._limits.released(peer.listener, peer.client_host[1:])
        for listener in [full for full in self._full if self._limits.has_slot(self._listeners[full].listener)]:
            self._resume_accepting(listener)

    def _malformed(self, peer: Peer, reason: str) -> None:
        self.malformed_count += 1
        log.info(
            "closing connection after a malformed request listener=%s peer=%s reason=%s",
            peer.listener,
            peer.client_host,
            reason,
            extra=by_peer(peer.listener),
        )

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


def bound_socket(host: str, port: int, receive_buffer_bytes: int = -1) -> socket.socket:
    """Return a bound non-blocking socket, for `listen`.  An empty host means every interface, IPv6 and IPv4.  Raises
    OSError.

    Connections are refused until it listens, as by newer Kafka (KAFKA-14658): clients try another broker while this
    one reads its logs.  Linux lets several sockets with SO_REUSEADDR bind a port on which none of them listens, so that
    a second broker would notice it only at the end of its start.  Therefore the option is set before the bind only if
    the port has connections of an earlier process.

    The size of the receive buffer is set before a connection exists, which inherits it, since the window scale is
    negotiated with the first segment.
    """
    if not host and socket.has_dualstack_ipv6():
        host = "::"
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError:  # of the idna codec, for example because a label is too long
        raise socket.gaierror(socket.EAI_NONAME, "not a host name") from None
    # Like Java, prefer the IPv4 address of a name that has both.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    # With the number of the protocol, asyncio sets TCP_NODELAY for connections of the endpoint for metrics.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if receive_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.setblocking(False)
        try:
            sock.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def listen(sock: socket.socket) -> None:
    """Let a bound socket accept connections.  Raises OSError.

    Connections inherit SO_REUSEADDR from their listener: they do not prevent the bind of the next start.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.listen(LISTEN_BACKLOG)


def bind_problem(host: str, port: int, error: OSError, port_option: str = _AT_START) -> str:
    """Return why a listener could not be bound, and what to do."""
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use by another process: stop it, or choose another port with {port_option}"
    if error.errno == errno.EACCES:
        return f"{where} may not be bound by this user: choose a port above 1023"
    return f"{where} cannot be bound: {error.strerror}: check the host in listeners="

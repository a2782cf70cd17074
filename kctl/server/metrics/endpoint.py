"""The HTTP endpoint for metrics: /metrics, /healthz and /readyz, read-only.

Bounded against scrapers: number of connections, bytes and time of a request, time of a response.  A connection that
waits for its client makes room for a new one, so that silent clients do not prevent health checks.  Scrapes at the same
time in the same format share one exposition, so that a thousand cost little more than one.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import NamedTuple

from kctl.limits import METRICS_SEND_MS_MAX, Subject, bound
from kctl.output.log_lines import by_peer
from kctl.server.network.acceptor import ListenError, bound_socket, listen
from kctl.system.reference_cycles import free_transports

METRICS_CONNECTIONS_MAX = bound(
    Subject.METRICS_ENDPOINT,
    "concurrent connections to the HTTP endpoint for metrics",
    32,
    "connections",
    on_excess="the one that has waited longest for its client, and at least one second, is closed; if there is none, "
    "further connections are closed at once",
)
METRICS_HEAD_BYTES_MAX = bound(
    Subject.METRICS_ENDPOINT,
    "request line and headers of one HTTP request",
    8 << 10,
    "bytes",
    on_excess="HTTP status 431, and the connection is closed",
)
METRICS_HEAD_MS_MAX = bound(
    Subject.METRICS_ENDPOINT,
    "time until an HTTP request has arrived, counted from the end of the last response",
    75_000,
    "ms",
    on_excess="the connection is closed",
)


# Reads the head of an HTTP/1.1 request of a scraper. Pure.
#
# Only the headers Accept and Connection are used. A request with a body is refused, because HTTP servers and proxies
# disagree about where bodies end (request smuggling).


_METHODS = frozenset({"GET", "HEAD"})


class Refused(Exception):
    """The request gets this status, and the connection is closed."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HttpRequest(NamedTuple):
    """The parts of a request that the endpoint uses."""

    path: str
    """The path without the query."""
    accept: str
    is_head: bool
    keeps_alive: bool


def parse_head(head: bytes) -> HttpRequest:
    """Return the request whose head ends with an empty line.  Raises Refused."""
    try:
        lines = head.decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise Refused(400, "the head of the request is not ASCII") from None
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise Refused(400, "the request line is not valid HTTP/1.1")
    method, target, version = parts
    if method not in _METHODS:
        raise Refused(405, "only GET and HEAD are allowed: the endpoint is read-only")
    headers = _headers(lines[1:])
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise Refused(400, "the request has a body")
    connection = headers.get("connection", "").lower()
    return HttpRequest(
        path=target.partition("?")[0],
        accept=headers.get("accept", ""),
        is_head=method == "HEAD",
        keeps_alive=version != "HTTP/1.0" and "close" not in connection,
    )


def _headers(lines: list[str]) -> dict[str, str]:
    """Return the values by name in lower case; those of a repeated header are joined by commas (RFC 9110, 5.2)."""
    headers: dict[str, str] = {}
    for line in lines:
        if not line:
            continue
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise Refused(400, "a header line has no name")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


log = logging.getLogger(__name__)

_ACCEPTS_PER_ITERATION = 16
_CLIENT_WAIT_S = 1.0
"""A connection that has waited for its client so long is closed when there are too many."""
_WRITE_BYTES = 64 << 10
_TEXT = "text/plain; charset=utf-8"
_HEAD_END = b"\r\n\r\n"
_LISTENER = "metrics"
"""Lines about its clients are folded apart from those of the broker's listeners."""


class ScrapeFailed(Exception):
    """The values could not be read; the scrape gets status 503 and this reason."""


class Page(NamedTuple):
    """A response."""

    status: int
    content_type: str
    body: Sequence[bytes]


class AddressOptions(NamedTuple):
    """The names under which the user gives the address, for error texts."""

    port: str
    host: str


OF_BROKER = AddressOptions("--metrics-port", "metrics.host")


class _Connection:
    """One connection, and since when it waits for its client, in seconds of the event loop's clock."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.since_s: float | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for the client within the block."""
        self.since_s = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            self.since_s = None

    async def drain(self) -> None:
        """Return when the socket has taken all bytes.  Raises ConnectionError."""
        with self.waiting():
            await self.writer.drain()


class MetricsEndpoint:
    """Call `bind`, `start`, and `close`.

    `scrape` makes the exposition for the value of an Accept header; `not_ready` returns why the broker does not serve
    clients now, or an empty text.
    """

    def __init__(
        self,
        scrape: Callable[[str], Awaitable[tuple[str, Sequence[bytes]]]],
        not_ready: Callable[[], Awaitable[str]],
        options: AddressOptions = OF_BROKER,
        *,
        remark: Callable[[], str] = str,
    ) -> None:
        """`remark` returns what /healthz says beside "ok"."""
        self._options = options
        self._scrape = scrape
        self._not_ready = not_ready
        self._remark = remark
        self._sock: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}

    def bind(self, host: str, port: int) -> int:
        """Bind without accepting yet; return the port.  Raises ListenError."""
        try:
            self._sock = bound_socket(host, port)
        except OSError as error:
            raise ListenError(bind_problem(host, port, error, self._options)) from None
        bound: int = self._sock.getsockname()[1]
        return bound

    async def start(self) -> None:
        """Accept connections from now on.  Raises ListenError: see `bound_socket`."""
        sock = self._sock
        assert sock is not None, "call bind first"
        try:
            listen(sock)
        except OSError as error:
            host, port = sock.getsockname()[:2]
            raise ListenError(bind_problem(host, port, error, self._options)) from None
        self._server = await asyncio.start_server(
            self._accept, sock=sock, limit=METRICS_HEAD_BYTES_MAX, backlog=_ACCEPTS_PER_ITERATION
        )
        # asyncio takes `backlog` both for accepts per iteration and for listen(), where it is too short: the system
        # drops the connections beyond it, and a client's next attempt comes seconds later.
        listen(sock)

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        elif self._sock is not None:
            self._sock.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= METRICS_CONNECTIONS_MAX and not self._has_made_room():
            log.warning(
                "refusing a metrics connection, there are too many peer=%s connections=%d",
                _host(writer),
                METRICS_CONNECTIONS_MAX,
                extra=by_peer(_LISTENER),
            )
            writer.transport.abort()
            return
        connection = _Connection(writer)
        task = asyncio.get_running_loop().create_task(self._serve(reader, connection), name="metrics-connection")
        self._connections[task] = connection
        task.add_done_callback(lambda task: self._connections.pop(task, None))

    def _has_made_room(self) -> bool:
        """Close the connection that has waited longest for its client, if that is long."""
        waiting = {
            task: connection.since_s for task, connection in self._connections.items() if connection.since_s is not None
        }
        task = min(waiting, key=waiting.__getitem__, default=None)
        if task is None or asyncio.get_running_loop().time() - waiting[task] < _CLIENT_WAIT_S:
            return False
        task.cancel()
        del self._connections[task]
        return True

    async def _serve(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        writer = connection.writer
        writer.transport.set_write_buffer_limits(0)  # drain returns when the socket has taken every byte.
        try:
            with suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError):
                while await self._exchange(reader, connection):
                    pass
        except Exception:
            log.exception("closing metrics connection after a failure peer=%s", _peer(writer))
        finally:
            # Discards unsent data; otherwise a peer that does not read would keep the memory in use.
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            writer.close()
            free_transports([writer.transport])

    async def _exchange(self, reader: asyncio.StreamReader, connection: _Connection) -> bool:
        """Serve one request; return whether the connection stays open."""
        writer = connection.writer
        try:
            async with asyncio.timeout(METRICS_HEAD_MS_MAX / 1000):
                with connection.waiting():
                    head = await reader.readuntil(_HEAD_END)
            request = parse_head(head[: -len(_HEAD_END)])
        except asyncio.LimitOverrunError:
            refusal = Refused(431, f"the head has more than {METRICS_HEAD_BYTES_MAX} bytes")
            return await self._refuse(connection, refusal)
        except Refused as refusal:
            return await self._refuse(connection, refusal)
        try:
            async with asyncio.timeout(METRICS_SEND_MS_MAX / 1000):
                await _send(connection, await self._page(request), request)
        except TimeoutError:
            log.warning(
                "closing a metrics connection, its response was not made and read in time peer=%s timeout_ms=%d",
                _host(writer),
                METRICS_SEND_MS_MAX,
                extra=by_peer(_LISTENER),
            )
            return False
        await asyncio.sleep(0)  # Nothing above waits if the client has sent several requests at once.
        return request.keeps_alive

    async def _refuse(self, connection: _Connection, refusal: Refused) -> bool:
        page = Page(refusal.status, _TEXT, (f"{refusal}\n".encode(),))
        async with asyncio.timeout(METRICS_SEND_MS_MAX / 1000):
            await _send(connection, page, HttpRequest("", "", is_head=False, keeps_alive=False))
        return False

    async def _page(self, request: HttpRequest) -> Page:
        match request.path:
            case "/metrics":
                try:
                    content_type, body = await self._scrape(request.accept)
                except ScrapeFailed as failure:
                    return Page(503, _TEXT, (f"{failure}\n".encode("utf-8", "replace"),))
                return Page(200, content_type, body)
            case "/healthz":
                # Alive: a restart would not help.  The text has the problem.
                remark = self._remark() or await self._not_ready()
                return Page(200, _TEXT, (f"{remark or 'ok'}\n".encode(),))
            case "/readyz":
                reason = await self._not_ready()
                return Page(503, _TEXT, (f"{reason}\n".encode(),)) if reason else Page(200, _TEXT, (b"ok\n",))
        return Page(404, _TEXT, (b"not found; there are /metrics, /healthz and /readyz\n",))


async def _send(connection: _Connection, page: Page, request: HttpRequest) -> None:
    writer = connection.writer
    length = sum(map(len, page.body))
    persistence = "keep-alive" if request.keeps_alive else "close"
    allow = "Allow: GET, HEAD\r\n" if page.status == HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {length}\r\nConnection: {persistence}\r\nX-Content-Type-Options: nosniff\r\n{allow}\r\n"
    )
    writer.write(head.encode())
    if not request.is_head:
        # Unless other connections send them too, pieces are freed as they are sent: those of 30 MB at once take 4 ms.
        pieces = list(reversed(page.body))
        del page
        gathered: list[bytes] = []
        size = 0
        while pieces:
            piece = pieces.pop()
            gathered.append(piece)
            size += len(piece)
            if size >= _WRITE_BYTES:
                writer.write(b"".join(gathered))
                gathered.clear()
                size = 0
                await connection.drain()
                await asyncio.sleep(0)  # drain does not pause while the socket takes everything.
        writer.write(b"".join(gathered))
    await connection.drain()


def _host(writer: asyncio.StreamWriter) -> str:
    """Return the address of the client without its port, so that lines about all its connections are equal."""
    name = writer.get_extra_info("peername")
    return str(name[0]) if name else "unknown"


def _peer(writer: asyncio.StreamWriter) -> str:
    """Return the address of the client."""
    name = writer.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if name else "unknown"


def bind_problem(host: str, port: int, error: OSError, options: AddressOptions = OF_BROKER) -> str:
    """Return why the endpoint could not be bound, and what to do."""
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use by another process: choose another port for metrics with {options.port}"
    if error.errno == errno.EACCES:
        return f"{where} may not be bound by this user: choose a {options.port} above 1023"
    return f"{where} cannot be bound for metrics: {error.strerror}: check {options.host}"

"""The server: assigns sessions to connections, passes requests to the keeper and sends responses after commits.

Responses and watch events of a batch are sent after its commit; those of reads too, because they may contain changes of
the batch.  If a commit fails, memory is ahead of the disk: all connections are closed without a response and the tree
is loaded again, so that no client has seen changes that are not on the disk.  Clients resume their sessions by
themselves.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import platform
import secrets
import socket
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kctl.errors import MalformedRequest, ZooKeeperError
from kctl.limits import LISTEN_BACKLOG, Subject, bound
from kctl.output.log_lines import by_peer
from kctl.system.steps import Steps
from kctl.zookeeper.embedded import four_letter_words
from kctl.zookeeper.embedded.acl import digest_identity
from kctl.zookeeper.embedded.batches import Batches
from kctl.zookeeper.embedded.connection import Connection, InputTurns
from kctl.zookeeper.embedded.keeper import Changes, Keeper
from kctl.zookeeper.embedded.messages import requests, responses
from kctl.zookeeper.embedded.messages.codes import Code, KeeperError, OpCode, Reader
from kctl.zookeeper.embedded.store import Store
from kctl.zookeeper.embedded.watches import TooManyWatches

ZOOKEEPER_CONNECTIONS_MAX = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "connections to the embedded ZooKeeper server",
    1_000,
    "connections",
    on_excess="the connection is closed",
)
ZOOKEEPER_SESSIONS_MAX = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "sessions of the embedded ZooKeeper server; one without a connection expires after its timeout, at most 40 s",
    20_000,
    "sessions",
    on_excess="the connection is closed",
)
ZOOKEEPER_IDENTITIES_MAX = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "digest identities of one connection to the embedded ZooKeeper server",
    100,
    "identities",
    on_excess="AUTH_FAILED, and the connection is closed",
)


log = logging.getLogger(__name__)
T = TypeVar("T")

DEFAULT_PORT = 2181
TICK_TIME_MS = 2000
OUTSTANDING_MAX = 1000
"""Waiting requests above which clients are not read from.  zookeeper.globalOutstandingLimit."""
EXPIRY_INTERVAL_MIN_S = 0.1
CONTAINER_CHECK_INTERVAL_S = 60.0
SPACE_CHECK_S = 2.0
"""The time between checks whether a disk that could not be written can be written again."""
_CHANGES = requests.WRITES | {OpCode.CLOSE_SESSION}


class EmbeddedZooKeeper:
    """One server with one data directory, from `start` to `stop`; it cannot be started again.

    Session timeouts are between two and twenty ticks.  `on_failure` is called when the server cannot continue, because
    the disk can be neither written nor read.
    """

    def __init__(
        self,
        data_dir: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tick_time_ms: int = TICK_TIME_MS,
        port_option: str = "--port",
        on_failure: Callable[[ZooKeeperError], None] = lambda _: None,
    ) -> None:
        """`port_option` is the option with which the user chooses the port, for error texts."""
        self.host = host
        self.port = port
        self._data_dir = data_dir
        self._tick_time_ms = tick_time_ms
        self._port_option = port_option
        self._on_failure = on_failure
        self._traffic = four_letter_words.Traffic()
        self._connections: dict[Connection, None] = {}
        self._by_session: dict[int, Connection] = {}
        self._with_output: dict[Connection, None] = {}
        self._paused: list[Connection] = []
        self._is_closed_to_clients = False
        self._write_problem = ""
        """Why the disk cannot be written; empty if it can.  Until then changes are refused, and reads are served."""
        self._space_check: asyncio.TimerHandle | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._sock: socket.socket | None = None
        self._listener: asyncio.Server | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._container_check: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop
        self._writer: ThreadPoolExecutor
        self._store: Store
        self._keeper: Keeper
        self._batches: Batches[Changes]

    @property
    def connect(self) -> str:
        """The address for zookeeper.connect."""
        return f"{self.host}:{self.port}"

    @property
    def session_timeout_ms_max(self) -> int:
        """The longest timeout of a session."""
        return 20 * self._tick_time_ms

    def has_session(self, session_id: int) -> bool:
        """Return whether the session is open: it has been neither closed nor expired.  After `start`."""
        return self._keeper.sessions.find(session_id) is not None

    def bind(self) -> None:
        """Take the port, without accepting clients.  Raises ZooKeeperError."""
        self._bound()

    def _bound(self) -> socket.socket:
        """Return the bound socket.  Raises ZooKeeperError."""
        if self._sock is not None:
            return self._sock
        # asyncio sets TCP_NODELAY only with the number of the protocol.  Without it, the second of two responses is
        # delayed by 40 ms.
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self.host, self.port))
            sock.listen(LISTEN_BACKLOG)
        except OSError as error:
            sock.close()
            raise _port_unusable(self.host, self.port, error, self._port_option) from error
        self.port = sock.getsockname()[1]
        self._sock = sock
        return sock

    async def start(self) -> None:
        """Start to accept clients.  Raises ZooKeeperError if the directory or the port cannot be used.

        The port is taken first, unless `bind` has done that, so that a refused start writes nothing.
        """
        self._loop = asyncio.get_running_loop()
        sock = self._bound()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="zookeeper-writer")
        try:
            self._store = await self._in_writer(Store, self._data_dir)
        except BaseException:
            self._writer.shutdown(wait=False)
            self._unbind()
            raise
        try:
            await self._load()
            turns = InputTurns(self._loop)
            self._listener = await self._loop.create_server(lambda: Connection(self, turns), sock=sock)
        except BaseException:
            await self._close_store()
            self._unbind()
            raise
        self._await_expiry(self._keeper.sessions.next_deadline_ms())
        self._check_containers()
        log.info(
            "ZooKeeper server started address=%s data=%s znodes=%d",
            self.connect,
            self._data_dir,
            len(self._keeper.tree),
        )

    async def stop(self) -> None:
        """Respond to executed requests and stop; sessions stay in the store and can be resumed after the next start.

        Without a `start`, or after one that has failed, only releases the port.
        """
        if self._listener is None:
            self._unbind()
            return
        self._is_closed_to_clients = True
        self._listener.close()
        for timer in (self._expiry, self._container_check, self._space_check):
            if timer is not None:
                timer.cancel()
        if self._recovery is not None:
            await asyncio.wait([self._recovery])
        await self._batches.stop()
        for connection in list(self._connections):
            connection.end()
            connection.flush()
        await self._close_store()
        log.info("ZooKeeper server stopped address=%s", self.connect)

    def _unbind(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def connection_made(self, connection: Connection) -> bool:
        """Register a connection; False if there are too many."""
        if self._is_closed_to_clients or len(self._connections) >= ZOOKEEPER_CONNECTIONS_MAX:
            return False
        self._connections[connection] = None
        return True

    def connection_lost(self, connection: Connection) -> None:
        """Unregister a connection."""
        self._connections.pop(connection, None)
        self._with_output.pop(connection, None)
        self._forget(connection)
        if self._by_session.get(connection.session_id) is connection:
            del self._by_session[connection.session_id]

    def has_output(self, connection: Connection) -> None:
        """Flush the connection after the current batch."""
        self._with_output[connection] = None

    def frame_received(self, connection: Connection, frame: bytes) -> None:
        """Execute a frame: the first one of a connection is a connect request, later ones keep the session alive."""
        if self._is_closed_to_clients:
            return
        self._traffic.received += 1
        is_first = connection.received_count == 1
        if not is_first:
            self._keeper.sessions.touch(connection.session_id, now_ms=self._now_ms())
        self._batches.add(
            functools.partial(self._handle_connect if is_first else self._handle_request, connection, frame)
        )
        if len(self._batches) > OUTSTANDING_MAX:
            connection.pause_reading("outstanding requests")
            self._paused.append(connection)

    def four_letter_word_response(self, word: str) -> str | None:
        """Return the output of a four-letter word."""
        settings = {
            "clientPort": self.port,
            "dataDir": self._data_dir,
            "tickTime": self._tick_time_ms,
            "maxClientCnxns": ZOOKEEPER_CONNECTIONS_MAX,
            "minSessionTimeout": 2 * self._tick_time_ms,
            "maxSessionTimeout": self.session_timeout_ms_max,
            "serverId": 0,
        }
        environment = {
            "host.name": socket.gethostname(),
            "python.version": platform.python_version(),
            "os.name": platform.system(),
            "os.version": platform.release(),
        }
        snapshot = four_letter_words.Snapshot(
            self._keeper,
            list(self._connections),
            len(self._batches),
            self._traffic,
            settings,
            environment,
            is_read_only=bool(self._write_problem),
        )
        return four_letter_words.response(word, snapshot)

    def _handle_connect(self, connection: Connection, frame: bytes) -> None:
        """Execute a connect request.  A client that has seen newer transactions belongs to another ensemble and is
        refused.
        """
        if not connection.is_open:
            return
        try:
            request = requests.decode_connect(frame)
        except MalformedRequest as problem:
            connection.abort(f"not a connect request: {problem}")
            return
        if request.last_zxid_seen > self._keeper.zxid:
            connection.abort(f"client has seen zxid 0x{request.last_zxid_seen:x}, last zxid is 0x{self._keeper.zxid:x}")
            return
        timeout_ms = min(max(request.timeout_ms, 2 * self._tick_time_ms), self.session_timeout_ms_max)
        if request.session_id == 0:
            if self._write_problem:
                connection.abort("a new session cannot be written")
                return
            if len(self._keeper.sessions) >= ZOOKEEPER_SESSIONS_MAX:
                connection.abort("too many sessions")
                return
            password = secrets.token_bytes(requests.PASSWORD_LENGTH)
            session = self._keeper.open_session(password, timeout_ms, now_ms=self._now_ms())
        else:
            known = self._keeper.resume_session(request.session_id, request.password, timeout_ms, now_ms=self._now_ms())
            if known is None:
                nothing = bytes(requests.PASSWORD_LENGTH)
                connection.send(responses.connected(0, 0, nothing, knows_read_only=request.knows_read_only))
                connection.end()
                return
            session = known
            self._leave_former_connection(session.id, connection)
        connection.begin_session(session.id)
        self._by_session[session.id] = connection
        self._await_expiry(session.deadline_ms)
        connection.send(
            responses.connected(timeout_ms, session.id, session.password, knows_read_only=request.knows_read_only)
        )

    def _leave_former_connection(self, session_id: int, connection: Connection) -> None:
        former = self._by_session.get(session_id)
        if former is not None and former is not connection:
            former.end()
            self._forget(former)

    def _forget(self, connection: Connection) -> None:
        """Remove the watches of a connection that gets no more events."""
        self._batches.add(functools.partial(self._keeper.forget_client, connection))

    def _handle_request(self, connection: Connection, frame: bytes) -> Steps[None] | None:
        """Execute a request, a long one in steps.  Without a header the connection is closed; a malformed body gets an
        error response.
        """
        if not connection.is_open or connection.session_id == 0:
            return None
        reader = Reader(frame)
        try:
            xid, op_code = reader.int32(), reader.int32()
        except MalformedRequest as problem:
            connection.abort(f"not a request: {problem}")
            return None
        try:
            request = requests.decode(op_code, reader)
            if request is None:
                message = "closing connection after an unknown ZooKeeper request type=%d peer=%s:%d"
                log.info(message, op_code, *connection.peer, extra=by_peer("zookeeper"))
                connection.send(responses.frame(xid, self._keeper.zxid, Code.UNIMPLEMENTED))
                connection.end()
                return None
            if self._write_problem and op_code in _CHANGES:
                raise KeeperError(Code.NOT_READ_ONLY)
            steps = self._respond(connection, xid, request)
        except (TooManyWatches, MalformedRequest, KeeperError) as problem:
            self._refuse(connection, xid, op_code, problem)
            return None
        return None if steps is None else self._complete(connection, xid, op_code, steps)

    def _complete(self, connection: Connection, xid: int, op_code: int, steps: Steps[None]) -> Steps[None]:
        """Execute the rest of a request."""
        try:
            yield from steps
        except (TooManyWatches, KeeperError) as problem:
            self._refuse(connection, xid, op_code, problem)

    def _refuse(
        self, connection: Connection, xid: int, op_code: int, problem: TooManyWatches | MalformedRequest | KeeperError
    ) -> None:
        match problem:
            case TooManyWatches():
                connection.abort("too many watches")
            case MalformedRequest():
                message = "refusing malformed ZooKeeper request type=%d peer=%s:%d error=%s"
                log.info(message, op_code, *connection.peer, problem, extra=by_peer("zookeeper"))
                if op_code in requests.WRITES:
                    self._keeper.refuse_write()
                connection.send(responses.frame(xid, self._keeper.zxid, Code.MARSHALLING_ERROR))
            case KeeperError():
                connection.send(responses.frame(xid, self._keeper.zxid, problem.code))
                if op_code == OpCode.CLOSE_SESSION:  # The disk cannot be written: the session expires later.
                    connection.end()

    def _respond(self, connection: Connection, xid: int, request: requests.Request) -> Steps[None] | None:
        response: responses.Response | None = None
        match request:
            case requests.Auth():
                self._authenticate(connection, xid, request)
                return None
            case requests.CloseSession():
                return self._close_session(connection, xid)
            case requests.Multi():
                steps = self._keeper.multi(connection, request, wall_ms=_wall_ms())
                return self._respond_after(connection, xid, steps)
            case (
                requests.SetWatches()
                | requests.GetAllChildrenNumber()
                | requests.GetEphemerals()
                | requests.MultiRead()
            ):
                return self._respond_after(connection, xid, self._keeper.read_in_steps(connection, request))
            case (
                requests.Create()
                | requests.Delete()
                | requests.SetData()
                | requests.SetAcl()
                | requests.Check()
                | requests.Reconfig()
            ):
                response = self._keeper.write(connection, request, wall_ms=_wall_ms())
            case _:
                response = self._keeper.read(connection, request)
        if response is not None and responses.is_long(response):
            return self._respond_after(connection, xid, responses.encoded(response))
        connection.send(responses.frame(xid, self._keeper.zxid, Code.OK, response))
        return None

    def _respond_after(self, connection: Connection, xid: int, steps: Steps[responses.Response | None]) -> Steps[None]:
        response = yield from steps
        if response is not None and responses.is_long(response):
            response = yield from responses.encoded(response)
        connection.send(responses.frame(xid, self._keeper.zxid, Code.OK, response))

    def _close_session(self, connection: Connection, xid: int) -> Steps[None]:
        yield from self._respond_after(connection, xid, self._keeper.close_session(connection.session_id))
        connection.end()

    def _authenticate(self, connection: Connection, xid: int, request: requests.Auth) -> None:
        """Add the identity of a digest; ip is known already.  Other schemes fail and close the connection."""
        match request.scheme:
            case "digest":
                identity = digest_identity(request.credentials)
                if identity not in connection.identities:
                    if len(connection.identities) > ZOOKEEPER_IDENTITIES_MAX:
                        connection.send(responses.frame(xid, 0, Code.AUTH_FAILED))
                        connection.end()
                        return
                    connection.identities += (identity,)
            case "ip":
                pass
            case _:
                connection.send(responses.frame(xid, 0, Code.AUTH_FAILED))
                connection.end()
                return
        connection.send(responses.frame(xid, 0, Code.OK))

    def _await_expiry(self, deadline_ms: int | None) -> None:
        """Set the timer for this deadline, unless it is set for an earlier one: one timer for all sessions."""
        if deadline_ms is None:
            return
        due_s = max(deadline_ms / 1000, self._loop.time() + EXPIRY_INTERVAL_MIN_S)
        if self._expiry is not None:
            if self._expiry.when() <= due_s:
                return
            self._expiry.cancel()  # A session with a shorter timeout has been opened.
        expire = functools.partial(self._expire_sessions, int(due_s * 1000))
        self._expiry = self._loop.call_at(due_s, lambda: self._batches.add(expire))

    def _expire_sessions(self, due_ms: int) -> Steps[None]:
        """Expire sessions, after the requests that have arrived: a loop that was blocked expires no session with a
        request waiting.  If this process was paused, its clients get the time for their requests again.
        """
        self._expiry = None
        late_ms = self._now_ms() - due_ms
        if late_ms >= self._tick_time_ms:
            log.warning("ZooKeeper server did not run, extending all sessions late_ms=%d", late_ms)
            self._keeper.sessions.extend(late_ms)
        if self._write_problem:
            self._await_expiry(self._now_ms() + round(SPACE_CHECK_S * 1000))
            return
        for session_id in self._keeper.sessions.overdue(self._now_ms()):
            log.warning("ZooKeeper session expired session_id=0x%x", session_id)
            yield from self._keeper.close_session(session_id)
            connection = self._by_session.pop(session_id, None)
            if connection is not None:
                connection.end()
        self._await_expiry(self._keeper.sessions.next_deadline_ms())

    def _check_containers(self) -> None:
        self._container_check = self._loop.call_later(CONTAINER_CHECK_INTERVAL_S, self._check_containers)
        if not self._write_problem:
            self._batches.add(self._keeper.remove_empty_containers)

    def _batch_done(self, arrived: list[float]) -> None:
        now = self._loop.time()
        for arrival in arrived:
            self._traffic.took((now - arrival) * 1000)
        with_output, self._with_output = self._with_output, {}
        for connection in with_output:
            connection.flush()
        self._traffic.sent += len(arrived)
        paused, self._paused = self._paused, []
        for connection in paused:
            connection.resume_reading("outstanding requests")

    def _commit_failed(self, error: BaseException) -> None:
        log.error(
            "ZooKeeper commit failed, loading the state from disk, and refusing changes until it can be written "
            "data=%s error=%s",
            self._data_dir,
            error,
        )
        self._write_problem = str(error)
        if self._space_check is not None:
            self._space_check.cancel()
        self._is_closed_to_clients = True
        for connection in list(self._connections):
            connection.abort("commit failed")
        self._recovery = self._loop.create_task(self._recover(), name="zookeeper-recovery")

    async def _recover(self) -> None:
        try:
            await self._load()
            self._is_closed_to_clients = False
            await self._check_space()
        except ZooKeeperError as error:
            log.error("ZooKeeper server failed data=%s error=%s", self._data_dir, error)
            assert self._listener is not None
            self._listener.close()
            self._on_failure(error)

    async def _check_space(self) -> None:
        """Accept changes again if the disk can be written, else try again later."""
        try:
            await self._in_writer(self._store.check_space)
        except (OSError, sqlite3.Error) as error:
            self._write_problem = str(error)
            self._space_check = self._loop.call_later(SPACE_CHECK_S, self._begin_space_check)
            return
        self._write_problem = ""
        log.info("ZooKeeper accepts changes again data=%s", self._data_dir)

    def _begin_space_check(self) -> None:
        self._recovery = self._loop.create_task(self._check_space(), name="zookeeper-space-check")

    async def _load(self) -> None:
        """Load the state from the disk, at start or after a failed commit."""
        stored = await self._in_writer(self._store.load)
        self._keeper = Keeper(stored, now_ms=self._now_ms(), wall_ms=_wall_ms())
        self._batches = Batches(
            self._writer,
            take_changes=self._keeper.take_changes,
            commit=self._store.commit,
            on_done=self._batch_done,
            on_failed=self._commit_failed,
        )

    async def _in_writer(self, function: Callable[..., T], *args: object) -> T:
        return await self._loop.run_in_executor(self._writer, functools.partial(function, *args))

    async def _close_store(self) -> None:
        await self._in_writer(self._store.close)
        self._writer.shutdown(wait=False)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _port_unusable(host: str, port: int, error: OSError, option: str) -> ZooKeeperError:
    if error.errno == errno.EADDRINUSE:
        message = f"port {port} of {host} is in use; stop its process or choose another port with {option}"
        return ZooKeeperError(message)
    if error.errno == errno.EACCES:
        return ZooKeeperError(f"port {port} of {host} may not be bound by this user; choose a {option} above 1023")
    return ZooKeeperError(f"cannot listen on {host}:{port}: {error.strerror}")

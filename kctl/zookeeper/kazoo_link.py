"""One ZooKeeper session over one kazoo client; this module and kazoo_requests are the only ones that import kazoo.

kazoo reads the socket in a thread.  Watch events, responses and state changes are passed to the event loop only by
`KazooLink.call_on_loop`, in the order in which ZooKeeper sent them.  kazoo's default handler would run events and
responses in two threads, which lets a response overtake an event that ZooKeeper sent before it.

Only kazoo's connection, keep-alive and wire format are used.  Its calls and recipes block and its results use locks, so
requests are put into its queue directly, with a _Call where kazoo expects its AsyncResult.

kazoo drops all watches when the connection breaks; they are collected then and set again with setWatches on the next
connection of the same session, which also delivers the missed events.

Owner: event loop, except for methods marked "kazoo's thread".
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import EventType, KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from kctl import errors
from kctl.zookeeper import refusals
from kctl.zookeeper.embedded.messages.codes import Code
from kctl.zookeeper.operations import (
    Check,
    Create,
    Delete,
    Operation,
    OperationResult,
    SessionKey,
    SessionState,
    SetData,
    WatchEvent,
    WatchEventType,
    ZnodeStat,
)
from kctl.zookeeper.security import Access, ZooKeeperSecurity, tls_problem
from kctl.zookeeper.set_watches import IgnoredResponse, SetWatches, Watch, batches

# Translates operations to kazoo's requests, and its results and errors back; paths are relative to the chroot.


_ERRORS_OF_OTHER_OPERATIONS = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""The results of the operations before and after the failed one in a failed multi."""


class KazooRequests:
    """Requests below one chroot, with the ACLs that new znodes get."""

    def __init__(self, chroot: str, security: ZooKeeperSecurity) -> None:
        self._chroot = chroot
        self._security = security

    def full_path(self, path: str) -> str:
        """Return the path on the server.

        Raises ZooKeeperError for text that has no encoding: kazoo's thread, and with it the session, would end.
        """
        try:
            path.encode()
        except UnicodeEncodeError:
            raise refusals.refused(Code.BAD_ARGUMENTS, path) from None
        return self._chroot if path == "/" and self._chroot else self._chroot + path

    def relative_path(self, path: str) -> str:
        """Return the path relative to the chroot."""
        return path.removeprefix(self._chroot) or "/"

    def of(self, operation: Operation) -> Any:
        """Return the request of one operation."""
        path = self.full_path(operation.path)
        match operation:
            case Create():
                flags = (1 if operation.ephemeral else 0) | (2 if operation.sequence else 0)
                return wire.Create(path, operation.data, self._convert_acls(operation.path), flags)
            case SetData():
                return wire.SetData(path, operation.data, operation.version)
            case Delete():
                return wire.Delete(path, operation.version)
            case Check():
                return wire.CheckVersion(path, operation.version)

    def multi(self, operations: Sequence[Operation]) -> Any:
        """Return the request that performs all operations or none."""
        return wire.Transaction([self.of(operation) for operation in operations])

    def multi_results(self, operations: Sequence[Operation], results: Sequence[Any]) -> list[OperationResult]:
        """Return the results of a multi.  Raises ZooKeeperError for the operation that failed."""
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, _ERRORS_OF_OTHER_OPERATIONS):
                raise error_of(result, operation.path)
        return [self._convert_result(result) for result in results]

    def chroot_creations(self) -> Iterator[tuple[str, Any]]:
        """Yield the path and the request of each znode of the chroot, parents first."""
        end = self._chroot.find("/", 1)
        while self._chroot:
            path = self._chroot if end < 0 else self._chroot[:end]
            yield path, wire.Create(path, b"", self._convert_acls("/"), 0)
            if end < 0:
                return
            end = self._chroot.find("/", end + 1)

    def _convert_acls(self, path: str) -> Any:
        """Return the ACLs of a new znode."""
        match self._security.access_of(path):
            case Access.OPEN:
                return OPEN_ACL_UNSAFE
            case Access.READABLE:
                return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
            case Access.PRIVATE:
                return CREATOR_ALL_ACL

    def _convert_result(self, result: Any) -> OperationResult:
        if isinstance(result, str):
            return self.relative_path(result)
        return True if result is True else ZnodeStat._make(result)


def error_of(error: Exception, path: str) -> errors.ZooKeeperError:
    """Return the error of a request for `path`, from kazoo's exception."""
    if isinstance(error, kazoo_errors.SessionExpiredError):  # kazoo's ConnectionClosedError is a subclass.
        return refusals.session_lost(path)
    if isinstance(error, kazoo_errors.ConnectionLoss):
        return refusals.connection_lost(path)
    if isinstance(error, kazoo_errors.ZookeeperError):
        return refusals.refused(error.code, path)
    return errors.ZooKeeperError(f"unexpected response from ZooKeeper for znode {path}: {error!r}", path)


# ruff: noqa: SLF001   docs/decisions/dependencies.md has what kazoo offers no public way for


log = logging.getLogger(__name__)

IN_FLIGHT_MAX = 64
"""Requests passed to kazoo at a time: each is a byte in a pipe to its thread, and a full pipe would block the loop."""
CLOSE_TIMEOUT_S = 3.0
"""How long to wait for the confirmation that the session is closed; shorter without a connection."""
CLOSE_TIMEOUT_DISCONNECTED_S = 0.2

_kazoo_log = logging.getLogger("kctl.zookeeper.kazoo")
# The session logs state changes itself, once.  A filter, because a level can be changed while the broker runs: kazoo's
# requests and responses at DEBUG have the data of znodes in them, credentials among them.
_kazoo_log.addFilter(lambda record: record.levelno >= logging.ERROR)

_EVENT_TYPES = {
    EventType.CREATED: WatchEventType.CREATED,
    EventType.DELETED: WatchEventType.DELETED,
    EventType.CHANGED: WatchEventType.CHANGED,
    EventType.CHILD: WatchEventType.CHILD,
}


class KazooLink:
    """Exists as long as its session; paths in calls and errors are relative to the chroot.

    Requests wait while the connection is down; reads in flight are sent again after a reconnect.
    """

    def __init__(
        self,
        hosts: str,
        chroot: str,
        session_timeout_ms: int,
        on_watch: Callable[[KazooLink, WatchEvent], None],
        on_state: Callable[[KazooLink, SessionState], None],
        security: ZooKeeperSecurity | None = None,
        *,
        on_latency: Callable[[float], None] = lambda _ms: None,
        continues: SessionKey | None = None,
    ) -> None:
        """`continues` is a session of another client, which this one takes over."""
        self.loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[None] = self.loop.create_future()
        self.session_id = 0
        self._password = b""
        self.session_timeout_ms = session_timeout_ms
        """The timeout that the ensemble has granted."""
        self.is_secured = False
        """Whether a TLS handshake has succeeded.  With TLS 1.3 a server refuses the client's certificate after it."""
        security = security or ZooKeeperSecurity()
        self._tls = security.tls
        self._requests = KazooRequests(chroot, security)
        self._on_watch = on_watch
        self._on_state = on_state
        self._on_latency = on_latency
        self._ended: asyncio.Future[None] = self.loop.create_future()
        self._is_up = False
        self._is_over = False
        self._waiting: deque[_Call] = deque()
        self._in_flight: dict[_Call, None] = {}
        self._to_repeat: list[_Call] = []
        self._handler = LoopHandler(self)
        self._client = KazooClient(
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            handler=self._handler,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0),
            logger=_kazoo_log,
            client_id=None if continues is None else (continues.session_id, continues.password),
        )
        self._note_timeouts()
        self._client.add_listener(self._kazoo_changed)

    @property
    def session_key(self) -> SessionKey:
        """The session with its password, when connected."""
        return SessionKey(self.session_id, self._password)

    def start(self) -> None:
        """Start kazoo's thread and connect."""
        self._client.start_async()

    def _note_timeouts(self) -> None:
        """Keep the timeout of each connection, which kazoo returns only as its read timeout: two thirds of it."""
        connection = self._client._connection
        connect = connection._connect

        def connect_and_note(*args: object) -> tuple[float, float]:
            read_timeout_ms, connect_timeout_ms = connect(*args)
            self.session_timeout_ms = round(read_timeout_ms * 3 / 2)
            return read_timeout_ms, connect_timeout_ms

        connection._connect = connect_and_note

    async def close(self) -> None:
        """Close the session and wait briefly for the confirmation; does not wait for a blocked thread."""
        timeout_s = CLOSE_TIMEOUT_S if self._is_up else CLOSE_TIMEOUT_DISCONNECTED_S
        self._end()
        client = self._client
        if not self._ended.done() and not client._stopped.is_set():
            # KazooClient.stop() does the same and then joins its thread, which may be blocked in connect().
            client._stopped.set()
            client._queue.append((wire.CloseInstance, None))
            with contextlib.suppress(OSError, AttributeError):  # The thread has just ended.
                client._connection._write_sock.send(b"\0")
        await asyncio.wait([self._ended], timeout=timeout_s)

    async def get(self, path: str, *, watch: bool) -> tuple[bytes, ZnodeStat]:
        """See ZooKeeper.get."""
        full = self._requests.full_path(path)
        watcher = Watch(Watch.DATA, full) if watch else None
        data, stat = await self._read(path, wire.GetData(full, watcher), watcher)
        return data or b"", ZnodeStat._make(stat)

    async def children(self, path: str, *, watch: bool) -> list[str]:
        """See ZooKeeper.children."""
        full = self._requests.full_path(path)
        watcher = Watch(Watch.CHILD, full) if watch else None
        names: list[str] = await self._read(path, wire.GetChildren(full, watcher), watcher)
        return names

    async def exists(self, path: str, *, watch: bool) -> ZnodeStat | None:
        """See ZooKeeper.exists."""
        full = self._requests.full_path(path)
        watcher = Watch(Watch.DATA, full) if watch else None
        stat = await self._read(path, wire.Exists(full, watcher), watcher)
        return None if stat is None else ZnodeStat._make(stat)

    async def sync(self, path: str) -> None:
        """See ZooKeeper.sync."""
        await self._read(path, wire.Sync(self._requests.full_path(path)), None)

    async def create(self, operation: Create) -> str:
        """Create one znode; see ZooKeeper.create."""
        return self._requests.relative_path(await self._write(operation.path, self._requests.of(operation)))

    async def set(self, operation: SetData) -> ZnodeStat:
        """Replace the data of one znode; see ZooKeeper.set."""
        return ZnodeStat._make(await self._write(operation.path, self._requests.of(operation)))

    async def delete(self, operation: Delete) -> None:
        """Delete one znode; see ZooKeeper.delete."""
        await self._write(operation.path, self._requests.of(operation))

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """See ZooKeeper.multi."""
        path = operations[0].path if operations else "/"
        results = await self._write(path, self._requests.multi(operations))
        return self._requests.multi_results(operations, results)

    async def make_chroot(self) -> None:
        """Create the znode of the chroot and its parents, where they are missing."""
        for path, request in self._requests.chroot_creations():
            with contextlib.suppress(errors.NodeExistsError):
                await self._write(path, request)

    def secured(self, sock: Any, host: str, timeout_s: float | None) -> Any:
        """Return the socket with TLS, if the session uses it; `host` is the name in the connect string.  kazoo's
        thread.

        A host name that a reverse look-up returns is never accepted (CVE-2026-24281).
        """
        context = self._tls
        if context is None:
            return sock
        from kctl.system.tls_sockets import wrap_socket  # noqa: PLC0415 - most sessions have no TLS

        try:
            sock.settimeout(timeout_s)
            secured = wrap_socket(context, sock, host)
        except OSError as error:
            sock.close()
            self.call_on_loop(self._tls_failed, tls_problem(error, host))
            raise
        self.is_secured = True
        return secured

    def _tls_failed(self, problem: str) -> None:
        """Fail the start of the session; a later connection is tried again until the session expires."""
        log.warning("cannot secure the connection to ZooKeeper, closing it error=%s", problem)
        if not self.connected.done():
            self.connected.set_exception(errors.ZooKeeperError(problem))

    async def _read(self, path: str, request: object, watch: Watch | None) -> Any:
        return await self._call(_Call(self, path, request, watch, may_be_repeated=True))

    async def _write(self, path: str, request: object) -> Any:
        return await self._call(_Call(self, path, request, None, may_be_repeated=False))

    async def _call(self, call: _Call) -> Any:
        if self._is_over:
            raise refusals.session_lost(call.path)
        self._waiting.append(call)
        started_s = self.loop.time()
        self._pump()
        try:
            return await call.future
        finally:
            self._on_latency((self.loop.time() - started_s) * 1000)
            # The traceback of an error refers to this frame: without this, both would wait for the garbage collector.
            del call

    def call_on_loop(self, callback: Callable[..., None], *args: object) -> None:
        """Call on the event loop, after all earlier calls; from any thread.  Does nothing if the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            log.debug("event loop is closed, ignoring a call from kazoo's thread callback=%r", callback)

    def on_response(self, call: _Call, value: object, error: Exception | None) -> None:
        """Complete a request, or keep a read for repetition if the connection broke."""
        self._in_flight.pop(call, None)
        if isinstance(error, kazoo_errors.ConnectionLoss):
            self._is_up = False  # The state change follows; waiting requests must not overtake repeated ones.
        if call.future.done():  # Cancelled, or the session is over.
            pass
        elif error is None:
            call.future.set_result(value)
        elif isinstance(error, kazoo_errors.ConnectionLoss) and call.may_be_repeated:
            self._to_repeat.append(call)
        else:
            call.future.set_exception(error_of(error, call.path))
        self._pump()

    def watch_fired(self, kind: WatchEventType, path: str) -> None:
        """Pass on a watch event with the path relative to the chroot."""
        if not self._is_over:
            self._on_watch(self, WatchEvent(kind, self._requests.relative_path(path)))

    def thread_ended(self) -> None:
        """Report the end of the session if kazoo's thread has ended unexpectedly."""
        if not self._is_over:  # kazoo has stopped reconnecting, which is not expected.
            self._changed(SessionState.EXPIRED)
        if not self._ended.done():
            self._ended.set_result(None)
        # kazoo's client, its connection, its handler and this link refer to each other.
        self._client._connection.__dict__.clear()
        self._client.__dict__.clear()
        self._handler.__dict__.clear()

    def _pump(self) -> None:
        """Pass requests to kazoo while the connection is up."""
        while self._is_up and self._waiting and len(self._in_flight) < IN_FLIGHT_MAX:
            call = self._waiting.popleft()
            if not call.future.done():
                self._in_flight[call] = None
                self._client._call(call.request, call)

    def _changed(self, state: SessionState, session: tuple[int, bytes] | None = None) -> None:
        """Pass on a state change; `session` are the id and the password of one that is connected."""
        if self._is_over:
            return
        self._is_up = state is SessionState.CONNECTED
        if session is not None:
            self.session_id, self._password = session
            self._waiting.extendleft(reversed(self._to_repeat))
            self._to_repeat.clear()
            if not self.connected.done():
                self.connected.set_result(None)
        elif state is SessionState.EXPIRED:
            self._end()
        self._on_state(self, state)
        self._pump()

    def _end(self) -> None:
        """Fail all requests with SessionLostError; later responses are ignored."""
        self._is_up = False
        self._is_over = True
        for call in (*self._in_flight, *self._to_repeat, *self._waiting):
            if not call.future.done():
                call.future.set_exception(refusals.session_lost(call.path))
        self._in_flight.clear()
        self._to_repeat.clear()
        self._waiting.clear()

    def _kazoo_changed(self, state: str) -> None:
        """Pass on a state change.  kazoo's thread."""
        client = self._client
        if state == KazooState.CONNECTED:
            self._set_watches_again()
            self.call_on_loop(self._changed, SessionState.CONNECTED, client.client_id)
        elif state == KazooState.SUSPENDED:
            self.call_on_loop(self._changed, SessionState.SUSPENDED)
        elif client.client_state in {KeeperState.EXPIRED_SESSION, KeeperState.AUTH_FAILED}:
            client._stopped.set()  # kazoo would open a new session by itself; `reconnect` does that.
            self.call_on_loop(self._changed, SessionState.EXPIRED)

    def _set_watches_again(self) -> None:
        """Set the watches of the previous connection again.  kazoo's thread, before other requests on a new
        connection.
        """
        client = self._client
        watches, self._handler.lost_watches = self._handler.lost_watches, []
        for batch in batches(watches):
            for watch in batch:
                keeper = client._child_watchers if watch.kind == Watch.CHILD else client._data_watchers
                keeper[watch.path].add(watch)
            client._call(SetWatches(client.last_zxid, batch), IgnoredResponse())


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler without worker threads: callbacks run on the event loop, in their original order."""

    def __init__(self, link: KazooLink) -> None:
        super().__init__()
        self.lost_watches: list[Watch] = []
        self._link = link
        self._last_event: object = None

    def start(self) -> None:
        """Allow callbacks."""
        self._running = True

    def stop(self) -> None:
        """Refuse callbacks."""
        self._running = False

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Connect, with TLS if the session uses it.  kazoo's thread."""
        sock = super().create_connection(*args, **kwargs)
        return self._link.secured(sock, kwargs.get("hostname", ""), kwargs.get("timeout"))

    def spawn(self, func: Callable[..., None], *args: object, **kwargs: object) -> Any:
        """Start kazoo's connection thread, the only one it spawns; the link is notified when it ends."""
        return super().spawn(self._run, func)

    def _run(self, func: Callable[[], None]) -> None:
        """Run kazoo's connection loop.  kazoo's thread."""
        try:
            func()
        finally:
            self._link._client.close()
            self._link.call_on_loop(self._link.thread_ended)

    def dispatch_callback(self, callback: Any) -> None:
        """Pass on a watch event.  kazoo's thread.

        A deletion is reported twice if data and children are watched; only one event is passed on, as ZooKeeper sent
        it.
        """
        (event,) = callback.args
        if event.type == EventType.NONE:
            self.lost_watches.append(callback.func)
        elif event is not self._last_event:
            self._last_event = event
            self._link.call_on_loop(self._link.watch_fired, _EVENT_TYPES[event.type], event.path)


class _Call:
    """A request and the future of its response; kazoo uses it as its AsyncResult."""

    __slots__ = ("_link", "_watch", "future", "may_be_repeated", "path", "request")

    def __init__(
        self, link: KazooLink, path: str, request: object, watch: Watch | None, *, may_be_repeated: bool
    ) -> None:
        self._link = link
        self._watch = watch
        self.path = path
        self.request = request
        self.may_be_repeated = may_be_repeated
        self.future: asyncio.Future[Any] = link.loop.create_future()

    def set(self, value: object) -> None:
        """Receive the response; before kazoo registers the watch.  kazoo's thread."""
        if self._watch is not None and self._watch.kind != Watch.CHILD:
            self._watch.kind = Watch.EXIST if value is None else Watch.DATA
        if isinstance(self.request, wire.GetChildren):
            value = in_order(cast("list[str]", value))
        self._link.call_on_loop(self._link.on_response, self, value, None)

    def set_exception(self, error: Exception) -> None:
        """Receive an error.  kazoo's thread, or the event loop when kazoo refuses a request."""
        self._link.call_on_loop(self._link.on_response, self, None, error)


def in_order(names: list[str]) -> list[str]:
    """Return the names, sorted in parts: other threads wait while one is sorted, 60 ms for 100,000 names at once."""
    parts = [sorted(names[start : start + _SORTED_AT_ONCE]) for start in range(0, len(names), _SORTED_AT_ONCE)]
    return list(heapq.merge(*parts))


_SORTED_AT_ONCE = 2_000

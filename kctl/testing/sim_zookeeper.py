"""A deterministic ZooKeeper in memory for simulations, with sessions and injected faults.

It uses the keeper of the embedded server, over simulated connections with delays and failures.  A broken connection
loses all messages in flight in both directions.  A session without a connection for its timeout expires, and its client
is notified when it reconnects.

Time is the loop's; random delays come from `delay_s`.  Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from kctl.errors import NoNodeError, SessionLostError
from kctl.system.steps import run_at_once
from kctl.testing.sim_process import NO_PROCESS
from kctl.zookeeper import refusals
from kctl.zookeeper.embedded.acl import OPEN_ACL_UNSAFE, Id
from kctl.zookeeper.embedded.keeper import Keeper, StoredState
from kctl.zookeeper.embedded.messages import requests, responses
from kctl.zookeeper.embedded.messages.codes import Code, CreateMode, EventType, KeeperError
from kctl.zookeeper.operations import (
    ANY_VERSION,
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
    delete_tree,
    make_path,
)
from kctl.zookeeper.paths import parent

PASSWORD = bytes(requests.PASSWORD_LENGTH)


class SimZooKeeper:
    """The ensemble.  `delay_s` returns the delay of each message; messages of one connection stay in order."""

    def __init__(self, *, delay_s: Callable[[], float] = lambda: 0.0) -> None:
        self.delay_s = delay_s
        self.keeper = Keeper(StoredState(), now_ms=0, wall_ms=0)
        self.sessions: list[SimZooKeeperSession] = []

    def session(
        self,
        *,
        session_timeout_ms: int = 18_000,
        on_watch: Callable[[WatchEvent], None] = lambda _: None,
        on_state: Callable[[SessionState], None] = lambda _: None,
    ) -> SimZooKeeperSession:
        """Create a session that is not started yet; arguments as for ZooKeeperSession."""
        session = SimZooKeeperSession(self, session_timeout_ms, on_watch, on_state)
        self.sessions.append(session)
        return session


class SimZooKeeperSession:
    """Implements `kctl.zookeeper.operations.ZooKeeper`; `break_connection`, `heal` and `expire` are its faults."""

    def __init__(
        self,
        ensemble: SimZooKeeper,
        session_timeout_ms: int,
        on_watch: Callable[[WatchEvent], None],
        on_state: Callable[[SessionState], None],
    ) -> None:
        self._ensemble = ensemble
        self._session_timeout_ms = session_timeout_ms
        self._on_watch = on_watch
        self._on_state = on_state
        self._state = SessionState.CLOSED
        self._session_id = 0
        self._last_zxid = 0
        self._connection: _Connection | None = None
        self._is_partitioned = False
        self._expiry: asyncio.TimerHandle | None = None
        self._watched: dict[tuple[str, str], None] = {}
        self._waiting: deque[_Call] = deque()
        self._under_way: dict[_Call, None] = {}

    @property
    def session_id(self) -> int:
        """Id of the session; 0 before `start`."""
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """Timeout of the session."""
        return self._session_timeout_ms

    @property
    def session_key(self) -> SessionKey:
        """The session with its password."""
        return SessionKey(self._session_id, PASSWORD)

    @property
    def state(self) -> SessionState:
        """State from the view of the client, which may be later than the server."""
        return self._state

    async def start(self, timeout_ms: int) -> None:
        """Open the session.  Raises ZooKeeperError after `timeout_ms` while the client is partitioned."""
        if self._is_partitioned:
            await asyncio.sleep(timeout_ms / 1000)
            raise refusals.connection_lost("/")
        session = self._ensemble.keeper.open_session(PASSWORD, self._session_timeout_ms, now_ms=0)
        self._session_id = session.id
        self._connect()
        self._become(SessionState.CONNECTED)
        await asyncio.sleep(0)

    async def reconnect(self, timeout_ms: int) -> None:
        """Close the session and open a new one."""
        await self.close()
        await self.start(timeout_ms)

    async def close(self) -> None:
        """Close the session; that of a disconnected client ends by its timeout."""
        self._state = SessionState.CLOSED
        if self._connection is not None:
            self._disconnect()
            run_at_once(self._ensemble.keeper.close_session(self._session_id))
        self._lose_everything()
        await asyncio.sleep(0)

    async def close_other(self, key: SessionKey, timeout_ms: int) -> None:
        """Close a session of another client.  Raises ZooKeeperError after `timeout_ms` while partitioned."""
        if self._is_partitioned:
            await asyncio.sleep(timeout_ms / 1000)
            raise refusals.connection_lost("/")
        keeper = self._ensemble.keeper
        if keeper.resume_session(key.session_id, key.password, self._session_timeout_ms, now_ms=0) is not None:
            run_at_once(keeper.close_session(key.session_id))
        await asyncio.sleep(0)

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes, ZnodeStat]:
        """Return the data and the stat; `watch` watches for its change or deletion.  Raises NoNodeError."""
        response = await self._request(path, requests.GetData(path, watch), watch="data" if watch else "")
        assert isinstance(response, responses.Data)
        return response.data or b"", response.stat

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the sorted names of the children; `watch` watches for a change of them.  Raises NoNodeError."""
        response = await self._request(path, requests.GetChildren(path, watch), watch="children" if watch else "")
        assert isinstance(response, responses.Children)
        return sorted(response.names)

    async def exists(self, path: str, *, watch: bool = False) -> ZnodeStat | None:
        """Return the stat, or None; `watch` watches for creation, change or deletion."""
        try:
            response = await self._request(path, requests.Exists(path, watch), watch="exist" if watch else "")
        except NoNodeError:
            return None
        assert isinstance(response, responses.Changed)
        return response.stat

    async def sync(self, path: str) -> None:
        """Return after all earlier writes have reached the server of this session."""
        await self._request(path, requests.Sync(path))

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Return the path of the new znode, which has a number appended if `sequence`.

        Raises NodeExistsError, and NoNodeError for a missing parent without `make_parents`.
        """
        request = _request_of(Create(path, data, ephemeral, sequence))
        try:
            response = await self._request(path, request)
        except NoNodeError:
            if not make_parents:
                raise
            await make_path(self, parent(path))
            response = await self._request(path, request)
        assert isinstance(response, responses.Created)
        return response.path

    async def set(self, path: str, data: bytes | None, *, version: int = ANY_VERSION) -> ZnodeStat:
        """Replace the data if the version matches.  Raises NoNodeError and BadVersionError."""
        response = await self._request(path, requests.SetData(path, data, version))
        assert isinstance(response, responses.Changed)
        return response.stat

    async def delete(self, path: str, *, version: int = ANY_VERSION, recursive: bool = False) -> None:
        """Delete the znode if the version matches, with `recursive` all below it too."""
        if recursive:
            await delete_tree(self, path)
        else:
            await self._request(path, requests.Delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Perform all operations or none.  Raises the error of the first that is refused."""
        request = requests.Multi(tuple(_request_of(operation) for operation in operations))
        response = await self._request(operations[0].path if operations else "/", request)
        assert isinstance(response, responses.Results)
        if response.failure is not None:
            index, code = response.failure
            raise refusals.refused(code, operations[index].path)
        return [_result_of(result) for result in response.results]

    def break_connection(self) -> None:
        """Break the connection; the client does not reconnect before `heal`."""
        self._is_partitioned = True
        if self._connection is None:
            return
        self._disconnect()
        self._become(SessionState.SUSPENDED)
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(
            self._session_timeout_ms / 1000, self._on_session_timeout, self._session_id, context=NO_PROCESS
        )

    def heal(self) -> None:
        """Let the client reconnect, and resume its session or find that it has expired."""
        self._is_partitioned = False
        if self._state is not SessionState.SUSPENDED:
            return
        if self._ensemble.keeper.sessions.find(self._session_id) is None:
            self._lose_everything()
            self._become(SessionState.EXPIRED)
            return
        if self._expiry is not None:
            self._expiry.cancel()
        self._connect()
        self._set_watches_again()
        self._become(SessionState.CONNECTED)
        self._send_what_waits()

    def expire(self) -> None:
        """Expire the session and notify the client if it is connected."""
        self._on_session_timeout(self._session_id)
        if self._connection is not None:
            self._disconnect()
            self._lose_everything()
            self._become(SessionState.EXPIRED)

    def _on_session_timeout(self, session_id: int) -> None:
        run_at_once(self._ensemble.keeper.close_session(session_id))

    def _connect(self) -> None:
        self._connection = _Connection(self._ensemble, self._session_id, self._watch_fired)

    def _disconnect(self) -> None:
        """Drop messages in flight: reads are sent again, writes may or may not have been applied."""
        assert self._connection is not None
        self._connection.cut()
        self._connection = None
        under_way, self._under_way = list(self._under_way), {}
        for call in reversed(under_way):
            if call.may_be_repeated:
                self._waiting.appendleft(call)
            else:
                call.fail(refusals.connection_lost(call.path))

    def _lose_everything(self) -> None:
        self._watched.clear()
        for call in (*self._under_way, *self._waiting):
            call.fail(refusals.session_lost(call.path))
        self._under_way.clear()
        self._waiting.clear()

    def _become(self, state: SessionState) -> None:
        self._state = state
        self._on_state(state)

    def _watch_fired(self, event: EventType, path: str) -> None:
        kinds = ("children", "data", "exist")
        for kind in kinds[:1] if event is EventType.CHILDREN_CHANGED else kinds[1:]:
            self._watched.pop((kind, path), None)
        if event is EventType.DELETED:
            self._watched.pop(("children", path), None)
        self._on_watch(WatchEvent(WatchEventType(event), path))

    def _set_watches_again(self) -> None:
        assert self._connection is not None
        data, exist, children = (
            [path for kind, path in self._watched if kind == requested] for requested in ("data", "exist", "children")
        )
        request = requests.SetWatches(self._last_zxid, data, exist, children, [], [])
        self._connection.send(request, lambda *_: None)

    async def _request(self, path: str, request: requests.Ordered, *, watch: str = "") -> responses.Response:
        if self._state not in {SessionState.CONNECTED, SessionState.SUSPENDED}:
            raise SessionLostError("the ZooKeeper session is closed", path)
        call = _Call(path, request, watch)
        self._waiting.append(call)
        self._send_what_waits()
        return await call.future

    def _send_what_waits(self) -> None:
        while self._connection is not None and self._waiting:
            call = self._waiting.popleft()
            self._under_way[call] = None
            self._connection.send(call.request, call.make_listener(self))

    def on_response(self, call: _Call, zxid: int, code: Code, response: responses.Response | None) -> None:
        """Pass the response to the caller."""
        self._under_way.pop(call, None)
        self._last_zxid = zxid
        if call.watch == "exist":
            self._watched["data" if code is Code.OK else "exist", call.path] = None
        elif call.watch and code is Code.OK:
            self._watched[call.watch, call.path] = None
        if code is Code.OK:
            call.succeed(response)
        else:
            call.fail(refusals.refused(code, call.path))


_Listener = Callable[[int, Code, responses.Response | None], None]


class _Call:
    """A request and the future of its response."""

    def __init__(self, path: str, request: requests.Ordered, watch: str) -> None:
        self.path = path
        self.request = request
        self.watch = watch
        self.future: asyncio.Future[responses.Response] = asyncio.get_running_loop().create_future()

    @property
    def may_be_repeated(self) -> bool:
        return isinstance(self.request, requests.Read)

    def make_listener(self, session: SimZooKeeperSession) -> _Listener:
        return lambda zxid, code, response: session.on_response(self, zxid, code, response)

    def succeed(self, response: responses.Response | None) -> None:
        if not self.future.done():
            assert response is not None
            self.future.set_result(response)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _Connection:
    """A connection between one client and the ensemble; it is the client of the keeper."""

    def __init__(self, ensemble: SimZooKeeper, session_id: int, on_watch: Callable[[EventType, str], None]) -> None:
        self.session_id = session_id
        self.identities: tuple[Id, ...] = (Id("ip", "127.0.0.1"),)
        self._keeper = ensemble.keeper
        self._on_watch = on_watch
        self._there = _Line(ensemble.delay_s)
        self._back = _Line(ensemble.delay_s)

    def send(self, request: requests.Ordered, listener: _Listener) -> None:
        self._there.put(lambda: self._arrived(request, listener))

    def notify(self, event: EventType, path: str, zxid: int) -> None:
        self._back.put(lambda: self._on_watch(event, path))

    def cut(self) -> None:
        self._there.cut()
        self._back.cut()
        run_at_once(self._keeper.forget_client(self))

    def _arrived(self, request: requests.Ordered, listener: _Listener) -> None:
        if self._keeper.sessions.find(self.session_id) is None:
            return
        response: responses.Response | None = None
        code = Code.OK
        try:
            if isinstance(request, requests.Read):
                response = self._keeper.read(self, request)
            elif isinstance(request, requests.LongRead):
                response = run_at_once(self._keeper.read_in_steps(self, request))
            else:
                wall_ms = int(asyncio.get_running_loop().time() * 1000)
                if isinstance(request, requests.Multi):
                    response = run_at_once(self._keeper.multi(self, request, wall_ms=wall_ms))
                else:
                    response = self._keeper.write(self, request, wall_ms=wall_ms)
        except KeeperError as refused:
            code = refused.code
        self._keeper.take_changes()  # not stored
        zxid = self._keeper.zxid
        self._back.put(lambda: listener(zxid, code, response))


class _Line:
    """One direction: first in, first out, each message after its delay."""

    def __init__(self, delay_s: Callable[[], float]) -> None:
        self._delay_s = delay_s
        self._messages: deque[Callable[[], None]] = deque()
        self._last_arrival = 0.0
        self._is_cut = False

    def put(self, message: Callable[[], None]) -> None:
        if self._is_cut:
            return
        loop = asyncio.get_running_loop()
        self._messages.append(message)
        # Timers with equal times fire in any order, so each takes the first message, not its own.
        self._last_arrival = max(self._last_arrival, loop.time() + self._delay_s())
        if self._last_arrival > loop.time():
            loop.call_at(self._last_arrival, self._arrive, context=NO_PROCESS)
        else:
            loop.call_soon(self._arrive, context=NO_PROCESS)

    def cut(self) -> None:
        self._is_cut = True
        self._messages.clear()

    def _arrive(self) -> None:
        if self._messages:
            self._messages.popleft()()


def _request_of(operation: Operation) -> requests.Create | requests.SetData | requests.Delete | requests.Check:
    match operation:
        case Create():
            flags = (CreateMode.EPHEMERAL if operation.ephemeral else 0) | (
                CreateMode.PERSISTENT_SEQUENTIAL if operation.sequence else 0
            )
            return requests.Create(operation.path, operation.data, OPEN_ACL_UNSAFE, flags)
        case SetData():
            return requests.SetData(operation.path, operation.data, operation.version)
        case Delete():
            return requests.Delete(operation.path, operation.version)
        case Check():
            return requests.Check(operation.path, operation.version)


def _result_of(response: responses.OperationResponse) -> OperationResult:
    match response:
        case responses.Created():
            return response.path
        case responses.Changed():
            return response.stat
    return True

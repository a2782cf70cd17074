"""The state machine of the server: tree, sessions and watches, with a transaction counter.

Every write has its own transaction id (zxid), even a refused one; so do the start and the end of a session.  Reads see
all previous writes.  Watch events are sent while a write is executed, so they precede the response to that write and to
any read that returns it, as ZooKeeper guarantees to clients.

No IO, clock or randomness: times and passwords are arguments.  `take_changes` returns what must be on the disk before
the responses are sent.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from kctl.limits import ZOOKEEPER_NAMES_PER_STEP, ZOOKEEPER_PATHS_PER_STEP, Subject, bound
from kctl.system.steps import Steps
from kctl.zookeeper.embedded import acl as acls
from kctl.zookeeper.embedded import node_paths
from kctl.zookeeper.embedded.acl import Id
from kctl.zookeeper.embedded.messages import codes, requests, responses
from kctl.zookeeper.embedded.messages.codes import NO_ZXID, Code, CreateMode, EventType, KeeperError, OpCode
from kctl.zookeeper.embedded.sessions import Session, Sessions
from kctl.zookeeper.embedded.tree import CONTAINER_OWNER, Tree, Znode
from kctl.zookeeper.embedded.watches import Change, WatchBoard, Watches, WatchMode

ZOOKEEPER_MULTI_READ_BYTES_MAX = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "data and names in the response to one multiRead of the embedded ZooKeeper server",
    16 << 20,
    "bytes",
    on_excess="RUNTIME_INCONSISTENCY for the remaining operations",
)
ZOOKEEPER_OPERATIONS_PER_STEP = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "operations of one multi that the embedded ZooKeeper server executes without a pause",
    100,
    "operations",
    on_excess="other connections are served in between, but no other operation is executed",
)


class Client(Protocol):
    """The connection of a session."""

    session_id: int
    identities: tuple[Id, ...]

    def notify(self, event: EventType, path: str, zxid: int) -> None:
        """Send a watch event."""


@dataclass(slots=True)
class Changes:
    """The changes of one commit; `nodes` maps a path to the znode before and after."""

    zxid: int
    nodes: dict[str, tuple[Znode | None, Znode | None]]
    opened: list[Session]
    closed: list[int]


@dataclass(slots=True)
class StoredState:
    """The state that a store loads for a new keeper."""

    zxid: int = 0
    nodes: list[tuple[str, Znode]] = field(default_factory=list)
    sessions: list[tuple[int, bytes, int]] = field(default_factory=list)


class Keeper:
    """The state machine; see the module for its guarantees."""

    def __init__(self, stored: StoredState, *, now_ms: int, wall_ms: int) -> None:
        self.tree = Tree(stored.nodes)
        self.sessions = Sessions(stored.sessions, now_ms=now_ms, wall_ms=wall_ms)
        self.watches = WatchBoard()
        self.zxid = stored.zxid
        self._committed_zxid = stored.zxid if stored.nodes else -1
        self._opened: list[Session] = []
        self._closed: list[int] = []

    def open_session(self, password: bytes, timeout_ms: int, *, now_ms: int) -> Session:
        """Open a session; times are in ms."""
        self.zxid += 1
        session = self.sessions.open(password, timeout_ms, now_ms=now_ms)
        self._opened.append(session)
        return session

    def resume_session(self, session_id: int, password: bytes, timeout_ms: int, *, now_ms: int) -> Session | None:
        """Return the session with a new timeout; None if it does not exist or the password is wrong."""
        session = self.sessions.find(session_id)
        if session is None or session.password != password:
            return None
        session.timeout_ms = timeout_ms
        self.sessions.touch(session_id, now_ms=now_ms)
        return session

    def close_session(self, session_id: int) -> Steps[None]:
        """Close a session, on request or after its timeout.

        Its ephemeral znodes are deleted in the same transaction, in steps.
        """
        self.zxid += 1
        if not self.sessions.remove(session_id):
            return
        self._closed.append(session_id)
        while paths := list(islice(self.tree.ephemerals.get(session_id, ()), ZOOKEEPER_PATHS_PER_STEP)):
            yield from self._remove_all(paths)

    def remove_empty_containers(self) -> Steps[None]:
        """Delete the containers whose last child was deleted, in steps; ZooKeeper does so once a minute.
        ContainerManager.
        """
        containers = iter(list(self.tree.ephemerals.get(CONTAINER_OWNER, ())))
        while paths := list(islice(containers, ZOOKEEPER_PATHS_PER_STEP)):
            yield from self._remove_all(paths, are_containers=True)

    def _remove_all(self, paths: Iterable[str], *, are_containers: bool = False) -> Steps[None]:
        """Delete znodes, in a step and in further ones if many clients watch them."""
        events, is_done = 0, True
        for path in paths:
            is_done = False
            if are_containers:
                if self.tree.children(path) or not self.tree.node(path).creations:
                    continue
                self.zxid += 1
            events += self._remove(path)
            if events >= ZOOKEEPER_PATHS_PER_STEP:
                events, is_done = 0, True
                self.tree.begin()
                yield
        if not is_done:
            self.tree.begin()
            yield

    def forget_client(self, client: Client) -> Steps[None]:
        """Remove the watches of a closed connection, in steps."""
        yield from self.watches.remove_watcher(client)

    def take_changes(self) -> Changes | None:
        """Return the changes since the last call; None if there are none."""
        if self.zxid == self._committed_zxid:
            return None
        self._committed_zxid = self.zxid
        changes = Changes(self.zxid, self.tree.take_changes(), self._opened, self._closed)
        self._opened, self._closed = [], []
        return changes

    def write(self, client: Client, request: requests.Write, *, wall_ms: int) -> responses.Response:
        """Execute a write and return the response.  Raises KeeperError."""
        self.zxid += 1
        self.tree.begin()
        if isinstance(request, requests.Reconfig):
            raise KeeperError(Code.RECONFIG_DISABLED)
        response, change = self._apply(client, request, wall_ms)
        if change is not None:
            self.watches.dispatch(change)
        return response

    def multi(self, client: Client, request: requests.Multi, *, wall_ms: int) -> Steps[responses.Results]:
        """Execute a multi, in steps, and return its results, also if it failed."""
        self.zxid += 1
        self.tree.begin()
        results: list[responses.OperationResponse] = []
        changes: list[Change] = []
        for operation in request.operations:
            try:
                response, change = self._apply(client, operation, wall_ms)
            except KeeperError as refused:
                self.tree.roll_back()
                return responses.Results(_failed(refused.code, len(results), len(request.operations)))
            results.append(response)
            if change is not None:
                changes.append(change)
            if len(results) % ZOOKEEPER_OPERATIONS_PER_STEP == 0:
                yield
        events = 0
        for number, change in enumerate(changes, 1):
            events += self.watches.dispatch(change)
            if number % ZOOKEEPER_OPERATIONS_PER_STEP == 0 or events >= ZOOKEEPER_PATHS_PER_STEP:
                events = 0
                yield
        return responses.Results(results)

    def refuse_write(self) -> None:
        """Count a transaction for a malformed write."""
        self.zxid += 1

    def read(self, client: Client, request: requests.Read) -> responses.Response | None:
        """Execute a read and return the response.  Raises KeeperError."""
        match request:
            case requests.GetData():
                return self._get_data(client, request)
            case requests.Exists():
                return self._exists(client, request)
            case requests.GetChildren():
                return self._get_children(client, request)
            case requests.GetAcl():
                visible = acls.visible(self.tree.node(request.path).acl, client.identities)
                return responses.AclList(visible, self.tree.stat(request.path))
            case requests.Sync():
                return responses.Path(request.path)
            case requests.AddWatch():
                mode = WatchMode.RECURSIVE if request.is_recursive else WatchMode.PERSISTENT
                self.watches.data.add(request.path, client, mode)
                self.watches.children.add(request.path, client, mode)
                return responses.Number(0)
            case requests.RemoveWatches():
                self._remove_watches(client, request)
            case requests.WhoAmI():
                return responses.Identities(sorted(map(acls.named, client.identities)))
            case requests.Ping():
                pass
        return None

    def read_in_steps(self, client: Client, request: requests.LongRead) -> Steps[responses.Response | None]:
        """Execute a read that may be long and return the response.  Raises KeeperError."""
        match request:
            case requests.GetAllChildrenNumber():
                self._require_read(client, request.path)
                return responses.Number((yield from self.tree.descendants(request.path)))
            case requests.MultiRead():
                return (yield from self._multi_read(client, request))
            case requests.GetEphemerals():
                names: list[str] = []
                for some in _steps(self.tree.ephemerals.get(client.session_id, ())):
                    names += [path for path in some if path.startswith(request.prefix or "/")]
                    yield
                return responses.Children(names)
            case requests.SetWatches():
                yield from self._set_watches(client, request)
                return None

    def _apply(
        self, client: Client, request: requests.WriteOperation, wall_ms: int
    ) -> tuple[responses.OperationResponse, Change | None]:
        """Change the tree without sending watch events."""
        tree, identities = self.tree, client.identities
        match request:
            case requests.Create():
                path = tree.create(
                    request.path,
                    request.data,
                    request.acl,
                    _create_mode(request.flags),
                    is_container=request.is_container,
                    session_id=client.session_id,
                    identities=identities,
                    zxid=self.zxid,
                    now_ms=wall_ms,
                )
                stat = tree.stat(path) if request.includes_stat else None
                return responses.Created(path, stat), self._change(EventType.CREATED, path)
            case requests.Delete():
                change = self._change(EventType.DELETED, request.path)
                tree.delete(request.path, request.version, identities=identities, zxid=self.zxid)
                return responses.Done(OpCode.DELETE), change
            case requests.SetData():
                tree.set_data(
                    request.path,
                    request.data,
                    request.version,
                    identities=identities,
                    zxid=self.zxid,
                    now_ms=wall_ms,
                )
                change = self._change(EventType.DATA_CHANGED, request.path)
                return responses.Changed(tree.stat(request.path)), change
            case requests.SetAcl():
                tree.set_acl(request.path, request.acl, request.version, identities=identities)
                return responses.Changed(tree.stat(request.path)), None
            case requests.Check():
                tree.check(request.path, request.version, identities=identities)
                return responses.Done(OpCode.CHECK), None

    def _change(self, event: EventType, path: str) -> Change:
        """Return the event with the current ACLs; for a deletion it is created before the znode is deleted."""
        node, parent = self.tree.find(path), self.tree.find(node_paths.parent(path))
        return Change(event, path, self.zxid, node.acl if node else (), parent.acl if parent else ())

    def _remove(self, path: str) -> int:
        """Delete a znode; return the number of events."""
        change = self._change(EventType.DELETED, path)
        self.tree.remove(path, zxid=self.zxid)
        return self.watches.dispatch(change)

    def _get_data(self, client: Client, request: requests.GetData) -> responses.Data:
        data = self._require_read(client, request.path).data
        if request.watch:
            self.watches.data.add(request.path, client)
        return responses.Data(data, self.tree.stat(request.path))

    def _exists(self, client: Client, request: requests.Exists) -> responses.Changed:
        """Return the only read that sets its watch even if the znode does not exist.  Requires READ, as in ZooKeeper
        3.9.
        """
        node_paths.require_no_null_character(request.path)
        if self.tree.find(request.path) is not None:
            self._require_read(client, request.path)
        if request.watch:
            self.watches.data.add(request.path, client)
        return responses.Changed(self.tree.stat(request.path))

    def _get_children(self, client: Client, request: requests.GetChildren) -> responses.Children:
        self._require_read(client, request.path)
        if request.watch:
            self.watches.children.add(request.path, client)
        stat = self.tree.stat(request.path) if request.includes_stat else None
        return responses.Children(list(self.tree.children(request.path)), stat)

    def _multi_read(self, client: Client, request: requests.MultiRead) -> Steps[responses.Results]:
        """Read one after the other, in steps; a request may name a znode of 1 MB, or with 100,000 children, often."""
        results: list[responses.OperationResponse] = []
        left, names = ZOOKEEPER_MULTI_READ_BYTES_MAX, 0
        for operation in request.operations:
            result = self._read_part(client, operation) if left > 0 else responses.Failed(Code.RUNTIME_INCONSISTENCY)
            if isinstance(result, responses.Data):
                left -= len(result.data or b"")
            elif isinstance(result, responses.Children):
                left -= sum(map(len, result.names))
                names += len(result.names)
            results.append(result)
            if names >= ZOOKEEPER_NAMES_PER_STEP:
                names = 0
                yield
        return responses.Results(results)

    def _read_part(
        self, client: Client, request: requests.GetData | requests.GetChildren
    ) -> responses.Data | responses.Children | responses.Failed:
        try:
            if isinstance(request, requests.GetData):
                return self._get_data(client, request)
            return self._get_children(client, request)
        except KeeperError as refused:
            return responses.Failed(refused.code)

    def _require_read(self, client: Client, path: str) -> Znode:
        node = self.tree.node(path)
        acls.require(node.acl, codes.READ, client.identities)
        return node

    def _set_watches(self, client: Client, request: requests.SetWatches) -> Steps[None]:
        """Set watches again, in steps; missed changes are sent at once, without their zxid.  DataTree.setWatches."""
        data, children, since = self.watches.data, self.watches.children, request.relative_zxid
        yield from self._watch_again(
            client, request.data, data, EventType.DATA_CHANGED, lambda node: node.mzxid > since
        )
        for paths in _steps(request.exist):
            for path in paths:
                if self.tree.find(path) is not None:
                    client.notify(EventType.CREATED, path, NO_ZXID)
                else:
                    data.add(path, client)
            yield
        yield from self._watch_again(
            client, request.children, children, EventType.CHILDREN_CHANGED, lambda node: node.pzxid > since
        )
        for mode, all_paths in ((WatchMode.PERSISTENT, request.persistent), (WatchMode.RECURSIVE, request.recursive)):
            for paths in _steps(all_paths):
                for path in paths:
                    data.add(path, client, mode)
                    children.add(path, client, mode)
                yield

    def _watch_again(
        self,
        client: Client,
        paths: Iterable[str],
        watches: Watches,
        event: EventType,
        has_changed: Callable[[Znode], bool],
    ) -> Steps[None]:
        """Watch znodes that are there and have not changed; send the event, or DELETED, for the others."""
        for some in _steps(paths):
            for path in some:
                node = self.tree.find(path)
                if node is None:
                    client.notify(EventType.DELETED, path, NO_ZXID)
                elif has_changed(node):
                    client.notify(event, path, NO_ZXID)
                else:
                    watches.add(path, client)
            yield

    def _remove_watches(self, client: Client, request: requests.RemoveWatches) -> None:
        """Remove watches.  Raises KeeperError(NO_WATCHER) if there are none of these types."""
        sorts: list[Watches] = []
        if request.data:
            sorts.append(self.watches.data)
        if request.children:
            sorts.append(self.watches.children)
        if not any(watches.has(request.path, client, request.modes) for watches in sorts):
            raise KeeperError(Code.NO_WATCHER)
        if not request.only_checks:
            for watches in sorts:
                watches.remove(request.path, client, request.modes)


def _steps(paths: Iterable[str]) -> Iterable[list[str]]:
    left = iter(paths)
    while some := list(islice(left, ZOOKEEPER_PATHS_PER_STEP)):
        yield some


def _create_mode(flags: int) -> CreateMode:
    """Return the mode; TTL znodes are refused, as in ZooKeeper without extendedTypesEnabled."""
    try:
        mode = CreateMode(flags)
    except ValueError:
        raise KeeperError(Code.BAD_ARGUMENTS) from None
    if mode in {CreateMode.PERSISTENT_WITH_TTL, CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL}:
        raise KeeperError(Code.UNIMPLEMENTED)
    return mode


def _failed(code: Code, index: int, count: int) -> list[responses.OperationResponse]:
    """Return the results of a multi whose operation `index` was refused."""
    behind = count - index - 1
    return [
        *(responses.Failed(Code.OK) for _ in range(index)),
        responses.Failed(code),
        *(responses.Failed(Code.RUNTIME_INCONSISTENCY) for _ in range(behind)),
    ]

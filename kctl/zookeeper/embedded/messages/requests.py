"""The requests of clients and their decoding.  zookeeper.jute, package proto."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kctl.errors import MalformedRequest
from kctl.limits import Subject, bound
from kctl.zookeeper.embedded.acl import Acl, Id
from kctl.zookeeper.embedded.messages.codes import CreateMode, OpCode, Reader
from kctl.zookeeper.embedded.watches import ANY_MODE, WatchMode

ZOOKEEPER_OPERATIONS_MAX = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "operations of one multi or multiRead to the embedded ZooKeeper server",
    500,
    "operations",
    on_excess="MARSHALLING_ERROR",
)
ZOOKEEPER_ACL_ENTRIES_MAX = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "entries of the ACL of one znode of the embedded ZooKeeper server; each operation on it looks at all of them",
    100,
    "entries",
    on_excess="MARSHALLING_ERROR",
)
ZOOKEEPER_MULTI_ACL_ENTRIES_MAX = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "entries of all ACLs in one multi to the embedded ZooKeeper server",
    2_000,
    "entries",
    on_excess="MARSHALLING_ERROR",
)
ZOOKEEPER_SET_WATCHES_MAX = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "paths of one kind in a setWatches to the embedded ZooKeeper server; clients send at most 128 KB at once",
    10_000,
    "paths",
    on_excess="MARSHALLING_ERROR",
)


PASSWORD_LENGTH = 16
_CREATE_MODES = frozenset(CreateMode)


@dataclass(frozen=True, slots=True)
class Connect:
    """The first frame of a connection; session_id 0 requests a new session.  `knows_read_only`: clients since 3.4."""

    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes
    knows_read_only: bool


@dataclass(frozen=True, slots=True)
class Create:
    """create, create2, createContainer; only the first has a response without a stat.

    `flags` is a CreateMode, validated when the request is executed; for createContainer it is ignored.
    """

    path: str
    data: bytes | None
    acl: tuple[Acl, ...] | None
    flags: int
    includes_stat: bool = False
    is_container: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """delete; version -1 matches any."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class SetData:
    """setData; version -1 matches any."""

    path: str
    data: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class SetAcl:
    """setACL; version -1 matches any, and is that of the ACL."""

    path: str
    acl: tuple[Acl, ...] | None
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """check, in a multi only."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Multi:
    """multi: all operations or none."""

    operations: tuple[Create | Delete | SetData | Check, ...]


@dataclass(frozen=True, slots=True)
class Reconfig:
    """reconfig: changes the ensemble, which is not supported with one server."""


@dataclass(frozen=True, slots=True)
class GetData:
    """getData."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Exists:
    """exists."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class GetAcl:
    """getACL."""

    path: str


@dataclass(frozen=True, slots=True)
class GetChildren:
    """getChildren and getChildren2."""

    path: str
    watch: bool = False
    includes_stat: bool = False


@dataclass(frozen=True, slots=True)
class MultiRead:
    """multiRead: independent reads, each may fail."""

    operations: tuple[GetData | GetChildren, ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """sync."""

    path: str


@dataclass(frozen=True, slots=True)
class GetEphemerals:
    """getEphemerals."""

    prefix: str | None


@dataclass(frozen=True, slots=True)
class GetAllChildrenNumber:
    """getAllChildrenNumber."""

    path: str


@dataclass(frozen=True, slots=True)
class SetWatches:
    """setWatches, setWatches2: sets the watches of a lost connection; those whose znode changed after the zxid fire
    at once.
    """

    relative_zxid: int
    data: list[str]
    exist: list[str]
    children: list[str]
    persistent: list[str]
    recursive: list[str]


@dataclass(frozen=True, slots=True)
class AddWatch:
    """addWatch."""

    path: str
    is_recursive: bool


@dataclass(frozen=True, slots=True)
class RemoveWatches:
    """checkWatches and removeWatches."""

    path: str
    data: bool
    children: bool
    modes: WatchMode
    only_checks: bool


@dataclass(frozen=True, slots=True)
class WhoAmI:
    """whoAmI."""


@dataclass(frozen=True, slots=True)
class Auth:
    """auth; has a fixed xid, outside of the queue of requests."""

    scheme: str
    credentials: bytes


@dataclass(frozen=True, slots=True)
class Ping:
    """ping."""


@dataclass(frozen=True, slots=True)
class CloseSession:
    """closeSession."""


WriteOperation = Create | Delete | SetData | SetAcl | Check
Write = WriteOperation | Reconfig
Read = GetData | Exists | GetAcl | GetChildren | Sync | AddWatch | RemoveWatches | WhoAmI | Ping
LongRead = GetAllChildrenNumber | GetEphemerals | MultiRead | SetWatches
Ordered = Write | Multi | Read | LongRead
"""Executed in the order of arrival, and only within a session."""
Request = Ordered | Auth | CloseSession


def decode_connect(frame: bytes) -> Connect:
    """Decode a connect request.  Raises MalformedRequest."""
    reader = Reader(frame)
    reader.int32()  # The protocol version, always 0.
    connect = Connect(
        last_zxid_seen=reader.int64(),
        timeout_ms=reader.int32(),
        session_id=reader.int64(),
        password=reader.buffer() or b"",
        knows_read_only=reader.remaining > 0,
    )
    if connect.knows_read_only:
        reader.boolean()
    return connect


def decode(op_code: int, reader: Reader) -> Request | None:
    """Decode the body after the request header; None for an unknown operation.  Raises MalformedRequest."""
    decoder = _DECODERS.get(op_code)
    return decoder(reader) if decoder else None


def _create(reader: Reader) -> Create:
    return Create(reader.path(), reader.buffer(), _acl(reader), reader.int32())


def _create_with_stat(reader: Reader) -> Create:
    return Create(reader.path(), reader.buffer(), _acl(reader), reader.int32(), includes_stat=True)


def _create_container(reader: Reader) -> Create:
    return Create(reader.path(), reader.buffer(), _acl(reader), reader.int32(), includes_stat=True, is_container=True)


def _create_ttl(reader: Reader) -> Create:
    create = _create_with_stat(reader)
    reader.int64()  # The time to live; such znodes are refused by their flags.
    return create


def _acl(reader: Reader) -> tuple[Acl, ...] | None:
    entries = reader.vector(
        lambda: Acl(reader.int32(), Id(reader.string() or "", reader.string() or "")), ZOOKEEPER_ACL_ENTRIES_MAX
    )
    return None if entries is None else tuple(entries)


def _delete(reader: Reader) -> Delete:
    return Delete(reader.path(), reader.int32())


def _set_data(reader: Reader) -> SetData:
    return SetData(reader.path(), reader.buffer(), reader.int32())


def _set_acl(reader: Reader) -> SetAcl:
    return SetAcl(reader.path(), _acl(reader), reader.int32())


def _check(reader: Reader) -> Check:
    return Check(reader.path(), reader.int32())


def _multi(reader: Reader) -> Multi:
    """Decode a multi; invalid flags of a create make the whole request malformed, unlike outside of a multi."""
    operations = []
    acl_entries = 0
    while (op_code := _next_operation(reader)) is not None:
        if op_code not in _MULTI_DECODERS:
            raise MalformedRequest(f"operation {op_code} cannot be part of a multi")
        operation = _MULTI_DECODERS[op_code](reader)
        if isinstance(operation, Create) and operation.flags not in _CREATE_MODES:
            raise MalformedRequest(f"unknown create mode {operation.flags}")
        operations.append(operation)
        _check_count(operations)
        if isinstance(operation, (Create, SetAcl)):
            acl_entries += len(operation.acl or ())
            if acl_entries > ZOOKEEPER_MULTI_ACL_ENTRIES_MAX:
                raise MalformedRequest(f"more than {ZOOKEEPER_MULTI_ACL_ENTRIES_MAX} entries of ACLs")
    return Multi(tuple(operations))


def _multi_read(reader: Reader) -> MultiRead:
    operations: list[GetData | GetChildren] = []
    while (op_code := _next_operation(reader)) is not None:
        match op_code:
            case OpCode.GET_DATA:
                operations.append(GetData(reader.path(), reader.boolean()))
            case OpCode.GET_CHILDREN:
                operations.append(GetChildren(reader.path(), reader.boolean()))
            case _:
                raise MalformedRequest(f"operation {op_code} cannot be part of a multiRead")
        _check_count(operations)
    return MultiRead(tuple(operations))


def _check_count(operations: Sequence[object]) -> None:
    if len(operations) > ZOOKEEPER_OPERATIONS_MAX:
        raise MalformedRequest(f"more than {ZOOKEEPER_OPERATIONS_MAX} operations")


def _next_operation(reader: Reader) -> int | None:
    """Return the type in a MultiHeader, None for the last one."""
    op_code, is_done, _ = reader.int32(), reader.boolean(), reader.int32()
    return None if is_done else op_code


def _set_watches(reader: Reader) -> SetWatches:
    return SetWatches(reader.int64(), _watched(reader), _watched(reader), _watched(reader), [], [])


def _set_watches2(reader: Reader) -> SetWatches:
    since = reader.int64()
    data, exist, children, persistent, recursive = (_watched(reader) for _ in range(5))
    return SetWatches(since, data, exist, children, persistent, recursive)


def _watched(reader: Reader) -> list[str]:
    return reader.paths(ZOOKEEPER_SET_WATCHES_MAX)


def _add_watch(reader: Reader) -> AddWatch:
    path, mode = reader.path(), reader.int32()
    if mode not in {0, 1}:
        raise MalformedRequest(f"unknown watch mode {mode}")
    return AddWatch(path, is_recursive=mode == 1)


def _remove_watches(reader: Reader) -> RemoveWatches:
    return _watches_request(reader, only_checks=False)


def _check_watches(reader: Reader) -> RemoveWatches:
    return _watches_request(reader, only_checks=True)


def _watches_request(reader: Reader, *, only_checks: bool) -> RemoveWatches:
    path, kind = reader.path(), reader.int32()
    if kind not in _WATCHER_TYPES:
        raise MalformedRequest(f"unknown watcher type {kind}")
    data, children, modes = _WATCHER_TYPES[kind]
    return RemoveWatches(path, data, children, modes, only_checks)


def _auth(reader: Reader) -> Auth:
    reader.int32()  # The type, not used.
    return Auth(reader.string() or "", reader.buffer() or b"")


_WATCHER_TYPES = {
    1: (False, True, WatchMode.STANDARD),
    2: (True, False, WatchMode.STANDARD),
    3: (True, True, ANY_MODE),
    4: (True, True, WatchMode.PERSISTENT),
    5: (True, True, WatchMode.RECURSIVE),
}
"""The watches of each Watcher.WatcherType since 3.9: data, children, modes."""

WRITES = frozenset(
    {
        OpCode.CREATE,
        OpCode.CREATE2,
        OpCode.CREATE_CONTAINER,
        OpCode.CREATE_TTL,
        OpCode.DELETE,
        OpCode.SET_DATA,
        OpCode.SET_ACL,
        OpCode.CHECK,
        OpCode.MULTI,
        OpCode.RECONFIG,
    }
)

_MULTI_DECODERS: dict[int, Callable[[Reader], Create | Delete | SetData | Check]] = {
    OpCode.CREATE: _create,
    OpCode.CREATE2: _create_with_stat,
    OpCode.CREATE_CONTAINER: _create_container,
    OpCode.CREATE_TTL: _create_ttl,
    OpCode.DELETE: _delete,
    OpCode.SET_DATA: _set_data,
    OpCode.CHECK: _check,
}

_DECODERS: dict[int, Callable[[Reader], Request]] = {
    **_MULTI_DECODERS,
    OpCode.EXISTS: lambda reader: Exists(reader.path(), reader.boolean()),
    OpCode.GET_DATA: lambda reader: GetData(reader.path(), reader.boolean()),
    OpCode.GET_ACL: lambda reader: GetAcl(reader.path()),
    OpCode.SET_ACL: _set_acl,
    OpCode.GET_CHILDREN: lambda reader: GetChildren(reader.path(), reader.boolean()),
    OpCode.SYNC: lambda reader: Sync(reader.path()),
    OpCode.PING: lambda _: Ping(),
    OpCode.GET_CHILDREN2: lambda reader: GetChildren(reader.path(), reader.boolean(), includes_stat=True),
    OpCode.MULTI: _multi,
    OpCode.RECONFIG: lambda _: Reconfig(),
    OpCode.CHECK_WATCHES: _check_watches,
    OpCode.REMOVE_WATCHES: _remove_watches,
    OpCode.MULTI_READ: _multi_read,
    OpCode.AUTH: _auth,
    OpCode.SET_WATCHES: _set_watches,
    OpCode.GET_EPHEMERALS: lambda reader: GetEphemerals(reader.string()),
    OpCode.GET_ALL_CHILDREN_NUMBER: lambda reader: GetAllChildrenNumber(reader.path()),
    OpCode.SET_WATCHES2: _set_watches2,
    OpCode.ADD_WATCH: _add_watch,
    OpCode.WHO_AM_I: lambda _: WhoAmI(),
    OpCode.CLOSE_SESSION: lambda _: CloseSession(),
}

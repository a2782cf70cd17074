"""What the server answers, and how it is written into a frame.  zookeeper.jute, package proto."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kctl.zookeeper.embedded import jute
from kctl.zookeeper.embedded.acl import Acls, Id
from kctl.zookeeper.embedded.codes import Code, EventType, OpCode
from kctl.zookeeper.operations import ZnodeStat

AUTH_XID = -4
_WATCH_EVENT_XID = -1
_SYNC_CONNECTED = 3

_HEADER = struct.Struct(">iqi")
_MULTI_HEADER = struct.Struct(">i?i")
_MULTI_END = _MULTI_HEADER.pack(-1, True, -1)


@dataclass(frozen=True, slots=True)
class Created:
    """`stat` only where the request asked for it."""

    path: str
    stat: ZnodeStat | None = None

    def encode(self) -> bytes:
        return jute.string(self.path) + (jute.stat(self.stat) if self.stat else b"")


@dataclass(frozen=True, slots=True)
class Changed:
    """setData, setACL, exists."""

    stat: ZnodeStat

    def encode(self) -> bytes:
        return jute.stat(self.stat)


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing to say but that it worked; `op_code` is told inside a multi."""

    op_code: OpCode

    def encode(self) -> bytes:
        return b""


@dataclass(frozen=True, slots=True)
class Data:
    data: bytes | None
    stat: ZnodeStat

    def encode(self) -> bytes:
        return jute.buffer(self.data) + jute.stat(self.stat)


@dataclass(frozen=True, slots=True)
class Children:
    names: Sequence[str]
    stat: ZnodeStat | None = None

    def encode(self) -> bytes:
        return jute.strings(self.names) + (jute.stat(self.stat) if self.stat else b"")


@dataclass(frozen=True, slots=True)
class AclList:
    acls: Acls
    stat: ZnodeStat

    def encode(self) -> bytes:
        entries = (jute.int32(acl.perms) + jute.string(acl.id.scheme) + jute.string(acl.id.id) for acl in self.acls)
        return jute.int32(len(self.acls)) + b"".join(entries) + jute.stat(self.stat)


@dataclass(frozen=True, slots=True)
class Path:
    """sync."""

    path: str

    def encode(self) -> bytes:
        return jute.string(self.path)


@dataclass(frozen=True, slots=True)
class Number:
    """getAllChildrenNumber, and addWatch's 0."""

    value: int

    def encode(self) -> bytes:
        return jute.int32(self.value)


@dataclass(frozen=True, slots=True)
class Identities:
    """whoAmI."""

    ids: Sequence[Id]

    def encode(self) -> bytes:
        entries = (jute.string(each.scheme) + jute.string(each.id) for each in self.ids)
        return jute.int32(len(self.ids)) + b"".join(entries)


@dataclass(frozen=True, slots=True)
class Failed:
    """One operation of a multi or multiRead.  Before the one to blame stands OK, behind it RUNTIME_INCONSISTENCY."""

    code: Code

    def encode(self) -> bytes:
        return jute.int32(self.code)


OperationResponse = Created | Changed | Done | Data | Children | Failed


@dataclass(frozen=True, slots=True)
class Results:
    """multi and multiRead."""

    results: Sequence[OperationResponse]

    @property
    def failure(self) -> tuple[int, Code] | None:
        """Index and code of the operation that made a multi fail."""
        for index, result in enumerate(self.results):
            if isinstance(result, Failed) and result.code is not Code.OK:
                return index, result.code
        return None

    def encode(self) -> bytes:
        entries = (_MULTI_HEADER.pack(*_multi_header(each)) + each.encode() for each in self.results)
        return b"".join(entries) + _MULTI_END


Response = OperationResponse | AclList | Path | Number | Identities | Results


def _multi_header(result: OperationResponse) -> tuple[int, bool, int]:
    match result:
        case Created():
            op_code = OpCode.CREATE2 if result.stat else OpCode.CREATE
        case Changed():
            op_code = OpCode.SET_DATA
        case Data():
            op_code = OpCode.GET_DATA
        case Children():
            op_code = OpCode.GET_CHILDREN
        case Done():
            op_code = result.op_code
        case Failed():
            return OpCode.ERROR, False, result.code
    return op_code, False, 0


def frame(xid: int, zxid: int, code: Code, response: Response | None = None) -> bytes:
    body = response.encode() if response is not None else b""
    return jute.int32(_HEADER.size + len(body)) + _HEADER.pack(xid, zxid, code) + body


def watch_event(event: EventType, path: str, zxid: int) -> bytes:
    """`zxid` is the transaction behind the event, which ZooKeeper sends since 3.9 (ZOOKEEPER-4655), or NO_ZXID."""
    body = struct.pack(">ii", event, _SYNC_CONNECTED) + jute.string(path)
    return jute.int32(_HEADER.size + len(body)) + _HEADER.pack(_WATCH_EVENT_XID, zxid, Code.OK) + body


def connected(timeout_ms: int, session_id: int, password: bytes, *, knows_read_only: bool) -> bytes:
    """All zeros mean that the session asked for does not exist any more."""
    body = struct.pack(">iiq", 0, timeout_ms, session_id) + jute.buffer(password)
    return jute.buffer(body + (jute.boolean(False) if knows_read_only else b""))

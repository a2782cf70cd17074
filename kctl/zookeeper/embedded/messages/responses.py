"""The responses of the server and their encoding.  zookeeper.jute, package proto."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kctl.limits import ZOOKEEPER_NAMES_PER_STEP
from kctl.system.steps import Steps
from kctl.zookeeper.embedded.acl import Acls, Id
from kctl.zookeeper.embedded.messages import codes
from kctl.zookeeper.embedded.messages.codes import Code, EventType, OpCode
from kctl.zookeeper.operations import ZnodeStat

_WATCH_EVENT_XID = -1
_SYNC_CONNECTED = 3

_HEADER = struct.Struct(">iqi")
_MULTI_HEADER = struct.Struct(">i?i")
_MULTI_END = _MULTI_HEADER.pack(-1, True, -1)


@dataclass(frozen=True, slots=True)
class Created:
    """create, create2, createContainer; `stat` is set for the latter two."""

    path: str
    stat: ZnodeStat | None = None

    def encode(self) -> bytes:
        """Return the body of the response."""
        return codes.string(self.path) + (codes.stat(self.stat) if self.stat else b"")


@dataclass(frozen=True, slots=True)
class Changed:
    """setData, setACL, exists."""

    stat: ZnodeStat

    def encode(self) -> bytes:
        """Return the body of the response."""
        return codes.stat(self.stat)


@dataclass(frozen=True, slots=True)
class Done:
    """A response without a body; `op_code` is used inside a multi."""

    op_code: OpCode

    def encode(self) -> bytes:
        """Return the body of the response."""
        return b""


@dataclass(frozen=True, slots=True)
class Data:
    """getData."""

    data: bytes | None
    stat: ZnodeStat

    def encode(self) -> bytes:
        """Return the body of the response."""
        return codes.buffer(self.data) + codes.stat(self.stat)


@dataclass(frozen=True, slots=True)
class Children:
    """getChildren, getChildren2."""

    names: Sequence[str]
    stat: ZnodeStat | None = None

    def encode(self) -> bytes:
        """Return the body of the response."""
        return codes.strings(self.names) + (codes.stat(self.stat) if self.stat else b"")


@dataclass(frozen=True, slots=True)
class AclList:
    """getACL."""

    acls: Acls
    stat: ZnodeStat

    def encode(self) -> bytes:
        """Return the body of the response."""
        entries = (codes.int32(acl.perms) + codes.string(acl.id.scheme) + codes.string(acl.id.id) for acl in self.acls)
        return codes.int32(len(self.acls)) + b"".join(entries) + codes.stat(self.stat)


@dataclass(frozen=True, slots=True)
class Path:
    """sync."""

    path: str

    def encode(self) -> bytes:
        """Return the body of the response."""
        return codes.string(self.path)


@dataclass(frozen=True, slots=True)
class Number:
    """getAllChildrenNumber, and addWatch, which returns 0."""

    value: int

    def encode(self) -> bytes:
        """Return the body of the response."""
        return codes.int32(self.value)


@dataclass(frozen=True, slots=True)
class Identities:
    """whoAmI."""

    ids: Sequence[Id]

    def encode(self) -> bytes:
        """Return the body of the response."""
        entries = (codes.string(identity.scheme) + codes.string(identity.id) for identity in self.ids)
        return codes.int32(len(self.ids)) + b"".join(entries)


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed operation of a multi or multiRead; OK before the one that failed, RUNTIME_INCONSISTENCY after it."""

    code: Code

    def encode(self) -> bytes:
        """Return the body of the response."""
        return codes.int32(self.code)


OperationResponse = Created | Changed | Done | Data | Children | Failed


@dataclass(frozen=True, slots=True)
class Results:
    """multi and multiRead."""

    results: Sequence[OperationResponse]

    @property
    def failure(self) -> tuple[int, Code] | None:
        """Return the index and code of the operation that made a multi fail, None if it succeeded."""
        for index, result in enumerate(self.results):
            if isinstance(result, Failed) and result.code is not Code.OK:
                return index, result.code
        return None

    def encode(self) -> bytes:
        """Return the body of the response."""
        entries = (_MULTI_HEADER.pack(*_multi_header(result)) + result.encode() for result in self.results)
        return b"".join(entries) + _MULTI_END


@dataclass(frozen=True, slots=True)
class Encoded:
    """A response that was encoded before."""

    body: bytes

    def encode(self) -> bytes:
        """Return the body of the response."""
        return self.body


Response = OperationResponse | Encoded | AclList | Path | Number | Identities | Results


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


def is_long(response: Response | None) -> bool:
    """Return True if the response has so many names that it should be encoded in steps."""
    match response:
        case Children():
            return len(response.names) > ZOOKEEPER_NAMES_PER_STEP
        case Results():
            names = (len(result.names) for result in response.results if isinstance(result, Children))
            return sum(names) > ZOOKEEPER_NAMES_PER_STEP
    return False


def encoded(response: Response) -> Steps[Encoded]:
    """Encode the body of a long response, in steps."""
    parts: list[bytes] = []
    for result in response.results if isinstance(response, Results) else (response,):
        if isinstance(response, Results):
            assert isinstance(result, OperationResponse)
            parts.append(_MULTI_HEADER.pack(*_multi_header(result)))
        if not isinstance(result, Children):
            parts.append(result.encode())
            continue
        parts.append(codes.int32(len(result.names)))
        for start in range(0, len(result.names), ZOOKEEPER_NAMES_PER_STEP):
            parts += map(codes.string, result.names[start : start + ZOOKEEPER_NAMES_PER_STEP])
            yield
        parts.append(codes.stat(result.stat) if result.stat else b"")
    if isinstance(response, Results):
        parts.append(_MULTI_END)
    return Encoded(b"".join(parts))


def frame(xid: int, zxid: int, code: Code, response: Response | None = None) -> bytes:
    """Encode a response with its header."""
    body = response.encode() if response is not None else b""
    return codes.int32(_HEADER.size + len(body)) + _HEADER.pack(xid, zxid, code) + body


def watch_event(event: EventType, path: str, zxid: int) -> bytes:
    """Encode a watch event; `zxid` is its transaction, which ZooKeeper sends since 3.9 (ZOOKEEPER-4655), or NO_ZXID."""
    body = struct.pack(">ii", event, _SYNC_CONNECTED) + codes.string(path)
    return codes.int32(_HEADER.size + len(body)) + _HEADER.pack(_WATCH_EVENT_XID, zxid, Code.OK) + body


def connected(timeout_ms: int, session_id: int, password: bytes, *, knows_read_only: bool) -> bytes:
    """Encode the response to a connect request; all zeros mean that the session does not exist."""
    body = struct.pack(">iiq", 0, timeout_ms, session_id) + codes.buffer(password)
    return codes.buffer(body + (codes.boolean(False) if knows_read_only else b""))

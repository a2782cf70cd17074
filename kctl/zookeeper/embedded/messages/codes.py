"""ZooKeeper's numbers: operations, error codes, permissions, watch events."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TypeVar

from kctl.errors import MalformedRequest
from kctl.zookeeper.operations import ZnodeStat

NO_ZXID = -1
"""The zxid of a watch event that no current transaction caused."""


class OpCode(IntEnum):
    """The type of a request.  org.apache.zookeeper.ZooDefs.OpCode."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11
    ERROR = -1


class Code(IntEnum):
    """The error code of a response.  org.apache.zookeeper.KeeperException.Code."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NOT_READ_ONLY = -119
    """A write on a server that only reads."""
    NO_WATCHER = -121
    RECONFIG_DISABLED = -123


class KeeperError(Exception):
    """A request is refused with this code."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


class EventType(IntEnum):
    """The type of a watch event.  Watcher.Event.EventType."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class CreateMode(IntEnum):
    """The flags of a create request.  org.apache.zookeeper.CreateMode."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    PERSISTENT_WITH_TTL = 5
    PERSISTENT_SEQUENTIAL_WITH_TTL = 6

    @property
    def is_ephemeral(self) -> bool:
        """True if the znode is deleted with its session."""
        return self in {CreateMode.EPHEMERAL, CreateMode.EPHEMERAL_SEQUENTIAL}

    @property
    def is_sequential(self) -> bool:
        """True if a number is appended to the name."""
        return self in {CreateMode.PERSISTENT_SEQUENTIAL, CreateMode.EPHEMERAL_SEQUENTIAL}


READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
"""The permissions of an ACL entry, as bits."""


# Jute, the encoding of ZooKeeper: big-endian numbers; strings, buffers and vectors with an int32 length (-1 is null).


T = TypeVar("T")

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_STAT = struct.Struct(">qqqqiiiqiiq")

NULL = _INT32.pack(-1)
int32 = _INT32.pack
int64 = _INT64.pack


class Reader:
    """Reads values from a frame; raises MalformedRequest if it is too short or a length is invalid."""

    __slots__ = ("_frame", "_position")

    def __init__(self, frame: bytes, position: int = 0) -> None:
        self._frame = frame
        self._position = position

    @property
    def remaining(self) -> int:
        """Bytes that were not read yet."""
        return len(self._frame) - self._position

    def int32(self) -> int:
        """Read a signed 32-bit integer."""
        value: int = _INT32.unpack(self._take(4))[0]
        return value

    def int64(self) -> int:
        """Read a signed 64-bit integer."""
        value: int = _INT64.unpack(self._take(8))[0]
        return value

    def boolean(self) -> bool:
        """Read a boolean."""
        return self._take(1) != b"\0"

    def buffer(self) -> bytes | None:
        """Read a buffer; None for null."""
        length = self.int32()
        return None if length == -1 else self._take(length)

    def string(self) -> str | None:
        """Read a string; None for null."""
        data = self.buffer()
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError:
            raise MalformedRequest("a string is not UTF-8") from None

    def path(self) -> str:
        """Read a string that must not be null."""
        path = self.string()
        if path is None:
            raise MalformedRequest("a path is null")
        return path

    def vector(self, item: Callable[[], T], count_max: int | None = None) -> list[T] | None:
        """Read a vector of at most `count_max` items; every item takes at least four bytes, so a larger count is
        refused before memory is allocated.
        """
        count = self.int32()
        if count == -1:
            return None
        if not 0 <= count <= self.remaining // 4:
            raise MalformedRequest(f"a vector of {count} items in {self.remaining} bytes")
        if count_max is not None and count > count_max:
            raise MalformedRequest(f"a vector of {count} items, allowed are {count_max}")
        return [item() for _ in range(count)]

    def paths(self, count_max: int | None = None) -> list[str]:
        """Read a vector of at most so many paths."""
        return self.vector(self.path, count_max) or []

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._frame):
            raise MalformedRequest(f"{size} bytes expected, {self.remaining} left")
        taken = self._frame[self._position : end]
        self._position = end
        return taken


def boolean(value: bool) -> bytes:
    """Encode a boolean."""
    return b"\1" if value else b"\0"


def buffer(data: bytes | None) -> bytes:
    """Encode a buffer; None is null."""
    return NULL if data is None else int32(len(data)) + data


def string(text: str | None) -> bytes:
    """Encode a string; None is null."""
    return buffer(None if text is None else text.encode())


def strings(texts: Iterable[str]) -> bytes:
    """Encode a vector of strings."""
    encoded = [string(text) for text in texts]
    return int32(len(encoded)) + b"".join(encoded)


def stat(value: ZnodeStat) -> bytes:
    """Encode a ZnodeStat."""
    return _STAT.pack(*value)

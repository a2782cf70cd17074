"""ZooKeeper's numbers: operations, error codes, permissions, watch events."""

from __future__ import annotations

from enum import IntEnum

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

"""ZooKeeper's numbers: operations, results, permissions, watch events."""

from __future__ import annotations

from enum import IntEnum

NO_ZXID = -1
"""Stands where a watch event that no transaction of now has caused would carry one."""


class OpCode(IntEnum):
    """What a request asks for.  org.apache.zookeeper.ZooDefs.OpCode."""

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
    """How a request ended.  org.apache.zookeeper.KeeperException.Code."""

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
    NO_WATCHER = -121
    RECONFIG_DISABLED = -123


class KeeperError(Exception):
    """A request that is refused; the code is all that the client hears."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


class EventType(IntEnum):
    """What a watch reports.  Watcher.Event.EventType."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class CreateMode(IntEnum):
    """The flags of a create.  org.apache.zookeeper.CreateMode."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    PERSISTENT_WITH_TTL = 5
    PERSISTENT_SEQUENTIAL_WITH_TTL = 6

    @property
    def is_ephemeral(self) -> bool:
        return self in {CreateMode.EPHEMERAL, CreateMode.EPHEMERAL_SEQUENTIAL}

    @property
    def is_sequential(self) -> bool:
        return self in {CreateMode.PERSISTENT_SEQUENTIAL, CreateMode.EPHEMERAL_SEQUENTIAL}


READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
"""Permissions of an ACL entry, as bits."""

"""What can be asked of ZooKeeper and what comes back: plain values, and the port that brokers are written against.

`ZooKeeper` is implemented by `kctl.zookeeper.session` (a real ensemble) and by `kctl.testing.sim_zookeeper`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class ZnodeStat(NamedTuple):
    """What ZooKeeper knows about one znode, in the order of its wire format; times are milliseconds since the epoch."""

    czxid: int
    """Transaction that created the node; for a broker registration this is the broker epoch."""
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    """Counts changes of the data; conditional writes compare it."""
    cversion: int
    aversion: int
    ephemeral_owner: int
    """Session that the node lives and dies with; 0 for a persistent node."""
    data_length: int
    num_children: int
    pzxid: int


class WatchEventType(Enum):
    """What a one-shot watch saw; the numbers are ZooKeeper's."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILD = 4


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One watch fired and is used up; read again, with a watch, to see what it is about."""

    type: WatchEventType
    path: str


class SessionState(Enum):
    """What the owner of a session has to know about it.

    CONNECTED -> SUSPENDED -> CONNECTED   the connection broke and came back: ephemeral nodes and watches live on
    SUSPENDED -> EXPIRED                  the ensemble ended the session: ephemeral nodes and watches are gone
    CLOSED                                before `start` and after `close`
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Create:
    """Part of a multi: create a node.  Its result is the path."""

    path: str
    data: bytes | None = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Part of a multi: replace a node's data.  Its result is the new ZnodeStat."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Part of a multi: delete a node without children.  Its result is True."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Part of a multi: fail all of it with BadVersionError unless the node has this version.  Its result is True."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check
OperationResult = str | ZnodeStat | bool


class ZooKeeper(Protocol):
    """One session with an ensemble; calls of one session take effect in the order they were made.

    Every call may raise, beside what its line says:
    - SessionLostError: the session is over (expired or closed); `reconnect` starts a new one;
    - ConnectionLossError, from writes only: the connection broke before the answer, the write may or may not have
      happened.  Read before deciding again.  Reads are repeated by themselves on the same session.
    - ZooKeeperError: anything else that ZooKeeper refuses (no permission, a child under an ephemeral node, ...).
    The error's `path` tells which znode it is about; for a multi it is that of the operation that failed.
    """

    @property
    def session_id(self) -> int:
        """The id that ephemeral nodes of this session carry as owner; 0 before `start`."""
        ...

    @property
    def state(self) -> SessionState: ...

    async def start(self, timeout_ms: int) -> None:
        """Open the session.  ZooKeeperError when nothing answers in time."""
        ...

    async def reconnect(self, timeout_ms: int) -> None:
        """Begin a new session after EXPIRED; watches and ephemeral nodes of the old one are not carried over."""
        ...

    async def close(self) -> None:
        """End the session at once, with its ephemeral nodes; calls that wait raise SessionLostError."""
        ...

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes, ZnodeStat]:
        """Data (b"" for null) and stat.  NoNodeError, and then no watch is left."""
        ...

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Names of the children, sorted.  NoNodeError, and then no watch is left."""
        ...

    async def exists(self, path: str, *, watch: bool = False) -> ZnodeStat | None:
        """The stat, or None; the watch is left in both cases."""
        ...

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """The path created, with its number when `sequence`.  NodeExistsError; NoNodeError: the parent is missing."""
        ...

    async def set(self, path: str, data: bytes | None, *, version: int = ANY_VERSION) -> ZnodeStat:
        """The new stat.  NoNodeError, BadVersionError."""
        ...

    async def delete(self, path: str, *, version: int = ANY_VERSION, recursive: bool = False) -> None:
        """NoNodeError, BadVersionError, NotEmptyError.

        `recursive` takes what is below first and minds neither a missing node nor the version; it is not atomic.
        """
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """All or nothing; raises the error of the operation that failed."""
        ...

    async def sync(self, path: str) -> None:
        """Reads that follow see everything that the ensemble had agreed on when this was called."""
        ...

"""The requests to ZooKeeper and their results as values, and the interface that the broker uses.

`ZooKeeper` is implemented by `kctl.zookeeper.session` (a real ensemble) and by `kctl.testing.sim_zookeeper`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from kctl.errors import NodeExistsError, NoNodeError, NotEmptyError
from kctl.zookeeper.paths import parent

ANY_VERSION = -1


class ZnodeStat(NamedTuple):
    """The metadata of a znode, in the order of the wire format; times are in ms since the epoch."""

    czxid: int
    """Id of the transaction that created the znode; for a broker registration this is the broker epoch (KIP-380)."""
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    """Number of changes of the data; conditional writes compare it."""
    cversion: int
    aversion: int
    ephemeral_owner: int
    """Session id of the owner of an ephemeral znode; 0 for a persistent one."""
    data_length: int
    num_children: int
    pzxid: int


class WatchEventType(Enum):
    """The change that fired a one-shot watch; the numbers are ZooKeeper's."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILD = 4


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A watch that fired, which removes it; read the znode again, with a watch, to get its state."""

    type: WatchEventType
    path: str


class SessionState(Enum):
    """The state of a session.

    CONNECTED -> SUSPENDED -> CONNECTED   the connection was lost and restored: ephemeral znodes and watches remain
    SUSPENDED -> EXPIRED                  the ensemble ended the session: ephemeral znodes and watches are removed
    CLOSED                                before `start` and after `close`
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A session and its password, with which any client can continue it, or close it."""

    session_id: int
    password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode in a multi.  The result is the path."""

    path: str
    data: bytes | None = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace a znode's data in a multi.  The result is the new ZnodeStat."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a znode without children in a multi.  The result is True."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Fail a multi with BadVersionError unless the znode has this version.  The result is True."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check
OperationResult = str | ZnodeStat | bool


class ZooKeeper(Protocol):
    """One session with an ensemble; its calls take effect in the order in which they were made.

    Every call may raise, in addition to the errors in its docstring:
    - SessionLostError: the session is over (expired or closed); `reconnect` starts a new one;
    - ConnectionLossError, from writes only: the connection broke before the response, the write may or may not have
      happened.  Read before retrying.  Reads are repeated automatically in the same session.
    - ZooKeeperError: other refused requests (no permission, a child under an ephemeral znode, ...).
    The error's `path` is that of the znode; for a multi that of the operation that failed.
    """

    @property
    def session_id(self) -> int:
        """The session id, which is the owner of its ephemeral znodes; 0 before `start`."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """How long the session lives without a request: the ensemble may grant less or more than what was asked for."""
        ...

    @property
    def session_key(self) -> SessionKey:
        """The session with its password, after `start`."""
        ...

    @property
    def state(self) -> SessionState:
        """The state of the session."""

    async def start(self, timeout_ms: int) -> None:
        """Open the session.  Raises ZooKeeperError if no server responds in time."""
        ...

    async def reconnect(self, timeout_ms: int) -> None:
        """Start a new session after EXPIRED, without the watches and ephemeral znodes of the old one."""
        ...

    async def close(self) -> None:
        """Close the session, which removes its ephemeral znodes; pending calls raise SessionLostError."""
        ...

    async def close_other(self, key: SessionKey, timeout_ms: int) -> None:
        """Close another session, of a client that has ended; no effect if it has expired.

        Its ephemeral znodes are deleted.  A client that still uses the session loses it.  Raises ZooKeeperError if no
        server responds in time.
        """
        ...

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes, ZnodeStat]:
        """Return data (b"" for null) and stat.  Raises NoNodeError, without setting a watch."""
        ...

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names of the children, sorted.  Raises NoNodeError, without setting a watch."""
        ...

    async def exists(self, path: str, *, watch: bool = False) -> ZnodeStat | None:
        """Return the stat, or None; the watch is set in both cases."""
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
        """Return the created path, with its number if `sequence`.  Raises NodeExistsError; NoNodeError if the parent
        is missing.
        """
        ...

    async def set(self, path: str, data: bytes | None, *, version: int = ANY_VERSION) -> ZnodeStat:
        """Replace the data; return the new stat.  Raises NoNodeError, BadVersionError."""
        ...

    async def delete(self, path: str, *, version: int = ANY_VERSION, recursive: bool = False) -> None:
        """Delete a znode.  Raises NoNodeError, BadVersionError, NotEmptyError.

        With `recursive` its descendants are deleted first, and a missing znode and the version are ignored; this is not
        atomic.
        """
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Execute all operations or none; raises the error of the operation that failed."""
        ...

    async def sync(self, path: str) -> None:
        """Return when later reads see all transactions that the ensemble had committed before this call."""
        ...


# Operations on paths that need several requests: create with parents, delete recursively. Not atomic.


async def make_path(zookeeper: ZooKeeper, path: str) -> None:
    """Create a znode and its parents, where they are missing."""
    try:
        await zookeeper.create(path)
    except NodeExistsError:
        return
    except NoNodeError:
        await make_path(zookeeper, parent(path))
        await make_path(zookeeper, path)


async def delete_tree(zookeeper: ZooKeeper, path: str) -> None:
    """Delete a znode and its descendants; a missing one is fine."""
    try:
        for child in await zookeeper.children(path):
            await delete_tree(zookeeper, f"{path.rstrip('/')}/{child}")
        await zookeeper.delete(path)
    except NoNodeError:
        return
    except NotEmptyError:  # Another client added a child meanwhile.
        await delete_tree(zookeeper, path)

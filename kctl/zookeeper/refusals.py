"""Maps ZooKeeper's error codes to exceptions of kctl with a message."""

from __future__ import annotations

from kctl.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionLostError,
    ZooKeeperError,
)
from kctl.zookeeper.embedded.messages.codes import Code

_REFUSALS: dict[int, tuple[type[ZooKeeperError], str]] = {
    Code.NO_NODE: (NoNodeError, "does not exist"),
    Code.NODE_EXISTS: (NodeExistsError, "already exists"),
    Code.BAD_VERSION: (BadVersionError, "was changed by another client"),
    Code.NOT_EMPTY: (NotEmptyError, "has children"),
    Code.NO_AUTH: (ZooKeeperError, "cannot be accessed: its ACL denies the operation"),
    Code.NO_CHILDREN_FOR_EPHEMERALS: (ZooKeeperError, "cannot be created below an ephemeral znode"),
    Code.NOT_READ_ONLY: (ZooKeeperError, "cannot be changed: ZooKeeper cannot write to its disk, which may be full"),
    Code.BAD_ARGUMENTS: (ZooKeeperError, "is not a valid path"),
}


def refused(code: int, path: str) -> ZooKeeperError:
    """Return the exception for an error code of ZooKeeper."""
    kind, text = _REFUSALS.get(code, (ZooKeeperError, f"caused ZooKeeper error {code}"))
    return kind(f"znode {path} {text}", path)


def session_lost(path: str) -> SessionLostError:
    """Return the exception for a request in a closed or expired session."""
    return SessionLostError("the ZooKeeper session has ended", path)


def connection_lost(path: str) -> ConnectionLossError:
    """Return the exception for a write whose connection was lost before the response."""
    return ConnectionLossError(f"the connection to ZooKeeper was lost before the response for znode {path}", path)

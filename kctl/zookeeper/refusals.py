"""ZooKeeper's error codes as the errors of kctl, with words for people."""

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
from kctl.zookeeper.embedded.codes import Code

_REFUSALS: dict[int, tuple[type[ZooKeeperError], str]] = {
    Code.NO_NODE: (NoNodeError, "does not exist"),
    Code.NODE_EXISTS: (NodeExistsError, "exists already"),
    Code.BAD_VERSION: (BadVersionError, "has changed since it was read"),
    Code.NOT_EMPTY: (NotEmptyError, "has children"),
    Code.NO_AUTH: (ZooKeeperError, "may not be used so: its ACL forbids it"),
    Code.NO_CHILDREN_FOR_EPHEMERALS: (ZooKeeperError, "cannot be created below an ephemeral znode"),
    Code.BAD_ARGUMENTS: (ZooKeeperError, "cannot be the name of a znode"),
}


def refused(code: int, path: str) -> ZooKeeperError:
    """What to raise when ZooKeeper answered with this code."""
    kind, says = _REFUSALS.get(code, (ZooKeeperError, f"was refused by ZooKeeper with error {code}"))
    return kind(f"znode {path} {says}", path)


def session_lost(path: str) -> SessionLostError:
    return SessionLostError("the ZooKeeper session is over", path)


def connection_lost(path: str) -> ConnectionLossError:
    return ConnectionLossError(f"the connection to ZooKeeper broke before it answered about {path}", path)

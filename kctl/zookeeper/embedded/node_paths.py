"""Validates paths of znodes.  org.apache.zookeeper.common.PathUtils.validatePath."""

from __future__ import annotations

import re

from kctl.limits import Subject, bound
from kctl.zookeeper.embedded.messages.codes import Code, KeeperError

ZOOKEEPER_PATH_CHARACTERS_MAX = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "path of a znode of the embedded ZooKeeper server",
    10_000,
    "characters",
    on_excess="BAD_ARGUMENTS",
)


ROOT = "/"
ZOOKEEPER = "/zookeeper"
QUOTA = "/zookeeper/quota"
CONFIG = "/zookeeper/config"
CANNOT_BE_DELETED = frozenset({ROOT, ZOOKEEPER, QUOTA, CONFIG})

# Beyond the Basic Multilingual Plane Java has surrogates, which are in the forbidden range.
_FORBIDDEN = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


def require_valid(path: str) -> None:
    """Raise BAD_ARGUMENTS unless the path starts with a slash, ends without one and has no empty, `.` or `..`
    element.

    Each change of a znode looks at the watches of all znodes above it, so its path must not be very long.
    """
    if path == ROOT:
        return
    if len(path) > ZOOKEEPER_PATH_CHARACTERS_MAX:
        raise KeeperError(Code.BAD_ARGUMENTS)
    elements = path.split("/")
    if elements[0] or len(elements) < 2 or not {"", ".", ".."}.isdisjoint(elements[1:]) or _FORBIDDEN.search(path):
        raise KeeperError(Code.BAD_ARGUMENTS)


def require_no_null_character(path: str) -> None:
    """Raise BAD_ARGUMENTS if the path contains a null character."""
    if "\0" in path:
        raise KeeperError(Code.BAD_ARGUMENTS)


def parent(path: str) -> str:
    """Return the parent path, without other checks.  BAD_ARGUMENTS if there is no slash."""
    above, slash, _ = path.rpartition("/")
    if not slash or "\0" in path:
        raise KeeperError(Code.BAD_ARGUMENTS)
    return above or ROOT

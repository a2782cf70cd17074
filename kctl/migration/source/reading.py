"""Reads the znodes of a Kafka cluster, each once, with a bounded number of requests in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kctl.errors import NoNodeError, UsageError
from kctl.limits import Subject, bound
from kctl.migration.source.cluster import KNOWN_ROOTS, UNREAD_ROOTS, Znode
from kctl.zookeeper.operations import ZooKeeper

ZNODES_MAX = bound(
    Subject.COMMANDS,
    "znodes that `kctl migrate` reads",
    2_000_000,
    "znodes",
    on_excess="the command ends with an error before it reads more",
)
"""A partition has three."""

ZNODE_BYTES_MAX = bound(
    Subject.COMMANDS,
    "data of all znodes that `kctl migrate` reads",
    1 << 30,
    "bytes",
    on_excess="the command ends with an error before it reads more",
)
_REQUESTS_AT_A_TIME = 256


async def read_znodes(zookeeper: ZooKeeper) -> dict[str, Znode]:
    """Return all znodes below the chroot by path, with their parents before them.

    Children of the root that Kafka does not use are returned without their descendants, because ZooKeeper may be shared
    with other programs.  Raises UsageError when there are more than the bounds, and ZooKeeperError.
    """
    znodes: dict[str, Znode] = {}
    size = 0
    await zookeeper.sync("/")
    level = ["/"]
    while level:
        if len(znodes) + len(level) > ZNODES_MAX:
            raise UsageError(f"ZooKeeper has more than {ZNODES_MAX} znodes below the root of the cluster")
        below: list[str] = []
        for start in range(0, len(level), _REQUESTS_AT_A_TIME):
            paths = level[start : start + _REQUESTS_AT_A_TIME]
            for path, read in zip(
                paths, await asyncio.gather(*(_read(zookeeper, path) for path in paths)), strict=True
            ):
                if read is None:
                    continue
                znode, children = read
                size += len(znode.data)
                if size > ZNODE_BYTES_MAX:
                    raise UsageError(f"the znodes of the cluster have more than {ZNODE_BYTES_MAX} bytes")
                znodes[path] = znode
                below.extend(_descended(path, children))
        level = below
    return znodes


def _descended(path: str, children: Sequence[str]) -> list[str]:
    """Return the paths of the children that are read."""
    if path == "/":
        return [f"/{name}" for name in children if f"/{name}" not in UNREAD_ROOTS]
    root = "/" + path.split("/", 2)[1]
    return [f"{path}/{name}" for name in children] if root in KNOWN_ROOTS else []


async def _read(zookeeper: ZooKeeper, path: str) -> tuple[Znode, list[str]] | None:
    """Return a znode and the names of its children; None if it was deleted meanwhile."""
    try:
        data, stat = await zookeeper.get(path)
        children = await zookeeper.children(path) if stat.num_children else []
    except NoNodeError:
        return None
    return Znode(data, stat.version, is_ephemeral=bool(stat.ephemeral_owner)), children

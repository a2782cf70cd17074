"""The znodes: a map from path to znode, changed by operations with a transaction id.

Versions are those of ZooKeeper: `version` counts changes of the data, `aversion` of the ACL.  Of the children only
creations are counted, and that count numbers sequential znodes; the cversion that clients see is creations plus
deletions, that is twice the creations minus the present children.  All three wrap at 32 bits.

Znodes are immutable and replaced, so that keeping the state before a transaction is cheap: to roll back a failed multi,
and to return the changes since the last commit to the store.

Pure.  Owner: the keeper.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from kctl.system.steps import Steps
from kctl.zookeeper.embedded import acl as acls
from kctl.zookeeper.embedded import node_paths
from kctl.zookeeper.embedded.acl import Acls, Id
from kctl.zookeeper.embedded.messages import codes
from kctl.zookeeper.embedded.messages.codes import Code, CreateMode, KeeperError
from kctl.zookeeper.operations import ANY_VERSION, ZnodeStat

_COUNTED_PER_STEP = 10_000
"""Paths that are compared in 2 ms."""
CONTAINER_OWNER = -(1 << 63)
"""The owner of containers, to distinguish them from other znodes; clients see 0."""


class Znode(NamedTuple):
    """One znode; `creations` counts the children ever created, `owner` is a session id, 0 or CONTAINER_OWNER."""

    data: bytes | None
    acl: Acls
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    creations: int
    aversion: int
    owner: int


class Tree:
    """The tree.  Operations check everything before they change anything, so that a failed one has no effect.

    They raise KeeperError with the codes in their docstrings.
    """

    def __init__(self, nodes: Iterable[tuple[str, Znode]] = ()) -> None:
        self._nodes: dict[str, Znode] = {}
        self._children: dict[str, set[str]] = {}
        self._owned: dict[int, dict[str, None]] = {}
        self._changes: dict[str, tuple[Znode | None, Znode | None]] = {}
        self.data_bytes = 0
        """Size of paths and data in bytes, for `mntr`."""
        self._undo: list[tuple[str, Znode | None]] = []
        for path, node in nodes:
            self._place(path, node)
        if not self._nodes:
            for path in sorted(node_paths.CANNOT_BE_DELETED):
                self._put(path, Znode(b"", acls.OPEN_ACL_UNSAFE, 0, 0, 0, 0, 0, 0, 0, 0, 0))
            config = self._nodes[node_paths.CONFIG]
            self._put(node_paths.CONFIG, config._replace(acl=acls.READ_ACL_UNSAFE, aversion=-1))

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def ephemerals(self) -> Mapping[int, Collection[str]]:
        """Paths by owner, in the order of their creation; containers by CONTAINER_OWNER."""
        return self._owned

    def find(self, path: str) -> Znode | None:
        """Return the znode, None if it does not exist."""
        return self._nodes.get(path)

    def node(self, path: str) -> Znode:
        """Return the znode.  NO_NODE."""
        try:
            return self._nodes[path]
        except KeyError:
            raise KeeperError(Code.NO_NODE) from None

    def children(self, path: str) -> set[str]:
        """Return the names of the children."""
        return self._children.get(path, set())

    def descendants(self, path: str) -> Steps[int]:
        """Return the number of all descendants; counts in steps, between which the tree must not change."""
        if path == node_paths.ROOT:
            return len(self._nodes) - 1
        prefix, count, paths = path + "/", 0, iter(self._nodes)
        while some := list(islice(paths, _COUNTED_PER_STEP)):
            count += sum(path.startswith(prefix) for path in some)
            yield
        return count

    def stat(self, path: str) -> ZnodeStat:
        """Return the metadata that clients see.  NO_NODE."""
        node = self.node(path)
        child_count = len(self.children(path))
        return ZnodeStat(
            czxid=node.czxid,
            mzxid=node.mzxid,
            ctime_ms=node.ctime_ms,
            mtime_ms=node.mtime_ms,
            version=node.version,
            cversion=_int32(node.creations * 2 - child_count),
            aversion=node.aversion,
            ephemeral_owner=0 if node.owner == CONTAINER_OWNER else node.owner,
            data_length=len(node.data or b""),
            num_children=child_count,
            pzxid=node.pzxid,
        )

    def create(
        self,
        path: str,
        data: bytes | None,
        acl: Iterable[acls.Acl] | None,
        mode: CreateMode,
        *,
        is_container: bool = False,
        session_id: int,
        identities: Iterable[Id],
        zxid: int,
        now_ms: int,
    ) -> str:
        """Create a znode and return its path.  BAD_ARGUMENTS, INVALID_ACL, NO_NODE, NO_AUTH, NODE_EXISTS,
        NO_CHILDREN_FOR_EPHEMERALS.
        """
        parent_path = node_paths.parent(path)
        stored_acl = acls.resolved(acl, identities)
        parent = self.node(parent_path)
        acls.require(parent.acl, codes.CREATE, identities)
        if mode.is_sequential:
            path += f"{parent.creations:010d}"
        node_paths.require_valid(path)
        if path in self._nodes:
            raise KeeperError(Code.NODE_EXISTS)
        if parent.owner not in {0, CONTAINER_OWNER}:
            raise KeeperError(Code.NO_CHILDREN_FOR_EPHEMERALS)
        owner = CONTAINER_OWNER if is_container else session_id if mode.is_ephemeral else 0
        self._put(parent_path, parent._replace(creations=_int32(parent.creations + 1), pzxid=zxid))
        self._put(path, Znode(data, stored_acl, zxid, zxid, zxid, now_ms, now_ms, 0, 0, 0, owner))
        return path

    def delete(self, path: str, version: int, *, identities: Iterable[Id], zxid: int) -> None:
        """Delete a znode.  BAD_ARGUMENTS, NO_NODE, NO_AUTH, BAD_VERSION, NOT_EMPTY."""
        parent_path = node_paths.parent(path)
        if path in node_paths.CANNOT_BE_DELETED:
            raise KeeperError(Code.BAD_ARGUMENTS)
        acls.require(self.node(parent_path).acl, codes.DELETE, identities)
        node = self.node(path)
        _require_version(node.version, version)
        if self._children.get(path):
            raise KeeperError(Code.NOT_EMPTY)
        self.remove(path, zxid=zxid)

    def remove(self, path: str, *, zxid: int) -> None:
        """Delete an existing znode without children, without checks."""
        parent_path = node_paths.parent(path)
        parent = self._nodes[parent_path]
        self._put(path, None)
        self._put(parent_path, parent._replace(pzxid=zxid))

    def set_data(
        self, path: str, data: bytes | None, version: int, *, identities: Iterable[Id], zxid: int, now_ms: int
    ) -> None:
        """Replace the data.  BAD_ARGUMENTS, NO_NODE, NO_AUTH, BAD_VERSION."""
        node_paths.require_valid(path)
        node = self.node(path)
        acls.require(node.acl, codes.WRITE, identities)
        _require_version(node.version, version)
        changed = node._replace(data=data, version=_int32(node.version + 1), mzxid=zxid, mtime_ms=now_ms)
        self._put(path, changed)

    def set_acl(self, path: str, acl: Iterable[acls.Acl] | None, version: int, *, identities: Iterable[Id]) -> None:
        """Replace the ACL.  BAD_ARGUMENTS, INVALID_ACL, NO_NODE, NO_AUTH, BAD_VERSION (of the ACL)."""
        node_paths.require_valid(path)
        stored_acl = acls.resolved(acl, identities)
        node = self.node(path)
        acls.require(node.acl, codes.ADMIN, identities)
        _require_version(node.aversion, version)
        self._put(path, node._replace(acl=stored_acl, aversion=_int32(node.aversion + 1)))

    def check(self, path: str, version: int, *, identities: Iterable[Id]) -> None:
        """Compare the version.  BAD_ARGUMENTS, NO_NODE, NO_AUTH, BAD_VERSION."""
        node_paths.require_valid(path)
        node = self.node(path)
        acls.require(node.acl, codes.READ, identities)
        _require_version(node.version, version)

    def begin(self) -> None:
        """Start a transaction, to which `roll_back` returns."""
        self._undo.clear()

    def roll_back(self) -> None:
        """Undo the changes since `begin`."""
        while self._undo:
            path, node = self._undo.pop()
            self._changes[path] = (self._changes[path][0], node)
            self._place(path, node)

    def take_changes(self) -> dict[str, tuple[Znode | None, Znode | None]]:
        """Return path to (before, now) of each znode that was changed since the last call; None if it did or does not
        exist, twice the same if the change was undone.
        """
        changes, self._changes = self._changes, {}
        return changes

    def _put(self, path: str, node: Znode | None) -> None:
        before = self._nodes.get(path)
        changed = self._changes.get(path)
        self._changes[path] = (before if changed is None else changed[0], node)
        self._undo.append((path, before))
        self._place(path, node)

    def _place(self, path: str, node: Znode | None) -> None:
        before = self._nodes.pop(path, None)
        if before is not None and before.owner and (node is None or node.owner != before.owner):
            self._disown(before.owner, path)
        if before is not None:
            self.data_bytes -= len(path) + len(before.data or b"")
        if node is not None:
            self._nodes[path] = node
            self.data_bytes += len(path) + len(node.data or b"")
            if node.owner:
                self._owned.setdefault(node.owner, {})[path] = None
        if path != node_paths.ROOT and (before is None) != (node is None):
            self._link(path, is_there=node is not None)

    def _link(self, path: str, *, is_there: bool) -> None:
        parent_path, _, name = path.rpartition("/")
        siblings = self._children.setdefault(parent_path or node_paths.ROOT, set())
        if is_there:
            siblings.add(name)
            return
        siblings.discard(name)
        if not siblings:
            del self._children[parent_path or node_paths.ROOT]

    def _disown(self, owner: int, path: str) -> None:
        owned = self._owned[owner]
        owned.pop(path, None)
        if not owned:
            del self._owned[owner]


def _require_version(current: int, expected: int) -> None:
    if expected not in {ANY_VERSION, current}:
        raise KeeperError(Code.BAD_VERSION)


def _int32(value: int) -> int:
    """Return the result of Java's int arithmetic."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)

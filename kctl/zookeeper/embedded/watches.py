"""The watches of clients.

Watches for data (exists, getData) and for children (getChildren) are kept separately, because a client may have both
for one path.  A standard watch is removed by its first event; persistent and recursive ones (addWatch) are not, and
recursive ones also fire for changes below the path, but not for children events.  One change gives one watcher one
event.

Pure.  Owner: the keeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntFlag
from typing import Protocol

from kctl.limits import ZOOKEEPER_PATHS_PER_STEP, Subject, bound
from kctl.system.steps import Steps
from kctl.zookeeper.embedded import acl as acls
from kctl.zookeeper.embedded import node_paths
from kctl.zookeeper.embedded.acl import Acls, Id
from kctl.zookeeper.embedded.messages.codes import READ, EventType

ZOOKEEPER_WATCHES_MAX = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "paths on which one connection to the embedded ZooKeeper server has data or child watches",
    500_000,
    "paths of each kind",
    on_excess="the connection is closed",
)
"""A controller watches the state of each partition that is reassigned, and each topic."""


class Watcher(Protocol):
    """A connection; its watches are removed with it."""

    identities: tuple[Id, ...]

    def notify(self, event: EventType, path: str, zxid: int) -> None:
        """Send a watch event."""


class TooManyWatches(Exception):
    """The connection has too many watches and has to be closed; ZooKeeper has no error code for it."""


class WatchMode(IntFlag):
    """The modes of the watches of one watcher for one path."""

    STANDARD = 1
    PERSISTENT = 2
    RECURSIVE = 4


_NONE = WatchMode(0)
_RECURSIVE = WatchMode.RECURSIVE
ANY_MODE = WatchMode.STANDARD | WatchMode.PERSISTENT | WatchMode.RECURSIVE


class Watches:
    """All watches of one kind, for data or for children."""

    def __init__(self) -> None:
        self._by_path: dict[str, dict[Watcher, WatchMode]] = {}
        self._by_watcher: dict[Watcher, set[str]] = {}
        self._recursive_count = 0

    def __len__(self) -> int:
        return sum(len(paths) for paths in self._by_watcher.values())

    @property
    def path_count(self) -> int:
        """The number of paths with a watch."""
        return len(self._by_path)

    @property
    def watcher_count(self) -> int:
        """The number of connections with a watch."""
        return len(self._by_watcher)

    def add(self, path: str, watcher: Watcher, mode: WatchMode = WatchMode.STANDARD) -> None:
        """Add a watch.  Raises TooManyWatches if the watcher has watches on ZOOKEEPER_WATCHES_MAX other paths."""
        own = self._by_watcher.get(watcher, ())
        if len(own) >= ZOOKEEPER_WATCHES_MAX and path not in own:
            raise TooManyWatches
        present = self._by_path.setdefault(path, {}).get(watcher)
        self._set(path, watcher, mode if present is None else present | mode)

    def has(self, path: str, watcher: Watcher, modes: WatchMode = ANY_MODE) -> bool:
        """Return True if the watcher has a watch of one of these modes."""
        return bool(self._by_path.get(path, {}).get(watcher, _NONE) & modes)

    def remove(self, path: str, watcher: Watcher, modes: WatchMode = ANY_MODE) -> None:
        """Remove watches of these modes."""
        if self.has(path, watcher, modes):
            self._set(path, watcher, self._by_path[path][watcher] & ~modes)

    def remove_watcher(self, watcher: Watcher) -> Steps[None]:
        """Remove all watches of a watcher, in steps; from the first one on it is not notified."""
        paths = self._by_watcher.pop(watcher, set())
        while paths:
            for _ in range(min(len(paths), ZOOKEEPER_PATHS_PER_STEP)):
                path = paths.pop()
                watchers = self._by_path[path]
                self._recursive_count -= watchers.pop(watcher) >= _RECURSIVE
                if not watchers:
                    del self._by_path[path]
            yield

    def fire(self, event: EventType, path: str) -> list[Watcher]:
        """Return the watchers to notify, each once, in the order of their watches; standard watches are removed."""
        notified: dict[Watcher, None] = {}
        for watcher, mode in list(self._by_path.get(path, {}).items()):
            if watcher not in self._by_watcher:
                continue
            if mode & (WatchMode.STANDARD | WatchMode.PERSISTENT) or event is not EventType.CHILDREN_CHANGED:
                notified[watcher] = None
            if mode & WatchMode.STANDARD:
                self._set(path, watcher, mode & ~WatchMode.STANDARD)
        if self._recursive_count and event is not EventType.CHILDREN_CHANGED:
            for above in _ancestors(path):
                for watcher, mode in self._by_path.get(above, {}).items():
                    if mode >= _RECURSIVE and watcher in self._by_watcher:
                        notified[watcher] = None
        return list(notified)

    def _set(self, path: str, watcher: Watcher, mode: WatchMode) -> None:
        watchers = self._by_path[path]
        self._recursive_count += (mode >= _RECURSIVE) - (watchers.get(watcher, _NONE) >= _RECURSIVE)
        if mode:
            watchers[watcher] = mode
            self._by_watcher.setdefault(watcher, set()).add(path)
            return
        del watchers[watcher]
        if not watchers:
            del self._by_path[path]
        own = self._by_watcher[watcher]
        own.discard(path)
        if not own:
            del self._by_watcher[watcher]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one znode, with the ACLs that restrict its events: those of the znode and of its parent."""

    event: EventType
    path: str
    zxid: int
    """The transaction that changed the znode."""
    acl: Acls
    parent_acl: Acls


class WatchBoard:
    """The watches of both kinds, and the events of a change.  DataTree.createNode, deleteNode, setData.

    A change that the watcher may not read removes the watch without an event.  CVE-2024-23944.
    """

    def __init__(self) -> None:
        self.data = Watches()
        self.children = Watches()

    def dispatch(self, change: Change) -> int:
        """Send the events of a change; return how many watchers had a watch."""
        notified = dict.fromkeys(self.data.fire(change.event, change.path))
        if change.event is EventType.DELETED:
            notified.update(dict.fromkeys(self.children.fire(EventType.DELETED, change.path)))
        _notify(notified, change.event, change.path, change.zxid, change.acl)
        if change.event is not EventType.DATA_CHANGED:
            parent = node_paths.parent(change.path)
            watchers = self.children.fire(EventType.CHILDREN_CHANGED, parent)
            _notify(watchers, EventType.CHILDREN_CHANGED, parent, change.zxid, change.parent_acl)
            return len(notified) + len(watchers)
        return len(notified)

    def remove_watcher(self, watcher: Watcher) -> Steps[None]:
        """Remove all watches of a watcher, in steps."""
        yield from self.data.remove_watcher(watcher)
        yield from self.children.remove_watcher(watcher)


def _notify(watchers: Iterable[Watcher], event: EventType, path: str, zxid: int, acl: Acls) -> None:
    for watcher in watchers:
        if acls.allows(acl, READ, watcher.identities):
            watcher.notify(event, path, zxid)


def _ancestors(path: str) -> Iterator[str]:
    while path != node_paths.ROOT:
        path = node_paths.parent(path)
        yield path

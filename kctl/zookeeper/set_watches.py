"""The setWatches request, which sets the watches of a broken connection again on the next one, as kazoo sends requests.

Pure.
"""

from __future__ import annotations

import struct

SET_WATCHES_BYTES_MAX = 128 * 1024
"""The size of the paths in one request; jute.maxbuffer, the server's limit, is 1 MiB by default."""


class Watch:
    """A watch as kazoo keeps it per path, with what is needed to set it again after a reconnect.

    kazoo keeps a set of watches for each path until it fires.  A watch that is set again before that is equal, as it is
    to ZooKeeper; otherwise the sets would grow with each read of a path that does not change.
    """

    DATA, EXIST, CHILD = range(3)
    """EXIST: the znode did not exist; setWatches distinguishes it from DATA."""

    __slots__ = ("kind", "path")

    def __init__(self, kind: int, path: str) -> None:
        self.kind = kind
        self.path = path

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Watch)
            and self.path == other.path
            and (self.kind == self.CHILD) is (other.kind == self.CHILD)
        )

    def __hash__(self) -> int:
        return hash(self.path)


class SetWatches:
    """The setWatches request: sets watches, and fires those whose znode changed after `zxid`."""

    type = 101

    def __init__(self, zxid: int, watches: list[Watch]) -> None:
        self._zxid = zxid
        self._watches = watches

    def serialize(self) -> bytes:
        """Return the body of the request."""
        parts = [struct.pack(">q", self._zxid)]
        for kind in (Watch.DATA, Watch.EXIST, Watch.CHILD):
            paths = sorted({watch.path for watch in self._watches if watch.kind == kind})
            parts.append(struct.pack(">i", len(paths)))
            parts.extend(_string(path) for path in paths)
        return b"".join(parts)

    @staticmethod
    def deserialize(_buffer: bytes, _offset: int) -> bool:
        """Ignore the response."""
        return True


class IgnoredResponse:
    """The result of a request whose response is not needed: if it fails, the connection does too, and watches are
    set again.
    """

    def set(self, value: object) -> None:
        """Ignore the response."""

    def set_exception(self, error: Exception) -> None:
        """Ignore the error."""


def batches(watches: list[Watch]) -> list[list[Watch]]:
    """Split watches so that each request stays far below jute.maxbuffer."""
    batches_of_watches: list[list[Watch]] = []
    room = 0
    for watch in watches:
        size = len(watch.path.encode()) + 4
        if size > room:
            batches_of_watches.append([])
            room = SET_WATCHES_BYTES_MAX
        batches_of_watches[-1].append(watch)
        room -= size
    return batches_of_watches


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data

"""The `.snapshot` files of a log: the state of its producers at some offsets, which spares a start the reading.

One is written at every roll, at a clean close and after recovery.  There is one for each segment's base offset (for
recovery after a truncation) and the newest; others are removed.  A damaged one is dropped and the next older one tried.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kctl.errors import CorruptLog
from kctl.storage.checkpoints import parse_snapshot, snapshot_bytes
from kctl.storage.files import Files
from kctl.storage.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, offset_file_name
from kctl.storage.producer_state import ProducerState

_logger = logging.getLogger(__name__)


class ProducerSnapshots:
    """The snapshot files of one log.  Owner: event loop."""

    __slots__ = ("_directory", "_files", "_offsets", "_unsynced")

    def __init__(self, files: Files, directory: str, offsets: Iterable[int] = ()) -> None:
        self._files = files
        self._directory = directory
        self._offsets = sorted(offsets)
        self._unsynced: list[int] = []

    @property
    def latest_offset(self) -> int | None:
        """The offset of the newest snapshot."""
        return self._offsets[-1] if self._offsets else None

    @property
    def has_unsynced(self) -> bool:
        return bool(self._unsynced)

    def moved_to(self, directory: str) -> None:
        """The log's directory has another name now."""
        self._directory = directory

    def path(self, offset: int) -> str:
        return f"{self._directory}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}"

    def write(self, state: ProducerState) -> None:
        """A snapshot at the state's end offset, unless there is one.  It is synced with the next flush."""
        offset = state.end_offset
        if offset in self._offsets:
            return
        self._files.write_atomically(self.path(offset), snapshot_bytes(state.snapshot()), sync=False)
        self._offsets.append(offset)
        self._offsets.sort()
        self._unsynced.append(offset)

    def load_latest(self, state: ProducerState, *, at_most: int, at_least: int) -> None:
        """Put `state` to the newest readable snapshot in the range; to knowing nothing at `at_least` without one."""
        for offset in reversed([offset for offset in self._offsets if offset <= at_most]):
            if offset < at_least:
                break
            try:
                state.load(parse_snapshot(self._files.read(self.path(offset)), self.path(offset)), offset)
            except CorruptLog as error:
                _logger.warning("removing corrupt producer snapshot error=%s", error)
                self.remove(offset)
            else:
                return
        state.clear(at_least)

    def take_unsynced(self) -> list[str]:
        """Snapshots written since the last call that are still there."""
        paths = [self.path(offset) for offset in self._unsynced if offset in self._offsets]
        self._unsynced.clear()
        return paths

    def remove(self, offset: int) -> None:
        if offset in self._offsets:
            self._offsets.remove(offset)
            self._files.remove(self.path(offset))

    def remove_after(self, offset: int) -> None:
        """Snapshots of records that are gone after a truncation."""
        for later in [other for other in self._offsets if other > offset]:
            self.remove(later)

    def remove_all(self) -> None:
        for offset in list(self._offsets):
            self.remove(offset)

    def keep_only(self, base_offsets: Iterable[int]) -> None:
        """Remove what belongs to no segment and is not the newest."""
        keep = {*base_offsets, self.latest_offset}
        for offset in [other for other in self._offsets if other not in keep]:
            self.remove(offset)

    def mark_deleted(self, offset: int) -> list[str]:
        """Rename the snapshot at `offset`, if any, to `.deleted`; returns its new path."""
        if offset not in self._offsets or offset == self.latest_offset:
            return []
        self._offsets.remove(offset)
        path = self.path(offset)
        self._files.rename(path, path + DELETED_SUFFIX)
        return [path + DELETED_SUFFIX]

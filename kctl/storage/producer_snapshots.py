"""The `.snapshot` files of a log: producer state at an offset, so that a start does not read the whole log.

A snapshot is written at every roll, at a clean shutdown and after recovery.  Kept are those at the base offsets of the
segments (for recovery after a truncation) and the newest one.  A corrupt one is removed and the next older one is used.
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
        """The offset of the newest snapshot, None if there is none."""
        return self._offsets[-1] if self._offsets else None

    @property
    def has_unsynced(self) -> bool:
        """True if a snapshot was written since the last flush."""
        return bool(self._unsynced)

    def moved_to(self, directory: str) -> None:
        """Use the new path of the log's directory."""
        self._directory = directory

    def path(self, offset: int) -> str:
        """Return the path of the snapshot at `offset`."""
        return f"{self._directory}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}"

    def write(self, state: ProducerState) -> None:
        """Write a snapshot at the end offset of `state`, unless it exists.  It is synced with the next flush."""
        offset = state.end_offset
        if offset in self._offsets:
            return
        self._files.write_atomically(self.path(offset), snapshot_bytes(state.snapshot()), sync=False)
        self._offsets.append(offset)
        self._offsets.sort()
        self._unsynced.append(offset)

    def load_latest(self, state: ProducerState, *, at_most: int, at_least: int) -> None:
        """Load the newest readable snapshot in the range; without one `state` is cleared, with the end offset
        `at_least`.
        """
        for offset in reversed([offset for offset in self._offsets if offset <= at_most]):
            if offset < at_least:
                break
            try:
                state.load(parse_snapshot(self._files.read(self.path(offset)), self.path(offset)), offset)
            except CorruptLog as error:
                _logger.warning(
                    "cannot read producer snapshot, removing it and using an older one path=%s error=%s",
                    self._directory,
                    error,
                )
                self.remove(offset)
            else:
                return
        state.clear(at_least)

    def take_unsynced(self) -> list[str]:
        """Return the existing snapshots written since the last call."""
        paths = [self.path(offset) for offset in self._unsynced if offset in self._offsets]
        self._unsynced.clear()
        return paths

    def remove(self, offset: int) -> None:
        """Remove the snapshot at `offset`, if any."""
        if offset in self._offsets:
            self._offsets.remove(offset)
            self._files.remove(self.path(offset))

    def remove_after(self, offset: int) -> None:
        """Remove the snapshots after `offset`, which is the log end after a truncation."""
        for later in [other for other in self._offsets if other > offset]:
            self.remove(later)

    def remove_all(self) -> None:
        """Remove all snapshots."""
        for offset in list(self._offsets):
            self.remove(offset)

    def keep_only(self, base_offsets: Iterable[int]) -> None:
        """Remove all snapshots but the newest and those at a base offset of a segment."""
        keep = {*base_offsets, self.latest_offset}
        for offset in [other for other in self._offsets if other not in keep]:
            self.remove(offset)

    def mark_deleted(self, offset: int) -> list[str]:
        """Rename the snapshot at `offset`, if any, to `.deleted`; return its new path."""
        if offset not in self._offsets or offset == self.latest_offset:
            return []
        self._offsets.remove(offset)
        path = self.path(offset)
        self._files.rename(path, path + DELETED_SUFFIX)
        return [path + DELETED_SUFFIX]

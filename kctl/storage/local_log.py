"""The segments of a log and their files: rolls, truncates, deletes and replaces segments.  Kafka 3's LocalLog.

The process may be killed between any two operations on the disk, so they are ordered such that the next start can
complete or undo them (kctl.storage.recovery, kctl.storage.leftovers):

    roll          close the old segment before creating the new one
    truncate_to   delete the segments after the offset newest first, so that no hole is left; sync the truncation
    clear         delete all segments newest first, then create a new one
    retire        rename the files to `.deleted` now and remove them later: readers may still use them
    replace       rename drafts to `.swap`, retire the old segments, rename the drafts to their final names

Offsets are arguments: which records are visible, and their producers and epochs, is decided by the log.  The list and
the files agree after each call; after an OSError they may not, and the log directory goes offline.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from kctl.environment import Random
from kctl.limits import CLOSED_SEGMENTS_PER_FLUSH
from kctl.storage.config import LogConfig
from kctl.storage.files import File, Files
from kctl.storage.log_directory import DelayedRemovals
from kctl.storage.names import SWAP_SUFFIX
from kctl.storage.producer_state import ProducerEntry
from kctl.storage.segment import Segment
from kctl.storage.segments import SegmentList


class LocalLog:
    """The segments of one log.  All methods raise OSError."""

    __slots__ = ("_files", "_random", "_removals", "directory", "segments")

    def __init__(
        self, directory: str, segments: SegmentList, *, files: Files, removals: DelayedRemovals, random: Random
    ) -> None:
        self.directory = directory
        self.segments = segments
        """The segments; one object for the lifetime of the log."""
        self._files = files
        self._removals = removals
        self._random = random

    def roll(self, base_offset: int, config: LogConfig, now_ms: int) -> None:
        """Start a new active segment; the caller has closed the present one."""
        self.segments.add(self._new_segment(base_offset, config, now_ms))

    def truncate_to(self, offset: int) -> None:
        """Delete all records from `offset` on; `offset` is in or after the first segment."""
        for segment in self.segments.take_after(offset):
            segment.remove()
        active = self.segments.active
        active.truncate_to(offset)
        active.file.sync()  # Otherwise the records could be back after a power failure.
        active.become_active()

    def clear(self) -> None:
        """Remove the files of all segments at once; call `begin_at` next."""
        for segment in reversed(self.segments.all()):
            segment.remove()

    def begin_at(self, base_offset: int, config: LogConfig) -> None:
        """Replace all segments by an empty one with the creation time of the active one."""
        self.segments.replace_all(self._new_segment(base_offset, config, self.segments.active.created_ms))

    def retire(self, segment: Segment, *, due_ms: int) -> None:
        """Rename the files of a segment that was removed from the list to `.deleted`; they are removed at `due_ms`."""
        self.retire_files(segment.mark_deleted(), due_ms=due_ms)

    def retire_files(self, paths: list[str], *, due_ms: int) -> None:
        """Remove files that were renamed to `.deleted` at `due_ms`."""
        self._removals.add(paths, due_ms=due_ms)

    def free_later(self, producers: list[ProducerEntry]) -> None:
        """Free producers that the log has no longer in the thread that removes files."""
        self._removals.keep(producers, due_ms=0)

    def replace(self, old: Sequence[Segment], new: Sequence[Segment], *, due_ms: int) -> None:
        """Replace closed segments by the cleaner's drafts made from them; the old files are removed at `due_ms`."""
        for segment in reversed(new):
            segment.change_suffix(SWAP_SUFFIX)
        self.segments.replace(list(old), list(new))
        for segment in old:
            self.retire(segment, due_ms=due_ms)
            segment.close()
        for segment in new:
            segment.change_suffix("")

    def end_of_closed(self, recovery_point: int) -> int:
        """Return the end of the closed segments to sync together: CLOSED_SEGMENTS_PER_FLUSH from the recovery point."""
        following = self.segments.from_index(self.segments.floor_index(recovery_point) + CLOSED_SEGMENTS_PER_FLUSH)
        return following[0].base_offset if following else self.segments.active.base_offset

    def files_to_sync(self, recovery_point: int, end: int | None = None) -> list[File]:
        """Return the open files of the segments with records from the recovery point on, for fsync.

        With `end`, only those of segments before this base offset.
        """
        segments = self.segments.from_index(self.segments.floor_index(recovery_point))
        return [
            file for segment in segments if end is None or segment.base_offset < end for file in segment.files_to_sync()
        ]

    def release(self) -> None:
        """Close the files without writing anything."""
        for segment in self.segments:
            segment.close()

    def moved_to(self, directory: str) -> None:
        """Use the new path of the directory for files opened from now on."""
        self.directory = directory
        for segment in self.segments:
            segment.moved_to(directory)

    def _new_segment(self, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        return Segment.create(
            self._files,
            self.directory,
            base_offset,
            config,
            now_ms=now_ms,
            roll_jitter_ms=config.random_jitter_ms(self._random),
        )

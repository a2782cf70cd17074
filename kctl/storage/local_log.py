"""The segments of a log and their files: how segments begin, are cut, and go.  Kafka 3's LocalLog.

Between any two steps on the disk the process may die, so their order is such that the next start can tell what was
meant (kctl.storage.recovery, kctl.storage.leftovers):

    roll          the old segment is closed before there is a new one
    truncate_to   segments behind the cut go newest first, so that what is left has no hole; the cut is synced
    clear         all go newest first, and only then there is a new one
    retire        the files are renamed to `.deleted` now and removed later: readers may go on with what they hold
    replace       drafts get `.swap`, then the old segments retire, then the drafts get their final names

Offsets come in as arguments: what records are visible, who wrote them and in which epoch is the log's business.  The
list and the files agree after each call; an OSError leaves them apart, and the log directory goes offline for it.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from kctl.environment import Random
from kctl.storage.config import LogConfig
from kctl.storage.files import File, Files
from kctl.storage.log_directory import DelayedRemovals
from kctl.storage.names import SWAP_SUFFIX
from kctl.storage.segment import Segment
from kctl.storage.segments import SegmentList


class LocalLog:
    """All methods raise OSError."""

    __slots__ = ("_files", "_random", "_removals", "directory", "segments")

    def __init__(
        self, directory: str, segments: SegmentList, *, files: Files, removals: DelayedRemovals, random: Random
    ) -> None:
        self.directory = directory
        self.segments = segments
        """The same object for as long as the log lives."""
        self._files = files
        self._removals = removals
        self._random = random

    def roll(self, base_offset: int, config: LogConfig, now_ms: int) -> None:
        """Start a new active segment; the caller has closed the present one."""
        self.segments.add(self._new_segment(base_offset, config, now_ms))

    def truncate_to(self, offset: int) -> None:
        """Drop all records from `offset` on, which lies in the first segment or behind it."""
        for segment in self.segments.take_after(offset):
            segment.remove()
        active = self.segments.active
        active.truncate_to(offset)
        active.file.sync()  # Otherwise a power failure would bring the records back.
        active.become_active()

    def clear(self) -> None:
        """Remove the files of all segments at once; `begin_at` has to follow."""
        for segment in reversed(self.segments.all()):
            segment.remove()

    def begin_at(self, base_offset: int, config: LogConfig) -> None:
        """Have one empty segment instead of all, as old as the active one was."""
        self.segments.replace_all(self._new_segment(base_offset, config, self.segments.active.created_ms))

    def retire(self, segment: Segment, *, due_ms: int) -> None:
        """Let the files of a segment that is not in the list any more go at `due_ms`."""
        self.retire_files(segment.mark_deleted(), due_ms=due_ms)

    def retire_files(self, paths: list[str], *, due_ms: int) -> None:
        """Let files go at `due_ms` that have been renamed to `.deleted`."""
        self._removals.add(paths, due_ms=due_ms)

    def replace(self, old: Sequence[Segment], new: Sequence[Segment], *, due_ms: int) -> None:
        """Take a cleaner's drafts for the closed segments that they were made of; the files of those go at `due_ms`."""
        for segment in reversed(new):
            segment.change_suffix(SWAP_SUFFIX)
        self.segments.replace(list(old), list(new))
        for segment in old:
            self.retire(segment, due_ms=due_ms)
            segment.close()
        for segment in new:
            segment.change_suffix("")

    def files_to_sync(self, recovery_point: int, *, closed_segments_only: bool) -> list[File]:
        """What holds the records from the recovery point on, opened."""
        segments = self.segments.from_index(self.segments.floor_index(recovery_point))
        if closed_segments_only:
            segments.pop()
        return [file for segment in segments for file in segment.files_to_sync()]

    def release(self) -> None:
        """Close the files as they are."""
        for segment in self.segments:
            segment.close()

    def moved_to(self, directory: str) -> None:
        """The directory has been renamed; what is opened from now on is looked for there."""
        self.directory = directory
        for segment in self.segments:
            segment.moved_to(directory)

    def _new_segment(self, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        return Segment.create(
            self._files,
            self.directory,
            base_offset,
            config,
            now_ms=now_ms,
            roll_jitter_ms=self._random.randrange(0, jitter) if jitter > 0 else 0,
        )

"""The segments of one log: their list, and the creation, rolling, truncation and replacement of their files."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence

from kctl.limits import Subject, bound
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_directory import DelayedRemovals
from kctl.storage.files import File, Files
from kctl.storage.names import SWAP_SUFFIX
from kctl.storage.segments.segment import Segment
from kctl.storage.state.producer_state import ProducerEntry
from kctl.system.environment import Random

CLOSED_SEGMENTS_PER_FLUSH = bound(
    Subject.CONNECTIONS,
    "closed segments of one log that are flushed together, with three open files for each",
    8,
    "segments",
    on_excess="further ones are flushed afterwards",
)


# The list of segments of one log.


class SegmentList:
    """Segments by base offset; the last is the active one.  Owner: event loop."""

    __slots__ = ("_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        """`segments` has at least one segment and is in order."""
        self._segments = segments
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def first(self) -> Segment:
        """The segment with the lowest base offset."""
        return self._segments[0]

    @property
    def size(self) -> int:
        """Size of all batches in bytes."""
        return sum(segment.size for segment in self._segments)

    def all(self) -> list[Segment]:
        """Return a copy of the list, for iterations during which it changes."""
        return list(self._segments)

    def floor_index(self, offset: int) -> int:
        """Return the index of the segment that contains `offset`; -1 when it is before all."""
        if offset >= self.active.base_offset:
            return len(self._segments) - 1
        return bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1

    def at(self, offset: int) -> Segment:
        """Return the segment that contains `offset`; the first if it is before all."""
        return self._segments[max(self.floor_index(offset), 0)]

    def from_index(self, index: int) -> list[Segment]:
        """Return the segments from an index on."""
        return self._segments[max(index, 0) :]

    def add(self, segment: Segment) -> None:
        """Insert a segment by its base offset."""
        insort(self._segments, segment, key=lambda other: other.base_offset)
        self.active = self._segments[-1]

    def take_first(self, count: int) -> list[Segment]:
        """Remove and return the oldest segments; one must remain."""
        assert count < len(self._segments)
        taken = self._segments[:count]
        del self._segments[:count]
        return taken

    def take_after(self, offset: int) -> list[Segment]:
        """Remove and return the segments with base offsets above `offset`, newest first; the first must remain."""
        index = self.floor_index(offset) + 1
        assert index > 0
        taken = self._segments[index:]
        del self._segments[index:]
        self.active = self._segments[-1]
        taken.reverse()
        return taken

    def replace_all(self, segment: Segment) -> list[Segment]:
        """Replace all segments by one; return the former ones, newest first."""
        taken = self._segments[::-1]
        self._segments = [segment]
        self.active = segment
        return taken

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace closed segments by the cleaned ones made from them."""
        gone = {id(segment) for segment in old}
        kept = [segment for segment in self._segments if id(segment) not in gone]
        self._segments = sorted([*kept, *new], key=lambda segment: segment.base_offset)
        self.active = self._segments[-1]


# The segments of a log and their files: rolls, truncates, deletes and replaces segments. Kafka 3's LocalLog.
#
# The process may be killed between any two operations on the disk, so they are ordered such that the next start can
# complete or undo them (kctl.storage.recovery.recovery, kctl.storage.recovery.recovery):
#
#     roll          close the old segment before creating the new one
#     truncate_to   delete the segments after the offset newest first, so that no hole is left; sync the truncation
#     clear         delete all segments newest first, then create a new one
#     retire        rename the files to `.deleted` now and remove them later: readers may still use them
#     replace       rename drafts to `.swap`, retire the old segments, rename the drafts to their final names
#
# Offsets are arguments: which records are visible, and their producers and epochs, is decided by the log. The list
# and the files agree after each call; after an OSError they may not, and the log directory goes offline.
#
# Owner: event loop.


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

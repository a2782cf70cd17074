"""The segments of one log, in order."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator

from kctl.storage.segment import Segment


class SegmentList:
    """Segments by base offset; the last is the active one.  Owner: event loop."""

    __slots__ = ("_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        """At least one segment, in order."""
        self._segments = segments
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self._segments)

    def all(self) -> list[Segment]:
        """A copy of the list, for walks during which segments come and go."""
        return list(self._segments)

    def floor_index(self, offset: int) -> int:
        """The index of the segment that would hold `offset`; -1 when it lies before all."""
        if offset >= self.active.base_offset:
            return len(self._segments) - 1
        return bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1

    def at(self, offset: int) -> Segment:
        """The segment that would hold `offset`; the first if it lies before all."""
        return self._segments[max(self.floor_index(offset), 0)]

    def from_index(self, index: int) -> list[Segment]:
        return self._segments[max(index, 0) :]

    def add(self, segment: Segment) -> None:
        """One more segment, wherever its base offset puts it."""
        insort(self._segments, segment, key=lambda other: other.base_offset)
        self.active = self._segments[-1]

    def take_first(self, count: int) -> list[Segment]:
        """Remove and return the oldest segments; one has to stay."""
        assert count < len(self._segments)
        taken = self._segments[:count]
        del self._segments[:count]
        return taken

    def take_after(self, offset: int) -> list[Segment]:
        """Remove and return the segments with bases above `offset`, newest first; the first has to stay."""
        index = self.floor_index(offset) + 1
        assert index > 0
        taken = self._segments[index:]
        del self._segments[index:]
        self.active = self._segments[-1]
        taken.reverse()
        return taken

    def replace_all(self, segment: Segment) -> list[Segment]:
        """Start over with one segment; returns the former ones, newest first."""
        taken = self._segments[::-1]
        self._segments = [segment]
        self.active = segment
        return taken

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Swap cleaned segments in for the ones they were made of; the active segment is not among them."""
        gone = {id(segment) for segment in old}
        kept = [segment for segment in self._segments if id(segment) not in gone]
        self._segments = sorted([*kept, *new], key=lambda segment: segment.base_offset)
        self.active = self._segments[-1]

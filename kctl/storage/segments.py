"""The list of segments of one log."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator

from kctl.storage.segment import Segment


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

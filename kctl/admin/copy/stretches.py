"""Where the records of a partition are in its copy: stretches of consecutive offsets on both sides.  Pure.

A copy has the same records in the same order, but not the same offsets: control records, aborted records and gaps of
compaction have none in the copy, and each transaction of the copy ends with a marker.  A stretch is a fact about both
logs: `length` records with consecutive offsets from `source` on are at consecutive offsets from `target` on, all other
records before `source` are before `target`, and all after it are after it.  It stays true without the stretches before
and after it, so any of them can be left out.  What a lookup does not have is counted from the stretch before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, Self

from kctl.limits import Subject, bound

NEWEST_KEPT = 12
STRETCHES_MAX = bound(
    Subject.COMMANDS,
    "stretches of consecutive offsets that a copy keeps for each partition",
    64,
    "stretches",
    on_excess="older ones are left out; offsets between them are translated by reading both partitions",
)


class Stretch(NamedTuple):
    """Records of a partition, and the offset of the first of them in its copy; 0 records for a place between them."""

    source: int
    target: int
    length: int


class Pair(NamedTuple):
    """Two places: records at or after the one in the source are at or after the other in the target, in order."""

    source: int
    target: int


class OffsetMap:
    """The stretches of one partition and its copy, in their order."""

    def __init__(self, stretches: Iterable[Stretch] = ()) -> None:
        self._stretches = list(stretches)
        self._sent: deque[list[int]] = deque()
        """[source offset, count] of runs of consecutive offsets that were sent and not stored yet."""

    @property
    def stretches(self) -> Sequence[Stretch]:
        """The stretches that are kept, at most STRETCHES_MAX."""
        self._stretches = thinned(self._stretches)
        return tuple(self._stretches)

    def begin(self, source: int, target: int) -> None:
        """Note the places where the copy begins, unless it has begun."""
        if not self._stretches:
            self._stretches.append(Stretch(source, target, 0))

    def sent(self, source_offset: int) -> None:
        """Note that a record has been handed to the producer."""
        if self._sent and sum(self._sent[-1]) == source_offset:
            self._sent[-1][1] += 1
        else:
            self._sent.append([source_offset, 1])

    def delivered(self, base_offset: int, count: int) -> None:
        """Note that the next `count` records sent have been stored from `base_offset` on."""
        while count:
            run = self._sent[0]
            taken = min(count, run[1])
            self._extend(Stretch(run[0], base_offset, taken))
            run[0], run[1] = run[0] + taken, run[1] - taken
            if not run[1]:
                self._sent.popleft()
            base_offset, count = base_offset + taken, count - taken
        if len(self._stretches) > 2 * STRETCHES_MAX:
            self._stretches = thinned(self._stretches)

    def pair_before(self, source_offset: int) -> Pair | None:
        """Return the last known pair of places that is not after the offset; None before the first stretch.

        The offset is translated exactly if it is the first of the pair.
        """
        index = bisect_right(self._stretches, source_offset, key=lambda stretch: stretch.source) - 1
        if index < 0:
            return None
        stretch = self._stretches[index]
        passed = min(source_offset - stretch.source, stretch.length)
        return Pair(stretch.source + passed, stretch.target + passed)

    def target_after(self, source_offset: int) -> int | None:
        """Return a place in the target that records at the offset are before; None if they may be the last."""
        index = bisect_right(self._stretches, source_offset, key=lambda stretch: stretch.source)
        return self._stretches[index].target if index < len(self._stretches) else None

    def inverted(self) -> Self:
        """Return the map of the same partitions in the other direction."""
        return type(self)(Stretch(stretch.target, stretch.source, stretch.length) for stretch in self._stretches)

    def _extend(self, stretch: Stretch) -> None:
        if self._stretches:
            last = self._stretches[-1]
            if last.source + last.length == stretch.source and last.target + last.length == stretch.target:
                self._stretches[-1] = last._replace(length=last.length + stretch.length)
                return
        self._stretches.append(stretch)


def thinned(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Return at most STRETCHES_MAX of them: the first, the newest, and before these ever fewer.

    Groups are usually near the end.  Distances from the end double, so that at most half of what lies between an offset
    and the end has to be read to translate it.
    """
    if len(stretches) <= NEWEST_KEPT:
        return list(stretches)
    end = stretches[-1].source
    kept = list(reversed(stretches[-NEWEST_KEPT:]))
    for older in reversed(stretches[1:-NEWEST_KEPT]):
        if end - older.source >= 2 * (end - kept[-1].source):
            kept.append(older)
    del kept[STRETCHES_MAX - 1 :]
    return [stretches[0], *reversed(kept)]


def flattened(stretches: Sequence[Stretch]) -> list[int]:
    """Return the stretches as numbers for a document."""
    return [number for stretch in stretches for number in stretch]


def parse_stretches(numbers: object) -> list[Stretch]:
    """Return the stretches of a document; none if they are not in order, or not numbers."""
    if not isinstance(numbers, list) or len(numbers) % 3 or len(numbers) > 3 * STRETCHES_MAX:
        return []
    if not all(type(number) is int and number >= 0 for number in numbers):
        return []
    stretches = [Stretch(*numbers[first : first + 3]) for first in range(0, len(numbers), 3)]
    ordered = all(
        before.source + before.length <= after.source and before.target + before.length <= after.target
        for before, after in pairwise(stretches)
    )
    return stretches if ordered else []

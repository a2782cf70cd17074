"""A hierarchical timing wheel: adding and cancelling a deadline takes the same time however many there are.

Level 0 has buckets of one tick; each further level has buckets `size` times as wide.  A deadline is added to the lowest
level whose span includes it.  When the time of a wide bucket comes, its entries move down; from level 0 they expire.
Kafka's TimingWheel keeps its buckets in rings; here a bucket is found by its number, so that empty ones cost nothing.

Owner: event loop.  Pure: the caller passes the time.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

TICK_MS = 1
BUCKETS_PER_LEVEL = 64


class Entry(Generic[T]):
    """One item with a deadline; in at most one bucket of its wheel.

    It refers to its item only until it is cancelled or due.  Items are callbacks of objects that keep their entry: the
    garbage collector would find such cycles hours later, and every request that waits has one.
    """

    __slots__ = ("bucket", "deadline_ms", "item")

    def __init__(self, item: T, deadline_ms: int) -> None:
        self.item = item
        self.deadline_ms = deadline_ms
        self.bucket: dict[Entry[T], None] | None = None
        """The bucket, or the expired entries that `advance` has not returned yet."""

    def cancel(self) -> None:
        """Remove the entry from its wheel; do nothing if it has expired or was cancelled."""
        if self.bucket is not None:
            del self.bucket[self]
            self.bucket = None
            del self.item


class TimingWheel(Generic[T]):
    """Items by deadline.  `advance` returns due items in order of buckets, and within a bucket in order of adding."""

    def __init__(self, start_ms: int, *, tick_ms: int = TICK_MS, buckets_per_level: int = BUCKETS_PER_LEVEL) -> None:
        self._now_ms = start_ms
        self._tick_ms = tick_ms
        self._size = buckets_per_level
        self._buckets: dict[tuple[int, int], dict[Entry[T], None]] = {}
        self._due: list[tuple[int, int]] = []
        self._expired: OrderedDict[Entry[T], None] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()), len(self._expired))

    def add(self, item: T, deadline_ms: int) -> Entry[T]:
        """Add an item; a deadline in the past is due at the next `advance`."""
        entry = Entry(item, deadline_ms)
        self._place(entry)
        return entry

    def next_due_ms(self) -> int | None:
        """When `advance` next has work: an expiry, or a move between levels; None if empty."""
        if self._expired:
            return self._now_ms
        while self._due:
            start_ms, width_ms = self._due[0]
            if self._buckets.get((start_ms, width_ms)):
                return start_ms
            heapq.heappop(self._due)
            self._buckets.pop((start_ms, width_ms), None)
        return None

    def advance(self, now_ms: int, count_max: int | None = None) -> list[T]:
        """Advance the time (never back) and return the items whose deadline has passed.

        Of more than `count_max` the next calls return the others, which may be cancelled before.
        """
        self._now_ms = max(self._now_ms, now_ms)
        while self._due and self._due[0][0] <= self._now_ms:
            bucket = self._buckets.pop(heapq.heappop(self._due), {})
            for entry in bucket:
                if entry.deadline_ms <= self._now_ms:
                    entry.bucket = self._expired
                    self._expired[entry] = None
                else:
                    self._place(entry)
        count = len(self._expired)
        return [self._take_expired() for _ in range(count if count_max is None else min(count, count_max))]

    def _take_expired(self) -> T:
        entry, _ = self._expired.popitem(last=False)
        entry.bucket = None
        item = entry.item
        del entry.item
        return item

    def _place(self, entry: Entry[T]) -> None:
        width_ms = self._tick_ms
        # Rounded up, so that nothing expires early.
        deadline_ms = max(entry.deadline_ms, self._now_ms)
        while deadline_ms - self._now_ms >= width_ms * self._size:
            width_ms *= self._size
        start_ms = (
            deadline_ms // width_ms * width_ms if width_ms > self._tick_ms else -(-deadline_ms // width_ms) * width_ms
        )
        key = (start_ms, width_ms)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = {}
            heapq.heappush(self._due, key)
        bucket[entry] = None
        entry.bucket = bucket

"""Translates offsets of a source partition to offsets of its copy.  Pure.

A copy leaves out records, so offsets differ.  An offset is translated to that of the first copied record at or after
it: a group that continues there reads every copied record that it has not read in the source, and no other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class OffsetTranslation:
    """Offsets of one source partition, and of the target partition that gets its copied records in order."""

    def __init__(self, watched: Iterable[int], begin: int) -> None:
        """`watched`: the source offsets to translate; those before `begin` have no translation."""
        self.begin = begin
        self.translated: dict[int, int] = {}
        """Target offsets by source offset."""
        self._waiting = deque(sorted({offset for offset in watched if offset >= begin}))
        self._sent: deque[tuple[int, int]] = deque()
        """(number of the record among those sent, source offset watched)."""
        self._records_sent = 0
        self._records_delivered = 0

    def sent(self, source_offset: int) -> None:
        """A record has been handed to the producer; offsets up to its own are translated to it."""
        while self._waiting and self._waiting[0] <= source_offset:
            self._sent.append((self._records_sent, self._waiting.popleft()))
        self._records_sent += 1

    def delivered(self, base_offset: int, count: int) -> None:
        """The next `count` records sent have been stored from `base_offset` on."""
        end = self._records_delivered + count
        while self._sent and self._sent[0][0] < end:
            number, watched = self._sent.popleft()
            self.translated[watched] = base_offset + number - self._records_delivered
        self._records_delivered = end

    def is_behind(self, source_position: int) -> bool:
        """Whether an offset up to this position waits for a record at or after it."""
        return bool(self._waiting) and self._waiting[0] <= source_position

    def reached(self, source_position: int, target_end: int) -> None:
        """The source has been copied up to this position: later records will be at `target_end` or after it."""
        while self.is_behind(source_position):
            self.translated[self._waiting.popleft()] = target_end

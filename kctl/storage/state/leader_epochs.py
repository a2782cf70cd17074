"""The leader epoch cache of a log: the first offset of each leader epoch.  Pure.  KIP-101, KIP-279.

Epochs and start offsets ascend.  The log writes the list to `leader-epoch-checkpoint` after each call that returns
True.  Followers and consumers request the end offset of an epoch to find where their log diverges from the leader's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """The first offset of an epoch."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of one log.  Owner: event loop (recovery runs before the log is shared)."""

    __slots__ = ("_entries", "latest_epoch")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        """Take over the entries of a checkpoint; earlier entries that conflict with later ones are dropped."""
        self._entries: list[EpochEntry] = []
        self.latest_epoch = UNDEFINED_EPOCH
        """The latest epoch, or UNDEFINED_EPOCH."""
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """A copy of the entries, in order."""
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Start `epoch` at `start_offset`; return True if that changed the cache.

        Drops the existing entries that are not below it in both epoch and offset.
        """
        entries = self._entries
        if entries:
            last = entries[-1]
            if last.epoch == epoch and start_offset >= last.start_offset:
                return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self.latest_epoch = epoch
        return True

    def end_offset_for(self, requested: int, *, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest known epoch <= `requested`; followers truncate to that offset.

        The latest epoch ends at the log end.  An epoch above all known ones, or UNDEFINED_EPOCH, gives (-1, -1).  An
        epoch below all known ones gives (requested, start of the oldest), because its records were deleted.
        LeaderEpochFileCache.endOffsetFor.
        """
        if requested == UNDEFINED_EPOCH or requested > self.latest_epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if requested == self.latest_epoch:
            return requested, log_end_offset
        index = bisect_right(self._entries, requested, key=lambda entry: entry.epoch)
        end = self._entries[index].start_offset
        return (self._entries[index - 1].epoch, end) if index else (requested, end)

    def epoch_for(self, offset: int) -> int:
        """Return the epoch of `offset`, or UNDEFINED_EPOCH for an offset before all known epochs."""
        index = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[index - 1].epoch if index else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop the epochs that start at or after `end_offset`; return True if there were any."""
        count = len(self._entries)
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
        return len(self._entries) != count

    def truncate_from_start(self, start_offset: int) -> bool:
        """Keep of the epochs at or before `start_offset` only the last, and move its start there; return True on a
        change.
        """
        index = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if index == 0 or (index == 1 and self._entries[0].start_offset == start_offset):
            return False
        kept = EpochEntry(self._entries[index - 1].epoch, start_offset)
        self._entries[:index] = [kept]
        return True

    def clear(self) -> bool:
        """Drop all epochs; return True if there were any."""
        had_entries = bool(self._entries)
        self._entries.clear()
        self.latest_epoch = UNDEFINED_EPOCH
        return had_entries

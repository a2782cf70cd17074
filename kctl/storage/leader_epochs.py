"""Which leader epoch wrote from which offset on: the leader epoch cache of a log.  Pure.  KIP-101, KIP-279.

Entries ascend in both columns.  The log writes the list to `leader-epoch-checkpoint` after each call that returns True.
Followers and consumers ask for the end offset of an epoch to find out where their history parts from the leader's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """`epoch` started at `start_offset`."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of one log.  Owner: event loop (recovery runs before the loop knows the log)."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        """Entries as they stand in the checkpoint; ones that contradict earlier entries give way to the later."""
        self._entries: list[EpochEntry] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, or UNDEFINED_EPOCH."""
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """`epoch` writes from `start_offset` on; says whether that was news.

        Entries that this contradicts (epoch not below, or start not below) are dropped.
        """
        entries = self._entries
        if entries:
            last = entries[-1]
            if last.epoch == epoch and start_offset >= last.start_offset:
                return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        return True

    def end_offset_for(self, requested: int, *, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch <= `requested` and the offset where it ends; followers truncate there.

        The current epoch ends at the log's end.  Newer than all known, or UNDEFINED_EPOCH: (-1, -1).  Older than all
        known: (requested, start of the oldest), because what lay before it is deleted.  LeaderEpochFileCache.
        """
        if requested == UNDEFINED_EPOCH or requested > self.latest_epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if requested == self.latest_epoch:
            return requested, log_end_offset
        index = bisect_right(self._entries, requested, key=lambda entry: entry.epoch)
        end = self._entries[index].start_offset
        return (self._entries[index - 1].epoch, end) if index else (requested, end)

    def epoch_for(self, offset: int) -> int:
        """The epoch that wrote `offset`, or UNDEFINED_EPOCH when it lies before all known epochs."""
        index = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[index - 1].epoch if index else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """The log now ends at `end_offset`: epochs that start there or later never happened.  Says whether any went."""
        count = len(self._entries)
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        return len(self._entries) != count

    def truncate_from_start(self, start_offset: int) -> bool:
        """The log now starts at `start_offset`: of the epochs at or before it only the last stays, starting there."""
        index = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if index == 0 or (index == 1 and self._entries[0].start_offset == start_offset):
            return False
        kept = EpochEntry(self._entries[index - 1].epoch, start_offset)
        self._entries[:index] = [kept]
        return True

    def clear(self) -> bool:
        """Forget all epochs; says whether there were any."""
        had_entries = bool(self._entries)
        self._entries.clear()
        return had_entries

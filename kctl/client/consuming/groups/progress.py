"""The offsets of a group member by partition: next to read, processed, committed.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kctl.model import TopicPartition


class GroupProgress:
    """Offsets of the assigned partitions whose start offset has been looked up."""

    def __init__(self) -> None:
        self.done: dict[TopicPartition, int] = {}
        """Offsets after the last processed record: what a commit sends."""
        self._committed: dict[TopicPartition, int] = {}
        self._known: set[TopicPartition] = set()

    def missing(self, owned: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions whose start offset is unknown."""
        return [tp for tp in owned if tp not in self._known]

    def begin(self, owned: Collection[TopicPartition], committed: Mapping[TopicPartition, int]) -> None:
        """Set start offsets and drop progress from an earlier assignment."""
        self.forget(owned)
        self._known.update(owned)
        self.done.update(committed)
        self._committed.update(committed)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Remove partitions that were lost, even if they have been assigned again."""
        self._known.difference_update(partitions)
        for offsets in (self.done, self._committed):
            for tp in offsets.keys() - self._known:
                del offsets[tp]

    def keep_only(self, owned: Collection[TopicPartition]) -> None:
        """Remove all partitions but these."""
        self.forget(self._known.difference(owned))

    def confirm(self, positions: Mapping[TopicPartition, int]) -> None:
        """Mark everything before these positions as processed."""
        self.done.update((tp, offset) for tp, offset in positions.items() if tp in self._known)

    def uncommitted(self, owned: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the processed offsets not committed yet, without partitions lost in the meantime."""
        return {tp: self.done[tp] for tp in owned if tp in self.done and self._committed.get(tp) != self.done[tp]}

    def note_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Mark these offsets as committed; partitions lost in the meantime are ignored."""
        self._committed.update((tp, offset) for tp, offset in offsets.items() if tp in self._known)

"""How far a member of a group is in its partitions: where to read, what is done with, what is committed.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kctl.model import TopicPartition


class GroupProgress:
    """Offsets by partition, of those whose beginning was looked up since the group gave them to this member."""

    def __init__(self) -> None:
        self.done: dict[TopicPartition, int] = {}
        """Behind what the caller is done with: what a commit commits."""
        self._committed: dict[TopicPartition, int] = {}
        self._known: set[TopicPartition] = set()

    def missing(self, owned: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those of which it is not known yet where to begin."""
        return [tp for tp in owned if tp not in self._known]

    def begin(self, owned: Collection[TopicPartition], committed: Mapping[TopicPartition, int]) -> None:
        """From now on these are known; whatever was done in them before belongs to another time."""
        self.forget(owned)
        self._known.update(owned)
        self.done.update(committed)
        self._committed.update(committed)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """They are somebody else's, or were for a while."""
        self._known.difference_update(partitions)
        for offsets in (self.done, self._committed):
            for tp in offsets.keys() - self._known:
                del offsets[tp]

    def keep_only(self, owned: Collection[TopicPartition]) -> None:
        self.forget(self._known.difference(owned))

    def confirm(self, positions: Mapping[TopicPartition, int]) -> None:
        """Done with everything before these positions."""
        self.done.update((tp, offset) for tp, offset in positions.items() if tp in self._known)

    def uncommitted(self, owned: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """What a commit may say: nothing of partitions that were lost, even if they have come back."""
        return {tp: self.done[tp] for tp in owned if tp in self.done and self._committed.get(tp) != self.done[tp]}

    def note_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._committed.update((tp, offset) for tp, offset in offsets.items() if tp in self._known)

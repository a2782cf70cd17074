"""The offsets of a group member: next to read, processed, committed, lost.  Pure but for look-ups of offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from kctl.client.cluster import ClusterClient
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, list_offsets_at
from kctl.client.consuming.positions import Divergence, Position
from kctl.errors import ApiError
from kctl.model import TopicPartition

# Offsets of a group member by partition: next to read, processed, committed. Pure.


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


# Positions whose records are gone, because they were deleted or the log was truncated, and where to continue.


Begin = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, Position]]]
"""Start positions of partitions by a reset policy, or an error."""


async def lost_positions(client: ClusterClient, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, bool]:
    """Return the partitions whose position is outside the log: True if it is after the end, as after a truncation.

    Raises ApiError.
    """
    lost: dict[TopicPartition, bool] = {}
    for tp, bounds in (await list_offsets_at(client, positions, (EARLIEST, LATEST))).items():
        if isinstance(bounds, ApiError):
            raise bounds
        start, end = bounds
        if not start.offset <= positions[tp] <= end.offset:
            lost[tp] = positions[tp] > end.offset
    return lost


async def reset_positions(divergences: Collection[Divergence], begin: Begin) -> dict[TopicPartition, Position]:
    """Return where to continue: where the histories part, or by `begin` if that is unknown.

    Raises what `begin` raises.
    """
    parted = {
        divergence.tp: Position(divergence.end_offset, divergence.leader_epoch)
        for divergence in divergences
        if divergence.end_offset is not None
    }
    unknown = [divergence.tp for divergence in divergences if divergence.tp not in parted]
    return {**parted, **(await begin(unknown) if unknown else {})}

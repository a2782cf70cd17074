"""The state of a share-partition as the share coordinator stores it, and the port to it.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from kctl.model import uuid_text

_END = 1 << 63
NO_OFFSET = -1
"""The start offset of a share-partition that no leader has determined yet; in a change, of one that stays."""


class ShareKey(NamedTuple):
    """A share-partition: a partition as one share group sees it."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def text(self) -> str:
        """The key for FindCoordinator, whose hash selects the partition of `__share_group_state`."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"


class DeliveryState(IntEnum):
    """The state of a record; the values are those in the records of the share coordinator."""

    AVAILABLE = 0
    ACQUIRED = 1
    """A member has it, until it acknowledges the record or its lock expires; never stored."""
    ACKNOWLEDGED = 2
    """A member has processed it."""
    ARCHIVED = 4
    """It is not handed out any more: it was rejected, handed out too often, or there is no record at the offset."""

    @property
    def is_final(self) -> bool:
        """Whether the record is never handed out again."""
        return self in _FINAL


_FINAL = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})


class StateBatch(NamedTuple):
    """Offsets from first to last, inclusive, in the same state."""

    first: int
    last: int
    state: DeliveryState
    delivery_count: int


@dataclass(frozen=True, slots=True)
class StoredState:
    """What the share coordinator has of a share-partition."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class StateChange:
    """What a leader writes: a new start offset, and the batches that have changed."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = -1
    """The offsets from the start offset on that are acknowledged or archived; -1 if unknown."""


class ShareStates(Protocol):
    """The share coordinators of the cluster."""

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        """Return the state; from then on leaders of earlier epochs are fenced.  Raises ApiError."""
        ...

    async def write(self, key: ShareKey, change: StateChange) -> None:
        """Return when the change is stored on all in-sync replicas.

        Raises ApiError; if it is not about a fenced epoch or a missing state, the change may be stored or not.
        """
        ...


def merge_batches(
    batches: Sequence[StateBatch], changed: Sequence[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Return the batches after a change: ascending, disjoint, from the start offset on, equal neighbours together.

    Where both have an offset, the larger delivery count decides, and for the same count the state that is final: a
    write that arrives late does not undo one that came after it.  Kafka: PersisterStateBatchCombiner.
    """
    old, new = _Sweep(batches), _Sweep(changed)
    parts: list[StateBatch] = []
    position = start_offset
    while (following := min(old.next_border(position), new.next_border(position))) < _END:
        kept, other = old.covering(position), new.covering(position)
        if kept is None or (other is not None and (other[3], other[2]) >= (kept[3], kept[2])):
            kept = other
        if kept is not None:
            parts.append(StateBatch(position, following - 1, kept.state, kept.delivery_count))
        position = following
    return merge_neighbours(parts)


class _Sweep:
    """Batches that are passed over with ascending offsets."""

    def __init__(self, batches: Iterable[StateBatch]) -> None:
        self._batches = sorted(batches)
        self._index = 0

    def covering(self, offset: int) -> StateBatch | None:
        """Return the batch that has the offset."""
        index = self._index
        if index < len(self._batches) and self._batches[index].first <= offset:
            return self._batches[index]
        return None

    def next_border(self, offset: int) -> int:
        """Return the next offset after this one at which a batch begins or has ended; _END without one."""
        batches, index = self._batches, self._index
        while index < len(batches) and batches[index].last < offset:
            index += 1
        self._index = index
        if index == len(batches):
            return _END
        first, last, _, _ = batches[index]
        return first if first > offset else last + 1


def merge_neighbours(batches: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    """Return ascending batches with equal neighbours together."""
    merged: list[StateBatch] = []
    for batch in batches:
        if merged and (merged[-1].last + 1, *merged[-1][2:]) == (batch.first, *batch[2:]):
            merged[-1] = merged[-1]._replace(last=batch.last)
        else:
            merged.append(batch)
    return tuple(merged)

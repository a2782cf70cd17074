"""What a reader knows about the history before its positions: leader epochs, topics, and what was checked.

Leader epochs come from the batches that are read.  A position is checked (see `positions`) before the first fetch from
a leader that the reader has not used for it, and again when the leader, its epoch or the topic is another one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from kctl.client.consuming.committed_offsets import CommittedOffset, commit_of
from kctl.client.consuming.positions import NO_EPOCH, Position
from kctl.client.metadata import ClusterMetadata
from kctl.model import ZERO_UUID, TopicPartition

EPOCHS_PER_PARTITION = 64
"""Older ones are forgotten: commits are of the latest records."""


class _Leadership(NamedTuple):
    """Under which a position was checked."""

    topic_id: UUID
    leader: int
    leader_epoch: int


@dataclass(slots=True)
class _Read:
    """What was read of one partition."""

    start: Position
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """(offset of the first record read, leader epoch), ascending."""
    end: int = -1
    """After the last batch that was read."""
    topic_id: UUID = ZERO_UUID
    checked: _Leadership | None = None


class ReadHistory:
    """The history of all partitions of a reader."""

    def __init__(self) -> None:
        self._read: dict[TopicPartition, _Read] = {}

    def begin(self, tp: TopicPartition, position: Position) -> None:
        """Begin at this position; nothing is known about what was read before."""
        self._read[tp] = _Read(position)

    def note_batches(self, tp: TopicPartition, start: int, epochs: Iterable[tuple[int, int]], end: int) -> None:
        """Batches were read from `start` to `end`: the first offset of each leader epoch among them."""
        read = self._of(tp)
        if read.end != start:  # Reading did not continue where it ended.
            is_inside = bool(read.epochs) and read.epochs[0][0] < start <= read.end
            read.epochs = [entry for entry in read.epochs if is_inside and entry[0] < start]
        for offset, epoch in epochs:
            if not read.epochs or read.epochs[-1][1] != epoch:
                read.epochs.append((offset, epoch))
        del read.epochs[:-EPOCHS_PER_PARTITION]
        read.end = end

    def position(self, tp: TopicPartition, offset: int) -> Position:
        """Return the offset with the leader epoch of the record before it, if that was read."""
        read = self._read.get(tp)
        if read is None:
            return Position(offset)
        index = bisect_left(read.epochs, offset, key=itemgetter(0)) - 1
        if index >= 0 and offset <= read.end:
            return Position(offset, read.epochs[index][1], is_of_record=True)
        return read.start if offset == read.start.offset else Position(offset)

    def commit_of(self, tp: TopicPartition, value: int | Position | CommittedOffset) -> CommittedOffset:
        """Return the commit of an offset; without a leader epoch it gets that of the record before it, if that was
        read.
        """
        commit = commit_of(value)
        if isinstance(value, Position) or commit.leader_epoch != NO_EPOCH:
            return commit
        return commit_of(self.position(tp, commit.offset))._replace(metadata=commit.metadata)

    def to_check(
        self, metadata: ClusterMetadata, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Position]:
        """Return the positions that were not checked with the current leader, of partitions that have one."""
        return {
            tp: self.position(tp, offset)
            for tp, offset in offsets.items()
            if (current := _leadership(metadata, tp)) is not None
            and (current != self._of(tp).checked or current.leader_epoch == NO_EPOCH)
        }

    def note_checked(self, metadata: ClusterMetadata, offsets: Iterable[TopicPartition]) -> None:
        """Note that these positions are in the logs of the current leaders, or that nothing is known about them."""
        for tp in offsets:
            read, current = self._of(tp), _leadership(metadata, tp)
            if current is not None:
                read.checked = current
                read.topic_id = read.topic_id if current.topic_id == ZERO_UUID else current.topic_id

    def note_reached(self, metadata: ClusterMetadata, tp: TopicPartition, offset: int) -> None:
        """Note that the leader has this offset: a position without an epoch gets that of the leader."""
        current = _leadership(metadata, tp)
        if current is not None and self.position(tp, offset).leader_epoch == NO_EPOCH:
            self._of(tp).start = Position(offset, current.leader_epoch, is_of_leader=True)

    def forget_checks(self) -> None:
        """All positions are checked again before the next fetch."""
        for read in self._read.values():
            read.checked = None

    def _of(self, tp: TopicPartition) -> _Read:
        return self._read.setdefault(tp, _Read(Position(-1)))


def _leadership(metadata: ClusterMetadata, tp: TopicPartition) -> _Leadership | None:
    """None without a leader."""
    topic = metadata.topics.get(tp.topic)
    partition = topic.partition(tp.partition) if topic is not None else None
    if topic is None or partition is None or partition.leader not in metadata.brokers:
        return None
    return _Leadership(topic.topic_id, partition.leader, partition.leader_epoch)

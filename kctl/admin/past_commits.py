"""Reconstructs the past commits of one group from the records of __consumer_offsets.  Pure.

Compaction keeps the last commit of each partition in the part of the log that it has cleaned, and everything after
that part.  Where a commit is present, no later one has therefore been removed between it and the next present one: the
last present commit at or before a time is the committed offset of that time.  Where none is present, the offset of that
time is unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kctl.admin.offsets_records import CommitRecord, GroupRecord
from kctl.client.committed_offsets import CommittedOffset
from kctl.errors import MalformedRequest
from kctl.limits import GROUP_HISTORY_COMMITS_MAX
from kctl.model import TopicPartition
from kctl.protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from kctl.records.internal_topics import GroupMetadataValue


class Committer(NamedTuple):
    """The member to which the partition was assigned at the time of the commit."""

    member_id: str
    client_id: str
    host: str


class PastCommit(NamedTuple):
    """One commit, or the deletion of a committed offset."""

    tp: TopicPartition
    time_ms: int
    committed: CommittedOffset | None
    """None for a deletion."""
    generation: int | None
    """The generation of the group after its last rebalance before the commit; None if the log does not show it."""
    committer: Committer | None
    """None if the partition was not assigned, as in a commit by an admin, or the log does not show it."""


@dataclass(slots=True)
class PastCommits:
    """The latest commits, at most `limit`, in the order of the log."""

    topics: frozenset[str] = frozenset()
    """Only commits of these topics; empty for all."""
    matches: Callable[[str], bool] | None = None
    """Whether commits of the topic of this name are selected; all are without it."""
    since_ms: int = 0
    limit: int = GROUP_HISTORY_COMMITS_MAX
    omitted: int = 0
    """Number of older commits that have been left out."""
    commits: deque[PastCommit] = field(default_factory=deque)
    has_any: bool = False
    """Whether there is a record of the group, selected or not."""
    _generation: int | None = None
    _owners: dict[TopicPartition, Committer] = field(default_factory=dict)

    def _is_selected(self, topic: str) -> bool:
        return (not self.topics or topic in self.topics) and (self.matches is None or self.matches(topic))

    def add(self, records: Iterable[CommitRecord | GroupRecord]) -> None:
        """Adds records in the order of the log."""
        for record in records:
            self.has_any = True
            if isinstance(record, GroupRecord):
                self._generation = None if record.value is None else record.value.generation
                self._owners = {} if record.value is None else _owners(record.value)
                continue
            if record.time_ms < self.since_ms or not self._is_selected(record.tp.topic):
                continue
            if len(self.commits) >= self.limit:
                self.commits.popleft()
                self.omitted += 1
            owner = None if record.value is None else self._owners.get(record.tp)
            self.commits.append(
                PastCommit(record.tp, record.time_ms, _committed(record), self._generation, owner),
            )


@dataclass(slots=True)
class OffsetsAt:
    """The committed offsets of a group at one time."""

    time_ms: int
    offsets: dict[TopicPartition, CommittedOffset | None] = field(default_factory=dict)
    """None for an offset that had been deleted."""
    later: set[TopicPartition] = field(default_factory=set)
    """Partitions with a commit after that time."""
    is_excessive: bool = False
    """True if there are more than GROUP_HISTORY_COMMITS_MAX partitions; the rest is left out."""

    def add(self, records: Iterable[CommitRecord | GroupRecord]) -> None:
        """Adds records in the order of the log."""
        for record in records:
            if isinstance(record, GroupRecord):
                continue
            is_known = record.tp in self.offsets or record.tp in self.later
            if not is_known and len(self.offsets) + len(self.later) >= GROUP_HISTORY_COMMITS_MAX:
                self.is_excessive = True
            elif record.time_ms > self.time_ms:
                self.later.add(record.tp)
            elif record.tp not in self.later:
                self.offsets[record.tp] = _committed(record)

    @property
    def committed(self) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that were committed at that time."""
        return {tp: one for tp, one in self.offsets.items() if one is not None}

    @property
    def unknown(self) -> list[TopicPartition]:
        """Partitions with later commits only: there was none at that time, or it has been compacted away."""
        return sorted(self.later - self.offsets.keys())


def _committed(record: CommitRecord) -> CommittedOffset | None:
    value = record.value
    return None if value is None else CommittedOffset(value.offset, value.leader_epoch, value.metadata)


def _owners(group: GroupMetadataValue) -> dict[TopicPartition, Committer]:
    """The partitions of all members; empty if the group has no consumers."""
    owners = {}
    for member in group.members if group.protocol_type == PROTOCOL_TYPE else ():
        try:
            assignment = decode_assignment(member.assignment) if member.assignment else None
        except MalformedRequest:
            continue
        committer = Committer(member.member_id, member.client_id, member.client_host.removeprefix("/"))
        for topic in assignment.assigned_partitions if assignment else ():
            owners.update({TopicPartition(topic.topic, number): committer for number in topic.partitions})
    return owners

"""A group of the consumer protocol: the last value of each of its records, and what follows from these.

    Empty ---join---> Assigning ---target assignment computed---> Reconciling ---all members have it---> Stable
      ^                   ^                                            |                                    |
      |                   +-----join, leave, expiry, new topics--------+------------------------------------+
      +---- the last member leaves or expires

A member gets a partition only when nobody else owns it: `owners` has the partitions that members use or still have to
revoke.

Invariants (checked by the simulation): a partition has one owner; the epochs never decrease; the records in the log,
replayed in order, are the group.

Owner: event loop.  Pure.  Kafka: ConsumerGroup, ModernGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import ClassVar, cast
from uuid import UUID

from kctl.model import TopicPartition
from kctl.server.coordination.consumer_groups.state import (
    NEW_MEMBER,
    NOTHING,
    ConsumerGroupState,
    MemberAssignment,
    MemberMetadata,
    PartitionEpochs,
    Partitions,
    RecordType,
    ResolvedRegex,
)
from kctl.server.coordination.consumer_groups.topics import TopicHashes
from kctl.server.coordination.newer_groups import (
    FIRST_EPOCH,
    STATIC_LEAVE_EPOCH,
    Change,
    ClusterTopics,
    GroupEpoch,
    Key,
    MemberState,
    TargetEpoch,
    set_value,
)

_BYTES_PER_MEMBER = 2_000


class ConsumerGroup:
    """The values of a group.  Attributes are read-only for other modules; `apply` is the only change."""

    kind: ClassVar[str] = "consumer"

    def __init__(self) -> None:
        self.epoch = GroupEpoch(FIRST_EPOCH)
        self.target = TargetEpoch(0)
        self.members: dict[str, MemberMetadata] = {}
        self.targets: dict[str, Partitions] = {}
        self.assignments: dict[str, MemberAssignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.has_legacy_topics = False
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.topic_counts: Counter[str] = Counter()
        """The number of members that subscribe to each topic by name."""
        self.regex_counts: Counter[str] = Counter()
        """The number of members with each regular expression."""
        self.classic_count = 0
        """The number of members of the classic protocol."""
        self.classic_protocols: Counter[str] = Counter()
        """The number of these members that support each protocol."""
        self.memory_bytes = 0
        """About the memory for the members and their subscriptions."""
        self._assignors: Counter[str] = Counter()
        self._owners: dict[UUID, dict[int, str]] = {}
        """The member that owns each partition, by topic id."""
        self._is_stored = False
        self.checked_version = -1
        """The version of the cluster's topics with which the epoch was last compared; not stored."""
        self.resolved_version = -1
        """The version of the cluster's topics with which regular expressions were last matched; not stored."""
        self.topic_hashes = TopicHashes()
        self.is_resolving = False
        """The regular expressions are being matched; not stored."""

    @property
    def is_empty(self) -> bool:
        """True if there are no members."""
        return not self.members

    @property
    def is_stored(self) -> bool:
        """True if the log has records of the group."""
        return self._is_stored

    @property
    def state(self) -> ConsumerGroupState:
        """The state, which follows from the members and the epochs."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch.epoch > self.target.epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self.has_reached_target(member_id) for member_id in self.members):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def assignment(self, member_id: str) -> MemberAssignment:
        """Return what the member owns; nothing if it is new."""
        return self.assignments.get(member_id, NEW_MEMBER)

    def has_reached_target(self, member_id: str) -> bool:
        """Return whether the member needs no further step to the target assignment."""
        assignment = self.assignment(member_id)
        return assignment.state is MemberState.STABLE and assignment.epoch == self.target.epoch

    def has_left_for_some_time(self, member_id: str) -> bool:
        """Return whether the static member has left and is expected to return."""
        return self.assignment(member_id).epoch == STATIC_LEAVE_EPOCH

    def is_classic(self, member_id: str) -> bool:
        """Return whether the member uses the classic protocol."""
        member = self.members.get(member_id)
        return member is not None and member.classic is not None

    def supports_classic(self, protocols: Iterable[str]) -> bool:
        """Return whether all members of the classic protocol support one of these."""
        return any(self.classic_protocols[name] == self.classic_count for name in protocols)

    def is_classic_without(self, member_ids: Collection[str]) -> bool:
        """Return whether all other members use the classic protocol."""
        return self.classic_count - sum(map(self.is_classic, member_ids)) == len(self.members) - len(member_ids)

    def has_to_wait(self, member_id: str) -> bool:
        """Return whether others still own a partition of the member's target assignment."""
        assigned = self.assignment(member_id).assigned
        return any(
            number not in assigned.get(topic_id, {}) and self.owner(topic_id, number) is not None
            for topic_id, numbers in self.target_of(member_id).items()
            for number in numbers
        )

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        """Return the member that uses the partition or still has to revoke it; None if nobody does."""
        return self._owners.get(topic_id, {}).get(partition)

    def preferred_assignor(self, default: str) -> str:
        """Return the assignor that most members request."""
        return max(self._assignors, key=lambda name: self._assignors[name], default=default)

    def subscribed_names(self, member: MemberMetadata) -> frozenset[str]:
        """Return the topics of a member, those that match its regular expression included."""
        if member.topic_regex and (resolved := self.regexes.get(member.topic_regex)) is not None:
            return member.topic_names | resolved.topics if member.topic_names else resolved.topics
        return member.topic_names

    def all_subscribed_names(self) -> set[str]:
        """Return the topics of all members."""
        names = set(self.topic_counts)
        for regex in self.regex_counts:
            if (resolved := self.regexes.get(regex)) is not None:
                names |= resolved.topics
        return names

    @property
    def is_homogeneous(self) -> bool:
        """True if all members have the same subscription."""
        count = len(self.members)
        if self.regex_counts:
            return len(self.regex_counts) == 1 and not self.topic_counts and self.regex_counts.total() == count
        return all(subscribers == count for subscribers in self.topic_counts.values())

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic."""
        return topic in self.topic_counts or any(
            topic in self.regexes[regex].topics for regex in self.regex_counts if regex in self.regexes
        )

    def tombstones(self) -> list[Change]:
        """Return what deletes the records of the group, which has no members, in Kafka's order."""
        if not self._is_stored:
            return []
        keys = [Key(RecordType.MEMBER_ASSIGNMENT, name) for name in self.assignments]
        keys += [Key(RecordType.MEMBER_TARGET, name) for name in self.targets]
        keys.append(Key(RecordType.TARGET))
        keys += [Key(RecordType.MEMBER, name) for name in self.members]
        keys += [Key(RecordType.REGEX, regex) for regex in self.regexes]
        # Kafka deletes the topics also if it has not stored them.
        keys += [Key(RecordType.TOPICS), Key(RecordType.GROUP)]
        return [Change(key, None) for key in keys]

    def values(self) -> Iterator[Change]:
        """Yield everything that the group consists of, for comparison."""
        yield Change(Key(RecordType.GROUP), self.epoch)
        yield Change(Key(RecordType.TARGET), self.target)
        named: tuple[tuple[RecordType, Mapping[str, object]], ...] = (
            (RecordType.MEMBER, self.members),
            (RecordType.MEMBER_TARGET, self.targets),
            (RecordType.MEMBER_ASSIGNMENT, self.assignments),
            (RecordType.REGEX, self.regexes),
        )
        for record_type, values in named:
            for name in sorted(values):
                yield Change(Key(record_type, name), values[name])

    def apply(self, change: Change) -> Callable[[], None]:
        """Set or delete a value; return what takes the change back."""
        was_stored = self._is_stored
        revert = self._apply(change)

        def undo() -> None:
            revert()
            self._is_stored = was_stored

        self._is_stored = True
        return undo

    def _apply(self, change: Change) -> Callable[[], None]:
        (record_type, name), value = change
        match record_type:
            case RecordType.GROUP:
                epoch_before = self.epoch
                self.epoch = cast("GroupEpoch", value) if value is not None else GroupEpoch(FIRST_EPOCH)
                return lambda: setattr(self, "epoch", epoch_before)
            case RecordType.TARGET:
                target_before = self.target
                self.target = cast("TargetEpoch", value) if value is not None else TargetEpoch(0)
                return lambda: setattr(self, "target", target_before)
            case RecordType.TOPICS:
                had_topics = self.has_legacy_topics
                self.has_legacy_topics = value is not None
                return lambda: setattr(self, "has_legacy_topics", had_topics)
            case RecordType.MEMBER:
                member_before = self.members.get(name)
                self._set_member(name, cast("MemberMetadata | None", value))
                return lambda: self._set_member(name, member_before)
            case RecordType.MEMBER_TARGET:
                return set_value(self.targets, name, cast("Partitions | None", value))
            case RecordType.MEMBER_ASSIGNMENT:
                assignment_before = self.assignments.get(name)
                self._set_assignment(name, cast("MemberAssignment | None", value))
                return lambda: self._set_assignment(name, assignment_before)
            case _:
                return set_value(self.regexes, name, cast("ResolvedRegex | None", value))

    def _set_member(self, member_id: str, member: MemberMetadata | None) -> None:
        before = self.members.get(member_id)
        if before is not None:
            self._count(before, -1)
            if before.instance_id is not None and self.static_members.get(before.instance_id) == member_id:
                del self.static_members[before.instance_id]
        if member is None:
            self.members.pop(member_id, None)
            return
        self.members[member_id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def _count(self, member: MemberMetadata, by: int) -> None:
        counted: list[tuple[Counter[str], str]] = [(self.topic_counts, topic) for topic in member.topic_names]
        if member.topic_regex:
            counted.append((self.regex_counts, member.topic_regex))
        if member.server_assignor is not None:
            counted.append((self._assignors, member.server_assignor))
        size = len(member.client_id) + len(member.client_host) + sum(len(topic) for topic in member.topic_names)
        if member.classic is not None:
            self.classic_count += by
            protocols = member.classic.protocols
            counted += [(self.classic_protocols, name) for name in dict.fromkeys(name for name, _ in protocols)]
            size += sum(len(name) + len(metadata) for name, metadata in protocols)
        self.memory_bytes += by * (_BYTES_PER_MEMBER + size)
        for counter, name in counted:
            counter[name] += by
            if not counter[name]:
                del counter[name]

    def _set_assignment(self, member_id: str, assignment: MemberAssignment | None) -> None:
        before = self.assignments.get(member_id)
        if before is not None:
            self._disown(before.assigned, member_id)
            self._disown(before.revoking, member_id)
        if assignment is None:
            self.assignments.pop(member_id, None)
            return
        self.assignments[member_id] = assignment
        for partitions in (assignment.assigned, assignment.revoking):
            for topic_id, numbers in partitions.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(numbers, member_id))

    def _disown(self, partitions: PartitionEpochs, member_id: str) -> None:
        """Remove a member as owner.  After a compaction the next owner may be replayed before it."""
        for topic_id, numbers in partitions.items():
            owners = self._owners.get(topic_id, {})
            for number in numbers:
                if owners.get(number) == member_id:
                    del owners[number]
            if not owners:
                self._owners.pop(topic_id, None)

    def assigned_since(self, member_id: str, partition: TopicPartition, topics: ClusterTopics) -> int | None:
        """Return the epoch in which the member got the partition; None if it does not own it."""
        assignment, topic_id = self.assignment(member_id), topics.topic_id(partition.topic)
        since = assignment.assigned.get(topic_id, {}).get(partition.partition)
        return assignment.revoking.get(topic_id, {}).get(partition.partition) if since is None else since

    def target_of(self, member_id: str) -> Partitions:
        """Return the target assignment of a member."""
        return self.targets.get(member_id, NOTHING)

"""A consumer group: its members, its generation, its leader, its offsets.  The data; the rules are in other modules.

The model of a group
--------------------------
A group is a sequence of generations.  A generation is a fixed set of members, one protocol that all of them support,
one leader, and one assignment that the leader computes.  Between two generations there is a rebalance:

    Empty ----join----> PreparingRebalance <---join, leave, expiry, new metadata--- Stable
      ^                  |             ^                                              ^
      |   none left      |             |  join, leave, expiry,                        |
      +------------------+             |  leader's sync not stored                    |
                         |             |                                              |
                         +--all joined--> CompletingRebalance ----leader's sync stored+

    any state ----deleted, expired, or moved to another broker----> Dead

PreparingRebalance collects a JoinGroup from every member, each parked until the last one has arrived or the largest
rebalance timeout has expired; members that did not join are removed, except static ones, which stay until their session
expires.  The first generation of a group waits for group.initial.rebalance.delay.ms, and longer while members join.

When all have joined, the generation is incremented, the protocol is elected, joins are completed, and the group is in
CompletingRebalance: members park a SyncGroup, the leader's sync carries the assignment, and only when that is in the
log are the syncs completed and the group is Stable.  So an assignment that a member has seen survives a failover.

In the log: the whole group at each Stable, at each static replacement, and when it becomes Empty; each commit.
Not in the log: members between join and sync.  After a change of coordinator they get UNKNOWN_MEMBER_ID and rejoin.

Sessions: any request of a member extends its session; a parked request keeps it alive, because its client cannot send
heartbeats meanwhile.  A member that never got a response (is_new) may be a client that gave up, so it gets five
minutes.  A pending member (KIP-394) is only an id that was sent; it keeps a join phase open until its session expires.

Static members (KIP-345) have an instance id that maps to one member id.  A new process with the same instance id takes
over the place and the generation of the old one, whose parked and later requests get FENCED_INSTANCE_ID.

Invariants (checked by the property tests): the leader is a member; the generation never decreases; every member
supports the chosen protocol; every token is completed exactly once; a generation has one assignment.

Owner: event loop.  Pure: no IO, no clock, no randomness; only `step` and the rules under it change a Group.
Kafka: GroupMetadata.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kctl.errors import ErrorCode
from kctl.server.coordination.consumer_groups.group import ConsumerGroup
from kctl.server.coordination.groups.actions import (
    PREVIOUS_STATES,
    Action,
    GroupDescription,
    GroupOverview,
    GroupSnapshot,
    GroupState,
    GroupType,
    MemberDescription,
    MemberSnapshot,
)
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.events import (
    Append,
    AssignmentAppend,
    InitialDelay,
    Now,
    Protocols,
    TimerKey,
    Token,
    memory_of,
    size_of,
)
from kctl.server.coordination.groups.offsets import CommittedOffsets, subscribed_topics
from kctl.server.coordination.newer_groups import ClusterTopics, NewerGroup, NoTopics
from kctl.server.coordination.share_groups.group import ShareGroup
from kctl.server.coordination.streams_groups.group import StreamsGroup


@dataclass(slots=True, kw_only=True)
class Member:
    """The state of a member.

    A join or a sync that cannot be completed yet is parked here by its token; there is at most one of each.
    """

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    is_new: bool = False
    """No response was sent since it joined: it cannot send heartbeats, so a parked join does not keep it alive."""
    session_deadline_ms: int = 0
    timer_due_ms: int | None = None
    """When its session timer fires; heartbeats only move the deadline, which is checked when the timer fires."""

    @property
    def memory_bytes(self) -> int:
        """About its memory without protocols."""
        return memory_of(self.member_id, self.group_instance_id, self.client_id)

    @property
    def is_static(self) -> bool:
        """True for a member with an instance id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_joining(self) -> bool:
        """True if the member has a parked join."""
        return self.join_token is not None

    @property
    def is_parked(self) -> bool:
        """True if it has a parked request, so that it cannot be expected to send heartbeats."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """Its metadata for this protocol.  Raises KeyError if it does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(protocol_name)

    def vote(self, candidates: Collection[str]) -> str:
        """Return the candidate that is first in its order of preference."""
        return next(name for name, _ in self.protocols if name in candidates)


# The protocols (assignors) that the members of a group support, and the election of one.
#
# Invariant: the count of a protocol is the number of members that support it, even if one lists it twice.
#
# Pure. Kafka: GroupMetadata.supportedProtocols, selectProtocol.


class Election:
    """Each member votes for its most preferred candidate; a tie goes to the one that was voted for first."""

    def __init__(self, candidates: Iterable[str]) -> None:
        self._candidates = frozenset(candidates)
        self._votes: Counter[str] = Counter()

    @property
    def is_decided(self) -> bool:
        """True if there is only one candidate."""
        return len(self._candidates) == 1

    def vote(self, member: Member) -> None:
        """Count the vote of a member."""
        self._votes[member.vote(self._candidates)] += 1

    def winner(self, voters: Iterable[Member] = ()) -> str:
        """Return the protocol with the most votes, after these members have voted too."""
        if self.is_decided:
            return next(iter(self._candidates))
        for member in voters:
            self.vote(member)
        return self._votes.most_common(1)[0][0]


class ProtocolSupport:
    """Counts, for one group, how many members support each protocol."""

    __slots__ = ("_counts", "metadata_bytes")

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.metadata_bytes = 0
        """The size of the names and metadata of all members."""

    def add(self, protocols: Protocols) -> None:
        """Add a member that supports these."""
        self._count(protocols, 1)

    def remove(self, protocols: Protocols) -> None:
        """Remove a member that supports these."""
        self._count(protocols, -1)

    def shares_one(self, protocols: Protocols, members: int) -> bool:
        """Return whether `members` members all support one of these."""
        return any(self._counts[name] == members for name, _ in protocols)

    def election(self, members: int) -> Election:
        """Return an election among the protocols that all of `members` members support."""
        return Election(name for name, count in self._counts.items() if count == members)

    def _count(self, protocols: Protocols, by: int) -> None:
        self.metadata_bytes += by * size_of(protocols)
        for name in dict.fromkeys(name for name, _ in protocols):
            self._counts[name] += by
            if not self._counts[name]:
                del self._counts[name]  # Otherwise a group would keep the names that any of its members ever had.


CONSUMER_PROTOCOL_TYPE = "consumer"


_CLASSIC_ATTRIBUTES = (
    *("state", "state_timestamp_ms", "generation", "protocol_type", "protocol_name", "leader", "members"),
    *("static_members", "pending_members", "pending_sync", "subscribed_topics", "initial_delay", "has_new_member"),
    *("_joining_count", "_ids_bytes", "_protocol_support"),
)


class Group:
    """One group.  Attributes are read-only for other modules; changes are made by methods called from `step`."""

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: set[str] = set()
        self.pending_sync: set[str] = set()
        self.subscribed_topics: frozenset[str] | None = None
        """The topics to which the members of a consumer group subscribe; None if unknown."""
        self.initial_delay: InitialDelay | None = None
        self.has_new_member = False
        """A member joined during the initial delay, which extends it."""
        self.offsets = CommittedOffsets()
        self.newer: NewerGroup | None = None
        """Its members, if it is of one of the newer types; those of the classic protocol are none then."""
        self.topics: ClusterTopics = NoTopics()
        self.sessions: dict[str, int] = {}
        """When the session of each member of a newer type ends; each has a timer."""
        self.revocation_epochs: dict[str, int] = {}
        """The epochs which members have to leave before their timer fires."""
        self.classic_timers: set[TimerKey] = set()
        """The running timers of members of the classic protocol in a consumer group, but for sessions."""
        self.last_newer_append = 0
        self.appends: dict[int, Append] = {}
        self.unfinished: deque[Iterator[Sequence[Action]]] = deque()
        """Work for many members that has begun, see `step_through` in rebalance."""
        self.is_completing_join = False
        """The work that completes the join phase is unfinished."""
        self._append_count = 0
        self._joining_count = 0
        self._ids_bytes = 0
        self._protocol_support = ProtocolSupport()

    @property
    def is_consumer_group(self) -> bool:
        """True if the members use the consumer protocol."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def is_vacant(self) -> bool:
        """True if removing the group would lose nothing."""
        return (
            self.state is GroupState.EMPTY
            and self.has_no_members
            and self.offsets.is_vacant
            and not self.members
            and not self.pending_members
            and not self.appends
            and (self.share is None or not self.share.is_stored)
        )

    @property
    def has_no_members(self) -> bool:
        """True if there are no members of any protocol."""
        return self.state is GroupState.EMPTY and not (self.newer is not None and self.newer.members)

    @property
    def has_no_classic_members(self) -> bool:
        """True if there are no members of the classic protocol, nor any that join."""
        return self.state is GroupState.EMPTY and not self.members and not self.pending_members

    @property
    def consumer(self) -> ConsumerGroup | None:
        """The group, if it is of the consumer protocol."""
        return self.newer if isinstance(self.newer, ConsumerGroup) else None

    @property
    def share(self) -> ShareGroup | None:
        """The group, if it is a share group."""
        return self.newer if isinstance(self.newer, ShareGroup) else None

    @property
    def streams(self) -> StreamsGroup | None:
        """The group, if it is a streams group."""
        return self.newer if isinstance(self.newer, StreamsGroup) else None

    @property
    def reconciled(self) -> ConsumerGroup | StreamsGroup | None:
        """The group, if its members have to revoke before others are assigned."""
        return self.newer if isinstance(self.newer, ConsumerGroup | StreamsGroup) else None

    @property
    def state_name(self) -> str:
        """The state, as clients see it."""
        if self.newer is None or self.state is GroupState.DEAD:
            return self.state.value
        return self.newer.state.value

    @property
    def member_count(self) -> int:
        """The number of members of whatever protocol."""
        return len(self.members if self.newer is None else self.newer.members)

    def set_classic_aside(self) -> Callable[[], None]:
        """Become a group without members and generation of the classic protocol; return what restores them."""
        empty, before = vars(Group(self.group_id, self.config)), dict(vars(self))
        vars(self).update({name: empty[name] for name in _CLASSIC_ATTRIBUTES})
        return lambda: vars(self).update({name: before[name] for name in _CLASSIC_ATTRIBUTES})

    def resume_generation(self, generation: int, members: Iterable[Member], now: Now) -> None:
        """Become a stable classic group of these members, the first of which is the leader."""
        for member in members:
            self.add(member, CONSUMER_PROTOCOL_TYPE)
        self.state, self.state_timestamp_ms = GroupState.STABLE, now.wall_ms
        self.generation, self.protocol_name = generation, self.elect_protocol()
        self.subscribed_topics = self._read_subscriptions()

    @property
    def can_rebalance(self) -> bool:
        """True if the state allows a rebalance to start."""
        return self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    @property
    def have_all_joined(self) -> bool:
        """True if every member has a parked join and no member id is pending."""
        return self._joining_count == len(self.members) and not self.pending_members

    @property
    def joining_count(self) -> int:
        """The number of members with a parked join."""
        return self._joining_count

    @property
    def is_storing_assignment(self) -> bool:
        """True while the assignment of this generation is being written to the log."""
        return any(
            isinstance(append, AssignmentAppend) and append.generation == self.generation
            for append in self.appends.values()
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def is_over_capacity(self) -> bool:
        """True if the group has more than group.max.size members."""
        return len(self.members) > self.config.group_max_size

    def is_fenced(self, member_id: str, group_instance_id: str | None) -> bool:
        """Return whether another member id owns the instance id."""
        if group_instance_id is None:
            return False
        holder = self.static_members.get(group_instance_id)
        return holder is not None and holder != member_id

    def identity_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return the error of a request for this member: NONE, FENCED_INSTANCE_ID or UNKNOWN_MEMBER_ID."""
        if self.is_fenced(member_id, group_instance_id):
            return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols can join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and self._protocol_support.shares_one(protocols, len(self.members))

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if members subscribe to the topic, or if their subscriptions cannot be parsed."""
        if self.newer is not None:
            return self.newer.is_subscribed_to(topic)
        return self.subscribed_topics is None or topic in self.subscribed_topics

    @property
    def metadata_bytes(self) -> int:
        """The size of all members with their ids, protocols and metadata, and of ids that were given to new members."""
        newer_bytes = 0 if self.newer is None else self.newer.memory_bytes
        return self._protocol_support.metadata_bytes + self._ids_bytes + newer_bytes

    def add_pending(self, member_id: str) -> None:
        """Add a member id with which no client has joined yet."""
        self.pending_members.add(member_id)
        self._ids_bytes += memory_of(member_id)

    def remove_pending(self, member_id: str) -> None:
        """Remove such an id, if it exists."""
        if member_id in self.pending_members:
            self.pending_members.remove(member_id)
            self._ids_bytes -= memory_of(member_id)

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one determines the protocol type and is the leader."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._protocol_support.add(member.protocols)
        self._ids_bytes += member.memory_bytes
        self._joining_count += member.is_joining
        self.remove_pending(member.member_id)
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member, whose parked requests must be completed."""
        self.remove_pending(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        assert not member.is_joining
        assert member.sync_token is None
        self._protocol_support.remove(member.protocols)
        self._ids_bytes -= member.memory_bytes
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace_static(self, old_member_id: str, new_member_id: str) -> Member:
        """Replace a static member's id by that of its new process; the old one must not have parked requests."""
        member = self.members[old_member_id]
        assert member.group_instance_id is not None
        assert not member.is_joining
        assert member.sync_token is None
        self._ids_bytes += len(new_member_id) - len(old_member_id)
        member.member_id = new_member_id
        member.timer_due_ms = None
        # Keeps its position in the order of members.
        self.members = {present.member_id: present for present in self.members.values()}
        self.static_members[member.group_instance_id] = new_member_id
        if old_member_id in self.pending_sync:
            self.pending_sync.remove(old_member_id)
            self.pending_sync.add(new_member_id)
        if self.leader == old_member_id:
            self.leader = new_member_id
        return member

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Set the protocols that the member supports."""
        self._protocol_support.remove(member.protocols)
        member.protocols = protocols
        self._protocol_support.add(protocols)

    def park_join(self, member: Member, token: Token) -> None:
        """Park the member's join until the rebalance is complete."""
        assert member.join_token is None
        member.join_token = token
        self._joining_count += 1

    def take_join(self, member: Member) -> Token | None:
        """Remove and return the parked join, which the caller completes; None if there is none."""
        token = member.join_token
        if token is not None:
            member.join_token = None
            self._joining_count -= 1
        return token

    def elect_joined_leader(self) -> bool:
        """Make a member with a parked join the leader; return False if there is none."""
        if self.leader is None:
            return False
        if self.members[self.leader].is_joining:
            return True
        joined = next((member.member_id for member in self.members.values() if member.is_joining), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def elect_protocol(self) -> str:
        """Return the protocol with the most votes."""
        return self.election().winner(self.members.values())

    def election(self) -> Election:
        """Return an election of the protocol by the current members."""
        return self._protocol_support.election(len(self.members))

    def begin_generation(self, protocol: str | None, now: Now) -> None:
        """Start the next generation with the current members and this protocol.

        `subscribed_topics` are unknown until the subscriptions are read.
        """
        self.generation += 1
        self.initial_delay = None
        self.pending_sync = set(self.members)
        self.protocol_name = protocol
        self.subscribed_topics = None
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now)

    def transition_to(self, state: GroupState, now: Now) -> None:
        """Change the state; the only method that does.  Raises AssertionError for an invalid transition."""
        assert self.state in PREVIOUS_STATES[state], f"{self.state} -> {state}"
        self.state = state
        self.state_timestamp_ms = now.wall_ms

    def add_pending_append(self, append: Append) -> int:
        """Store a pending append; AppendDone contains the returned id."""
        self._append_count += 1
        self.appends[self._append_count] = append
        return self._append_count

    def snapshot(self, members: Sequence[MemberSnapshot]) -> GroupSnapshot:
        """Return the record of this generation with these members."""
        return GroupSnapshot(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(members),
        )

    def member_snapshots(self, assignments: Mapping[str, bytes]) -> Iterator[MemberSnapshot]:
        """Return the members with these assignments; members without one get empty bytes."""
        return (
            MemberSnapshot(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name or ""),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )

    @classmethod
    def restored(cls, group_id: str, config: GroupConfig, snapshot: GroupSnapshot) -> Group:
        """Return the group from its last record: Stable with members, Empty without."""
        group = cls(group_id, config)
        for recorded in snapshot.members:
            member = Member(
                member_id=recorded.member_id,
                group_instance_id=recorded.group_instance_id,
                client_id=recorded.client_id,
                client_host=recorded.client_host,
                rebalance_timeout_ms=recorded.rebalance_timeout_ms,
                session_timeout_ms=recorded.session_timeout_ms,
                protocols=((snapshot.protocol or "", recorded.subscription),),
                assignment=recorded.assignment,
            )
            group.add(member, snapshot.protocol_type)
        group.state = GroupState.STABLE if snapshot.members else GroupState.EMPTY
        group.state_timestamp_ms = snapshot.state_timestamp_ms
        group.generation = snapshot.generation
        group.protocol_type = snapshot.protocol_type or None
        group.protocol_name = snapshot.protocol
        group.leader = snapshot.leader if snapshot.leader in group.members else group.leader
        group.subscribed_topics = group._read_subscriptions()
        return group

    def describe(self) -> GroupDescription:
        """Return the group for DescribeGroups; metadata and assignments only if it is Stable."""
        is_stable = self.state is GroupState.STABLE
        protocol = (self.protocol_name or "") if is_stable else ""
        return GroupDescription(
            state=self.state,
            protocol_type=self.protocol_type or "",
            protocol=protocol,
            members=tuple(
                MemberDescription(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=member.metadata(protocol) if is_stable else b"",
                    assignment=member.assignment if is_stable else b"",
                )
                for member in self.members.values()
            ),
        )

    def overview(self) -> GroupOverview:
        """Return the group for ListGroups."""
        if self.newer is not None:
            # The protocol type is the same text.
            return GroupOverview(self.group_id, self.newer.kind, self.state_name, GroupType(self.newer.kind))
        return GroupOverview(self.group_id, self.protocol_type or "", self.state_name, GroupType.CLASSIC)

    def _read_subscriptions(self) -> frozenset[str] | None:
        protocol = self.protocol_name
        if not self.is_consumer_group or (self.members and protocol is None):
            return None
        return subscribed_topics(member.metadata(protocol or "") for member in self.members.values())

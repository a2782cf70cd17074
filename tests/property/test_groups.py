"""Groups under any sequence of requests, time-outs and log failures: what must hold after every single step.

Goal: no call is lost or answered twice, generations and assignments stay unique, nothing waits for ever, and the log
always holds what was answered.  Method: a state machine test over one group in a simulated world.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.server.groups.actions import (
    JoinOutcome,
    LeaveOutcome,
    PersistGroup,
    PersistOffsets,
    PersistTombstones,
    SyncOutcome,
)
from kctl.server.groups.events import JOIN_TIMER, SYNC_TIMER, DeleteGroup, DeleteOffsets, ExpireOffsets, Leaver
from kctl.server.groups.group import CommitAppend, Group, ReplacementAppend
from kctl.server.groups.loading import PartitionReplay
from kctl.server.groups.records import group_record, offset_records, tombstones
from kctl.server.groups.sessions import session_timer
from kctl.server.groups.states import GroupState
from tests.unit.groups.world import GroupWorld, protocols

PROTOCOLS = (
    protocols("range"),
    protocols("range", "sticky"),
    protocols("sticky", "range"),
    protocols("range", topics=("u",)),
    protocols("sticky"),
    (),
)
INSTANCES = (None, None, "i", "j")
MEMBER_COUNT_MAX = 4
APPEND_ERRORS = (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT)

member = st.integers(0, 5)
generation_error = st.sampled_from((0, 0, 0, 0, -1, 1))


class GroupMachine(RuleBasedStateMachine):
    """Random members, who remember the ids and generations that they were given, and now and then get them wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld(group_initial_rebalance_delay_ms=100, group_max_size=MEMBER_COUNT_MAX)
        self.known_ids = [""]
        self.seen = 0
        self.generation = 0
        self.settled: dict[int, tuple[str, str]] = {}
        self.assignments: dict[tuple[int, str], bytes] = {}

    @rule(
        who=member,
        instance=st.sampled_from(INSTANCES),
        needs_id=st.booleans(),
        supports=st.sampled_from(PROTOCOLS),
        rebalance_ms=st.sampled_from((500, 5_000)),
    )
    def join(
        self, who: int, instance: str | None, needs_id: bool, supports: tuple[tuple[str, bytes], ...], rebalance_ms: int
    ) -> None:
        self.world.join(
            self._id(who),
            name="m",
            instance=instance,
            needs_id=needs_id and instance is None,
            session_ms=1_000,
            rebalance_ms=rebalance_ms,
            supports=supports,
        )

    @rule(who=member, error=generation_error)
    def sync(self, who: int, error: int) -> None:
        group = self.world.group
        assignments = {each: f"{group.generation} {each}".encode() for each in group.members}
        self.world.sync(self._id(who), generation=group.generation + error, assignments=assignments)

    @rule()
    def everybody_joins_again(self) -> None:
        for member_id, each in list(self.world.group.members.items()):
            self.world.join(member_id, name="m", instance=each.group_instance_id, session_ms=1_000, rebalance_ms=500)

    @rule()
    def everybody_syncs(self) -> None:
        for member_id in list(self.world.group.members):
            assignments = {each: f"{self.world.group.generation} {each}".encode() for each in self.world.group.members}
            self.world.sync(member_id, assignments=assignments)

    @rule(who=member, error=generation_error)
    def heartbeat(self, who: int, error: int) -> None:
        self.world.heartbeat(self._id(who), generation=self.world.group.generation + error)

    @rule(who=member, instance=st.sampled_from(INSTANCES))
    def leave(self, who: int, instance: str | None) -> None:
        outcome = self.world.leave(Leaver(self._id(who), instance))
        assert isinstance(outcome, LeaveOutcome)

    @rule(who=member, partition=st.integers(0, 2), offset=st.integers(0, 99), is_member=st.booleans())
    def commit(self, who: int, partition: int, offset: int, is_member: bool) -> None:
        member_id, generation = (self._id(who), self.world.group.generation) if is_member else ("", -1)
        self.world.commit({TopicPartition("t", partition): offset}, member_id=member_id, generation=generation)

    @rule(milliseconds=st.sampled_from((1, 100, 400, 1_000, 6_000)))
    def wait(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)

    @rule(holds=st.booleans())
    def log_gets_slow_or_fast(self, holds: bool) -> None:
        self.world.holds_appends = holds

    @precondition(lambda self: self.world.held)
    @rule(error=st.sampled_from(APPEND_ERRORS))
    def append_ends(self, error: ErrorCode) -> None:
        self.world.finish_append(error)

    @rule()
    def delete_offsets(self) -> None:
        self.world.ask(DeleteOffsets, (TopicPartition("t", 0),))

    @rule()
    def expire(self) -> None:
        self.world.do(ExpireOffsets())

    @precondition(lambda self: self.generation > 5)
    @rule()
    def delete(self) -> None:
        self.world.ask(DeleteGroup)

    @invariant()
    def answers_agree(self) -> None:
        """All members of a generation hear of one leader and one protocol, and of one assignment each."""
        group = self.world.group
        for _, outcome in self.world.given[self.seen :]:
            match outcome:
                case JoinOutcome():
                    self.known_ids.append(outcome.member_id)
                case SyncOutcome(error=ErrorCode.NONE):
                    number, _, owner = outcome.assignment.decode().partition(" ")
                    assert not number or int(number) == group.generation
                    if owner:
                        assert self.assignments.setdefault((group.generation, owner), outcome.assignment)
            if isinstance(outcome, JoinOutcome) and outcome.members:
                names = sorted(each.member_id for each in outcome.members)
                told = (outcome.leader, ",".join(names))
                assert outcome.leader == outcome.member_id
                assert self.settled.setdefault(outcome.generation, told) == told
        self.seen = len(self.world.given)

    @invariant()
    def generation_never_goes_down(self) -> None:
        assert self.world.group.generation >= self.generation
        self.generation = self.world.group.generation

    @invariant()
    def leader_is_a_member(self) -> None:
        group = self.world.group
        assert (group.leader in group.members) if group.members else group.leader is None

    @invariant()
    def books_are_kept(self) -> None:
        group = self.world.group
        assert group.joining_count == sum(each.is_joining for each in group.members.values())
        assert len(group.members) <= MEMBER_COUNT_MAX or group.state is GroupState.PREPARING_REBALANCE
        assert set(group.static_members.values()) == {m for m, each in group.members.items() if each.is_static}
        assert group.pending_sync <= set(group.members)
        assert not group.pending_members & set(group.members)
        if group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
            assert all(each.metadata(group.protocol_name or "") is not None for each in group.members.values())
        if group.state is GroupState.EMPTY:
            assert not group.members

    @invariant()
    def no_call_is_lost(self) -> None:
        """What is not answered is parked where a later step finds it.  (World asserts that none is answered twice.)"""
        group = self.world.group
        parked = {each.join_token for each in group.members.values()} | {m.sync_token for m in group.members.values()}
        parked |= {append.token for append in group.appends.values() if isinstance(append, CommitAppend)}
        assert {token for token in self.world.asked if token not in self.world.answers} == parked - {None}

    @invariant()
    def calls_are_parked_in_their_phase_only(self) -> None:
        group = self.world.group
        replacing = {append.token for append in group.appends.values() if isinstance(append, ReplacementAppend)}
        for each in group.members.values():
            assert each.sync_token is None or group.state is GroupState.COMPLETING_REBALANCE
            assert each.join_token is None or (
                group.state is GroupState.PREPARING_REBALANCE or each.join_token in replacing
            )

    @invariant()
    def nothing_waits_for_ever(self) -> None:
        """Whatever the group waits for has a timer, or an append on its way."""
        group, timers = self.world.group, self.world.timers
        if group.state is GroupState.DEAD:
            assert not timers
            return
        if group.state is GroupState.PREPARING_REBALANCE:
            assert JOIN_TIMER in timers
        if group.state is GroupState.COMPLETING_REBALANCE:
            assert SYNC_TIMER in timers or not group.pending_sync
        for member_id, each in group.members.items():
            assert session_timer(member_id) in timers or each.is_parked
        for member_id in group.pending_members:
            assert session_timer(member_id) in timers

    @invariant()
    def log_tells_the_same(self) -> None:
        """A new coordinator that reads the log knows what was answered."""
        group = self.world.group
        if self.world.held or group.state not in {GroupState.STABLE, GroupState.EMPTY}:
            return
        restored = replayed(self.world)
        assert restored.offsets.all() == group.offsets.all()
        if group.state is GroupState.STABLE:
            assert restored.describe() == group.describe()
            assert (restored.generation, restored.leader) == (group.generation, group.leader)

    def teardown(self) -> None:
        """In the end everybody has an answer."""
        self.world.holds_appends = False
        while self.world.held:
            self.world.finish_append()
        for _ in range(20):
            self.world.advance(400_000)
        assert set(self.world.asked) == set(self.world.answers)
        assert self.world.group.state in {GroupState.EMPTY, GroupState.DEAD}

    def _id(self, who: int) -> str:
        """A member, somebody who was one, or nobody."""
        candidates = [*self.world.group.members, *sorted(self.world.group.pending_members), *self.known_ids[-2:], ""]
        return candidates[who % len(candidates)]


def replayed(world: GroupWorld) -> Group:
    """What a coordinator makes of the world's log, through the bytes of the records."""
    replay = PartitionReplay()
    for position, entry in enumerate(world.log):
        match entry:
            case PersistGroup():
                records = [group_record("g", entry.snapshot, 1)]
            case PersistOffsets():
                records = offset_records("g", entry.offsets, 1)
            case PersistTombstones():
                records = tombstones("g", entry.partitions, is_group_gone=entry.is_group_gone, timestamp_ms=1)
        list(replay.batches(build_batch(records, base_offset=position)))
    assert not replay.skipped
    groups = {group.group_id: group for group in replay.groups(world.group.config)}
    return groups.get("g") or Group("g", world.group.config)


GroupMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=60)
TestGroups = GroupMachine.TestCase

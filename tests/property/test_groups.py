"""Invariants of a group under random requests, timeouts and append failures, checked after every step.

Goal: no call is lost or answered twice, generations and assignments stay unique, nothing waits for ever, and the log
always holds what was answered.  Method: random operations on one group in a simulated world; the seed is the failure.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import ErrorCode
from kctl.limits import GROUP_MEMBERS_PER_STEP_MAX
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.salvage import cut_all
from kctl.server.coordination.groups.actions import (
    GroupState,
    JoinOutcome,
    PersistGroup,
    PersistOffsets,
    PersistTombstones,
    SyncOutcome,
)
from kctl.server.coordination.groups.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    CommitAppend,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    Leaver,
    ReplacementAppend,
    TimerKind,
)
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.records import GroupPlayback, group_record, offset_records, tombstones
from kctl.server.coordination.groups.rules import rebalance
from kctl.server.coordination.groups.rules.rebalance import session_timer
from kctl.server.coordination.replay import PartitionReplay
from tests.property.examples import examples
from tests.unit.groups.world import GroupWorld, protocols

PROTOCOLS = (
    protocols("range"),
    protocols("range", "sticky"),
    protocols("sticky", "range"),
    protocols("range", topics=("u",)),
    protocols("sticky"),
    (),
)
INSTANCES = (None, None, None, "i", "j")
MEMBER_COUNT_MAX = 4
APPEND_ERRORS = (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT)


class GroupUnderTest:
    """One group and some members, which sometimes use a wrong id or generation."""

    def __init__(self) -> None:
        self.seen: int
        self.generation: int
        self.world = GroupWorld(group_initial_rebalance_delay_ms=100, group_max_size=MEMBER_COUNT_MAX)
        self._is_fresh()

    def join(self, chance: Random) -> None:
        instance = chance.choice(INSTANCES)
        self.world.join(
            self._any_member(chance),
            name="m",
            instance=instance,
            needs_id=instance is None and chance.random() < 0.3,
            session_ms=1_000,
            rebalance_ms=chance.choice((500, 5_000)),
            supports=chance.choice(PROTOCOLS),
        )

    def come(self, _chance: Random) -> None:
        self.world.join(name="m", session_ms=1_000, rebalance_ms=500)

    def restart(self, chance: Random) -> None:
        instance = chance.choice(("i", "j"))
        self.world.join(instance=instance, session_ms=1_000, rebalance_ms=500, supports=chance.choice(PROTOCOLS[:4]))

    def all_join(self, chance: Random) -> None:
        for member_id, member in list(self.world.group.members.items()):
            if member_id in self.known_ids and chance.random() < 0.9:
                instance = member.group_instance_id
                self.world.join(member_id, name="m", instance=instance, session_ms=1_000, rebalance_ms=500)

    def sync(self, chance: Random) -> None:
        self._sync(self._any_member(chance), error=self._mistake(chance))

    def all_sync(self, chance: Random) -> None:
        for member_id in list(self.world.group.members):
            if member_id in self.known_ids and chance.random() < 0.7:
                self._sync(member_id)

    def heartbeat(self, chance: Random) -> None:
        self.world.heartbeat(self._any_member(chance), generation=self.world.group.generation + self._mistake(chance))

    def leave(self, chance: Random) -> None:
        self.world.leave(Leaver(self._any_member(chance), chance.choice(INSTANCES)))

    def commit(self, chance: Random) -> None:
        is_member = chance.random() < 0.7
        member_id, generation = (self._any_member(chance), self.world.group.generation) if is_member else ("", -1)
        offsets = {TopicPartition("t", chance.randrange(3)): chance.randrange(100)}
        self.world.commit(offsets, member_id=member_id, generation=generation)

    def wait(self, chance: Random) -> None:
        self.world.advance(chance.choice((1, 100, 200, 400, 400, 1_000, 6_000)))

    def wait_a_little(self, _chance: Random) -> None:
        self.world.advance(120)

    def change_the_log(self, chance: Random) -> None:
        self.world.holds_appends = chance.random() < 0.5
        self.world.append_error = chance.choice(APPEND_ERRORS)

    def finish_an_append(self, chance: Random) -> None:
        if self.world.held:
            self.world.finish_append(chance.choice(APPEND_ERRORS))

    def delete_offsets(self, chance: Random) -> None:
        self.world.call(DeleteOffsets, (TopicPartition("t", chance.randrange(3)),))

    def expire(self, _chance: Random) -> None:
        self.world.do(ExpireOffsets())

    def delete(self, _chance: Random) -> None:
        if self.generation > 5:
            self.world.call(DeleteGroup)

    def check(self) -> None:
        """Everything that must hold between two events."""
        self.responses_agree()
        self.generation_never_goes_down()
        self.leader_is_a_member()
        self.books_are_kept()
        self.no_call_is_lost()
        self.calls_are_parked_in_their_phase_only()
        self.every_parked_call_has_a_timer()
        self.log_restores_the_same_state()
        if self.world.is_discarded and not self.world.held:
            self.recreate_group()

    def recreate_group(self) -> None:
        """A dead group may be created again; its log continues."""
        old = self.world
        assert set(old.requested) == set(old.responses)
        self.world = GroupWorld(Group("g", old.group.config))
        self.world.load_log(old.log)
        self.world.elapsed_ms = old.elapsed_ms
        self._is_fresh()

    def responses_agree(self) -> None:
        """All members of a generation get one leader, one protocol, and one assignment each."""
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
                names = sorted(member.member_id for member in outcome.members)
                reported = (outcome.leader, ",".join(names))
                assert outcome.leader == outcome.member_id
                assert self.settled.setdefault(outcome.generation, reported) == reported
        self.seen = len(self.world.given)

    def generation_never_goes_down(self) -> None:
        assert self.world.group.generation >= self.generation
        self.generation = self.world.group.generation

    def leader_is_a_member(self) -> None:
        group = self.world.group
        assert (group.leader in group.members) if group.members else group.leader is None

    def books_are_kept(self) -> None:
        group = self.world.group
        assert group.joining_count == sum(member.is_joining for member in group.members.values())
        if group.state is not GroupState.PREPARING_REBALANCE:
            # Static members keep their place although they did not join again.
            assert sum(not member.is_static for member in group.members.values()) <= MEMBER_COUNT_MAX
        assert set(group.static_members.values()) == {m for m, member in group.members.items() if member.is_static}
        assert group.pending_sync <= set(group.members)
        assert not group.pending_members & set(group.members)
        if group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
            assert all(member.metadata(group.protocol_name or "") is not None for member in group.members.values())
        if group.state is GroupState.EMPTY:
            assert not group.members

    def no_call_is_lost(self) -> None:
        """Requests without a response are parked where a later step finds them.  (World asserts that none is completed
        twice.)
        """
        group = self.world.group
        parked = {member.join_token for member in group.members.values()} | {
            m.sync_token for m in group.members.values()
        }
        parked |= {append.token for append in group.appends.values() if isinstance(append, CommitAppend)}
        assert {token for token in self.world.requested if token not in self.world.responses} == parked - {None}

    def calls_are_parked_in_their_phase_only(self) -> None:
        group = self.world.group
        replacing = {append.token for append in group.appends.values() if isinstance(append, ReplacementAppend)}
        for member in group.members.values():
            assert member.sync_token is None or group.state is GroupState.COMPLETING_REBALANCE
            assert member.join_token is None or (
                group.state is GroupState.PREPARING_REBALANCE or member.join_token in replacing
            )

    def every_parked_call_has_a_timer(self) -> None:
        """Whenever the group waits, it has a timer or a pending append."""
        group, timers = self.world.group, self.world.timers
        if group.state is GroupState.DEAD:
            assert not timers
            return
        if group.state is GroupState.PREPARING_REBALANCE:
            assert JOIN_TIMER in timers
        if group.state is GroupState.COMPLETING_REBALANCE:
            assert SYNC_TIMER in timers or not group.pending_sync
        for member_id, member in group.members.items():
            assert session_timer(member_id) in timers or member.is_parked
        sessions = {key.member_id for key in timers if key.kind is TimerKind.SESSION}
        assert group.pending_members <= sessions <= group.pending_members | set(group.members)

    def log_restores_the_same_state(self) -> None:
        """A new coordinator that reads the log has the acknowledged state."""
        group = self.world.group
        if self.world.held or group.state not in {GroupState.STABLE, GroupState.EMPTY}:
            return
        restored = replayed(self.world)
        assert restored.offsets.all() == group.offsets.all()
        if group.state is GroupState.STABLE:
            assert restored.describe() == group.describe()
            assert (restored.generation, restored.leader) == (group.generation, group.leader)

    def end(self) -> None:
        """Every call completes when time advances."""
        self.world.holds_appends = False
        while self.world.held:
            self.world.finish_append()
        for _ in range(20):
            self.world.advance(400_000)
        assert set(self.world.requested) == set(self.world.responses)
        assert self.world.group.state in {GroupState.EMPTY, GroupState.DEAD}

    def _is_fresh(self) -> None:
        self.known_ids = [""]
        self.seen = 0
        self.generation = 0
        self.settled: dict[int, tuple[str, str]] = {}
        self.assignments: dict[tuple[int, str], bytes] = {}

    def _sync(self, member_id: str, *, error: int = 0) -> None:
        group = self.world.group
        assignments = {member: f"{group.generation} {member}".encode() for member in group.members}
        self.world.sync(member_id, generation=group.generation + error, assignments=assignments)

    def _any_member(self, chance: Random) -> str:
        """A member with its id, a former member, or an unknown id."""
        members = [member_id for member_id in self.world.group.members if member_id in self.known_ids]
        return chance.choice([*members, *members, *self.known_ids[-3:], ""])

    def _mistake(self, chance: Random) -> int:
        return chance.choice((0, 0, 0, 0, 0, -1, 1))


def replayed(world: GroupWorld) -> Group:
    """The group that a coordinator loads from the world's log, through the bytes of the records."""
    playback = GroupPlayback()
    replay = PartitionReplay(playback)
    for position, entry in enumerate(world.log):
        match entry:
            case PersistGroup():
                records = [group_record("g", entry.snapshot, 1)]
            case PersistOffsets():
                records = offset_records("g", entry.offsets, 1)
            case PersistTombstones():
                records = tombstones("g", entry.partitions, is_group_gone=entry.is_group_gone, timestamp_ms=1)
        list(replay.steps(cut_all(build_batch(records, base_offset=position))))
    assert not replay.skipped
    groups = {group.group_id: group for group in filter(None, playback.groups(world.group.config))}
    return groups.get("g") or Group("g", world.group.config)


OPERATIONS = (
    GroupUnderTest.join,
    GroupUnderTest.come,
    GroupUnderTest.restart,
    GroupUnderTest.all_join,
    GroupUnderTest.all_join,
    GroupUnderTest.sync,
    GroupUnderTest.all_sync,
    GroupUnderTest.all_sync,
    GroupUnderTest.heartbeat,
    GroupUnderTest.leave,
    GroupUnderTest.commit,
    GroupUnderTest.wait,
    GroupUnderTest.wait_a_little,
    GroupUnderTest.wait_a_little,
    GroupUnderTest.change_the_log,
    GroupUnderTest.finish_an_append,
    GroupUnderTest.delete_offsets,
    GroupUnderTest.expire,
    GroupUnderTest.delete,
)


@examples(120)
@given(seed=st.integers(0, 2**32), per_step=st.sampled_from([1, 2, GROUP_MEMBERS_PER_STEP_MAX]))
def test_group_invariants_hold_under_random_events(seed: int, per_step: int) -> None:
    """Also if what happens to all members takes several steps."""
    chance = Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rebalance, "GROUP_MEMBERS_PER_STEP_MAX", per_step)
        group = GroupUnderTest()
        for _ in range(150):
            chance.choice(OPERATIONS)(group, chance)
            group.check()
        group.end()

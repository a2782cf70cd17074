"""Heartbeats, sessions, leaving, unloading."""

from __future__ import annotations

import pytest

from kctl.errors import ErrorCode
from kctl.server.coordination.groups.actions import PREVIOUS_STATES, GroupState, LeaveOutcome, PersistGroup
from kctl.server.coordination.groups.events import Leaver, TimerKey, TimerKind, Unload
from tests.unit.groups.world import SESSION_MS, GroupWorld

DELAY_MS = 3_000


def test_heartbeat_of_a_stable_member_succeeds() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    assert world.heartbeat(a) is ErrorCode.NONE


def test_heartbeat_while_completing_succeeds() -> None:
    world = GroupWorld()
    token = world.join(name="a")
    world.advance(DELAY_MS)
    assert world.heartbeat(world.responses[token].member_id) is ErrorCode.NONE


def test_heartbeat_of_an_unknown_member_is_refused() -> None:
    world = GroupWorld()
    world.stable_group("a")
    assert world.heartbeat("unknown-member") is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("generation", [0, 2, -1], ids=["old", "yet to come", "none"])
def test_heartbeat_of_another_generation_is_refused_and_extends_no_session(generation: int) -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(a, generation=generation) is ErrorCode.ILLEGAL_GENERATION
    world.advance(1)
    assert world.group.state is GroupState.EMPTY


def test_heartbeat_to_an_empty_group_is_refused() -> None:
    assert GroupWorld().heartbeat("a", generation=0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_silent_member_is_removed_exactly_at_its_session_timeout() -> None:
    world = GroupWorld()
    a, b = world.stable_group("a", "b")
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(b) is ErrorCode.NONE
    world.advance(1)
    assert list(world.group.members) == [b]
    assert world.group.state is GroupState.PREPARING_REBALANCE
    assert world.heartbeat(a) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_do_not_reschedule_the_timer() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    key = TimerKey(TimerKind.SESSION, a)
    due_ms = world.timers[key]
    world.advance(SESSION_MS // 2)
    world.heartbeat(a)
    assert world.timers[key] == due_ms
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(a) is ErrorCode.NONE
    world.advance(SESSION_MS)
    assert world.group.state is GroupState.EMPTY


def test_wall_clock_jump_ends_no_session() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    world.advance(SESSION_MS // 2)
    world.wall_jump_ms = 86_400_000
    world.advance(SESSION_MS // 2 - 1)
    assert world.heartbeat(a) is ErrorCode.NONE


def test_leave_of_the_last_member_empties_the_group_and_is_persisted() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    assert world.leave(a) == LeaveOutcome(ErrorCode.NONE, (ErrorCode.NONE,))
    assert world.group.state is GroupState.EMPTY
    assert world.group.generation == 2
    persisted = world.log[-1]
    assert isinstance(persisted, PersistGroup)
    assert persisted.snapshot.members == ()
    assert persisted.snapshot.protocol is None
    assert persisted.snapshot.leader is None
    assert persisted.snapshot.protocol_type == "consumer"


def test_leaving_starts_a_rebalance() -> None:
    world = GroupWorld()
    leader, follower = world.stable_group("a", "b")
    world.leave(leader)
    assert world.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.responses[world.join(follower)].leader == follower


def test_leave_of_the_last_awaited_member_completes_the_join_phase() -> None:
    world = GroupWorld()
    leader, follower = world.stable_group("a", "b")
    token = world.join(leader)
    world.leave(follower)
    assert world.responses[token].generation == 2


def test_each_leaver_has_its_own_error() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    outcome = world.leave("unknown-member", a, Leaver("", "no-such-instance"))
    assert outcome == LeaveOutcome(
        ErrorCode.NONE, (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    )


def test_pending_member_may_leave() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    world.join(name="b", needs_id=True)
    token = world.join(a)
    pending = next(iter(world.group.pending_members))
    assert world.leave(pending).leavers == (ErrorCode.NONE,)
    assert world.responses[token].generation == 2
    assert TimerKey(TimerKind.SESSION, pending) not in world.timers


def test_member_that_leaves_with_a_parked_join_still_gets_its_response() -> None:
    world = GroupWorld()
    a, _ = world.stable_group("a", "b")
    token = world.join(a)
    world.leave(a)
    assert world.responses[token].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.responses[token].member_id == ""


def test_member_that_leaves_with_a_parked_sync_still_gets_its_response() -> None:
    world = GroupWorld()
    world.join(name="a")
    world.join(name="b")
    world.advance(DELAY_MS * 2)
    token = world.sync("b-2")
    world.leave("b-2")
    assert world.responses[token].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_longest_standing_member_becomes_the_next_leader() -> None:
    world = GroupWorld()
    a, b, _ = world.stable_group("a", "b", "c")
    world.leave(a)
    assert world.group.leader == b


def test_parked_joins_of_an_unloaded_group_get_not_coordinator() -> None:
    world = GroupWorld()
    a, _ = world.stable_group("a", "b")
    token = world.join(a)
    world.do(Unload())
    assert world.responses[token].error is ErrorCode.NOT_COORDINATOR
    assert world.is_discarded


def test_parked_syncs_of_an_unloaded_group_get_not_coordinator() -> None:
    world = GroupWorld()
    world.join(name="a")
    world.join(name="b")
    world.advance(DELAY_MS * 2)
    world.holds_appends = True
    tokens = [world.sync("b-2"), world.sync("a-1")]
    world.do(Unload())
    assert {world.responses[token].error for token in tokens} == {ErrorCode.NOT_COORDINATOR}
    world.finish_append()
    assert world.group.state is GroupState.DEAD


def test_dead_group_responds_coordinator_not_available() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    world.do(Unload())
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat(a) is gone
    assert world.leave(a).error is gone
    assert world.responses[world.join(a)].error is gone
    assert world.responses[world.sync(a)].error is gone


@pytest.mark.parametrize("state", list(GroupState))
def test_every_group_state_is_reachable_and_only_dead_is_final(state: GroupState) -> None:
    onward = {after for after, before in PREVIOUS_STATES.items() if state in before}
    assert PREVIOUS_STATES[state]
    assert bool(onward) is (state is not GroupState.DEAD)

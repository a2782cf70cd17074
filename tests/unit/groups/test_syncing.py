"""SyncGroup, rule by rule."""

from __future__ import annotations

import pytest

from kctl.errors import ErrorCode
from kctl.server.coordination.groups.actions import GroupState, PersistGroup
from tests.rows import for_rows
from tests.unit.groups.world import REBALANCE_MS, SESSION_MS, GroupWorld

DELAY_MS = 3_000


def completing(world: GroupWorld, *names: str) -> list[str]:
    tokens = [world.join(name=name) for name in names]
    world.advance(DELAY_MS * 3)
    return [world.responses[token].member_id for token in tokens]


def test_follower_syncs_wait_for_the_leader_sync() -> None:
    world = GroupWorld()
    leader, follower = completing(world, "a", "b")
    parked = world.sync(follower)
    assert parked not in world.responses
    token = world.sync(leader, assignments={leader: b"p0", follower: b"p1"})
    assert world.responses[token].assignment == b"p0"
    assert world.responses[parked].assignment == b"p1"
    assert world.group.state is GroupState.STABLE


def test_assignment_is_persisted_before_any_response() -> None:
    world = GroupWorld()
    leader, follower = completing(world, "a", "b")
    world.holds_appends = True
    token = world.sync(leader, assignments={follower: b"p0"})
    assert token not in world.responses
    states = [world.group.state]
    world.finish_append()
    states.append(world.group.state)
    assert states == [GroupState.COMPLETING_REBALANCE, GroupState.STABLE]
    persisted = world.log[-1]
    assert isinstance(persisted, PersistGroup)
    assert {m.member_id: m.assignment for m in persisted.snapshot.members} == {leader: b"", follower: b"p0"}


def test_member_without_an_assignment_from_the_leader_gets_an_empty_one() -> None:
    world = GroupWorld()
    leader, follower = completing(world, "a", "b")
    world.sync(leader, assignments={leader: b"p0", "unknown-member": b"p9"})
    assert world.responses[world.sync(follower)].assignment == b""


@for_rows(
    "append_error, completed",
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_assignment_with_a_failed_append_fails_all_syncs_and_rebalances(
    append_error: ErrorCode, completed: ErrorCode
) -> None:
    world = GroupWorld()
    leader, follower = completing(world, "a", "b")
    parked = world.sync(follower)
    world.append_error = append_error
    token = world.sync(leader)
    assert world.responses[token].error is world.responses[parked].error is completed
    assert world.group.state is GroupState.PREPARING_REBALANCE


def test_assignment_of_an_older_generation_changes_nothing() -> None:
    world = GroupWorld()
    leader, follower = completing(world, "a", "b")
    world.holds_appends = True
    world.sync(leader, assignments={leader: b"old"})
    world.leave(follower)
    world.join(leader)
    assert world.group.generation == 2
    world.finish_append()
    assert world.group.state is GroupState.COMPLETING_REBALANCE
    assert world.group.members[leader].assignment == b""


def test_stable_member_gets_its_assignment_again() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    outcome = world.responses[world.sync(a)]
    assert (outcome.error, outcome.assignment) == (ErrorCode.NONE, a.encode())
    assert (outcome.protocol_type, outcome.protocol_name) == ("consumer", "range")


def test_sync_of_another_generation_is_refused() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    assert world.responses[world.sync(a, generation=0)].error is ErrorCode.ILLEGAL_GENERATION


def test_sync_of_an_unknown_member_is_refused() -> None:
    world = GroupWorld()
    world.stable_group("a")
    assert world.responses[world.sync("unknown-member")].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_while_preparing_gets_rebalance_in_progress() -> None:
    world = GroupWorld()
    a, _ = world.stable_group("a", "b")
    world.join(a)
    assert world.responses[world.sync(a)].error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "error"),
    [
        ("consumer", "range", ErrorCode.NONE),
        ("connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_sync_must_name_the_groups_protocol(protocol_type: str, protocol_name: str, error: ErrorCode) -> None:
    """KIP-559."""
    world = GroupWorld()
    (a,) = world.stable_group("a")
    token = world.sync(a, protocol_type=protocol_type, protocol_name=protocol_name)
    assert world.responses[token].error is error


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout() -> None:
    world = GroupWorld()
    leader, follower = completing(world, "a", "b")
    parked = world.sync(follower)
    for _ in range(REBALANCE_MS // 5_000):
        world.advance(5_000)
        world.heartbeat(leader)
    assert world.responses[parked].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(world.group.members) == [follower]
    assert world.group.state is GroupState.PREPARING_REBALANCE


def test_sync_timeout_removes_no_member_after_all_have_synced() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    for _ in range(2 * REBALANCE_MS // 5_000):
        world.advance(5_000)
        assert world.heartbeat(a) is ErrorCode.NONE
    assert world.group.generation == 1


def test_parked_sync_suspends_the_session_and_its_response_restarts_it() -> None:
    world = GroupWorld()
    leader, follower = completing(world, "a", "b")
    parked = world.sync(follower)
    for _ in range(4):
        world.advance(SESSION_MS // 2)
        world.heartbeat(leader)
    world.sync(leader)
    assert world.responses[parked].error is ErrorCode.NONE
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(follower) is ErrorCode.NONE
    world.advance(SESSION_MS)
    assert follower not in world.group.members


def test_member_that_syncs_twice_gets_two_responses() -> None:
    world = GroupWorld()
    leader, follower = completing(world, "a", "b")
    first, second = world.sync(follower), world.sync(follower)
    assert world.responses[first].error is ErrorCode.REBALANCE_IN_PROGRESS
    world.sync(leader)
    assert world.responses[second].error is ErrorCode.NONE


def test_second_assignment_of_the_leader_does_not_change_the_persisted_one() -> None:
    """The leader may join again if its first sync got no response, and send a new assignment."""
    world = GroupWorld()
    leader, follower = completing(world, "a", "b")
    world.holds_appends = True
    first = world.sync(leader, assignments={leader: b"all"})
    second = world.sync(leader, assignments={follower: b"all"})
    world.finish_append()
    assert world.responses[first].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.responses[second].assignment == b"all"
    assert not world.held
    persisted = world.log[-1]
    assert isinstance(persisted, PersistGroup)
    assert {m.member_id: m.assignment for m in persisted.snapshot.members} == {leader: b"all", follower: b""}

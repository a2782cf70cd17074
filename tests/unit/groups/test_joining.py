"""JoinGroup, rule by rule, for one group."""

from __future__ import annotations

import pytest

from kctl.errors import ErrorCode
from kctl.server.coordination.groups.actions import GroupState
from kctl.server.coordination.groups.rules.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from tests.unit.groups.world import REBALANCE_MS, SESSION_MS, GroupWorld, protocols

DELAY_MS = 3_000


def test_first_generation_waits_for_the_initial_delay() -> None:
    world = GroupWorld()
    token = world.join(name="a")
    world.advance(DELAY_MS - 1)
    assert token not in world.responses
    world.advance(1)
    outcome = world.responses[token]
    assert (outcome.generation, outcome.leader, outcome.member_id) == (1, "a-1", "a-1")
    assert [member.member_id for member in outcome.members] == ["a-1"]


def test_initial_delay_is_extended_by_new_members_up_to_the_rebalance_timeout() -> None:
    """KIP-134."""
    world = GroupWorld()
    first = world.join(name="a", rebalance_ms=7_000)
    for _ in range(5):
        world.advance(2_000)
        world.join(name="b", rebalance_ms=7_000)
        if first in world.responses:
            break
    assert world.elapsed_ms == 8_000
    assert world.group.generation == 1


def test_member_joining_within_the_delay_is_in_the_first_generation() -> None:
    world = GroupWorld()
    first = world.join(name="a")
    world.advance(1_000)
    second = world.join(name="b")
    world.advance(DELAY_MS * 2)
    assert world.responses[first].generation == world.responses[second].generation == 1
    assert [member.member_id for member in world.responses[first].members] == ["a-1", "b-2"]
    assert world.responses[second].members == ()
    assert world.responses[second].leader == "a-1"


def test_new_member_gets_member_id_required_with_its_id() -> None:
    """KIP-394."""
    world = GroupWorld()
    outcome = world.responses[world.join(name="a", needs_id=True)]
    assert outcome.error is ErrorCode.MEMBER_ID_REQUIRED
    assert outcome.member_id == "a-1"
    assert outcome.generation == -1
    assert world.group.state is GroupState.EMPTY
    token = world.join("a-1", needs_id=True)
    world.advance(DELAY_MS)
    assert world.responses[token].generation == 1


def test_pending_id_is_removed_after_the_session_timeout() -> None:
    world = GroupWorld()
    world.join(name="a", needs_id=True)
    world.advance(SESSION_MS)
    assert not world.group.pending_members
    assert world.responses[world.join("a-1", needs_id=True)].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_waits_for_a_pending_member_until_its_session_ends() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    world.join(name="b", needs_id=True)
    token = world.join(a)
    assert token not in world.responses
    world.advance(SESSION_MS)
    assert world.responses[token].generation == 2


def test_static_member_is_admitted_at_once_under_a_fresh_id() -> None:
    """KIP-345."""
    world = GroupWorld()
    token = world.join(instance="i1", needs_id=False)
    world.advance(DELAY_MS)
    assert world.responses[token].member_id == "i1-1"
    assert world.responses[token].members[0].group_instance_id == "i1"


def test_unknown_member_id_is_refused() -> None:
    world = GroupWorld()
    world.stable_group("a")
    assert world.responses[world.join("unknown-member")].error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol_type", "supports"),
    [("", protocols("range")), ("consumer", ())],
    ids=["no protocol type", "no protocols"],
)
def test_empty_group_needs_a_protocol_type_and_a_protocol(
    protocol_type: str, supports: tuple[tuple[str, bytes], ...]
) -> None:
    world = GroupWorld()
    outcome = world.responses[world.join(protocol_type=protocol_type, supports=supports)]
    assert outcome.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.group.is_vacant


@pytest.mark.parametrize(
    ("protocol_type", "supports"),
    [("connect", protocols("range")), ("consumer", protocols("roundrobin"))],
    ids=["other type", "nothing in common"],
)
def test_member_without_a_common_protocol_is_refused(
    protocol_type: str, supports: tuple[tuple[str, bytes], ...]
) -> None:
    world = GroupWorld()
    world.stable_group("a")
    outcome = world.responses[world.join(name="b", protocol_type=protocol_type, supports=supports)]
    assert outcome.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.group.state is GroupState.STABLE


def test_protocol_that_all_support_and_most_prefer_is_chosen() -> None:
    world = GroupWorld()
    world.join(name="a", supports=protocols("range", "sticky"))
    world.join(name="b", supports=protocols("sticky", "range", "own"))
    token = world.join(name="c", supports=protocols("sticky", "range"))
    world.advance(DELAY_MS * 2)
    assert world.responses[token].protocol_name == "sticky"


def test_protocol_not_supported_by_all_members_is_not_chosen() -> None:
    world = GroupWorld()
    world.join(name="a", supports=protocols("own", "range"))
    token = world.join(name="b", supports=protocols("range"))
    world.advance(DELAY_MS * 2)
    assert world.responses[token].protocol_name == "range"


def test_protocol_named_twice_counts_once() -> None:
    world = GroupWorld()
    world.join(name="a", supports=protocols("range", "range"))
    world.join(name="b", supports=protocols("range", "other"))
    world.advance(DELAY_MS * 2)
    assert world.group.protocol_name == "range"


def test_join_of_another_member_makes_a_stable_group_rebalance() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    b = world.join(name="b")
    assert world.group.state is GroupState.PREPARING_REBALANCE
    assert world.heartbeat(a) is ErrorCode.REBALANCE_IN_PROGRESS
    token = world.join(a)
    assert world.responses[token].generation == world.responses[b].generation == 2
    assert world.responses[token].leader == a


def test_leader_that_joins_again_makes_a_stable_group_rebalance() -> None:
    world = GroupWorld()
    leader, follower = world.stable_group("a", "b")
    token = world.join(leader)
    assert token not in world.responses
    assert world.group.state is GroupState.PREPARING_REBALANCE
    world.join(follower)
    assert world.responses[token].generation == 2


def test_follower_that_joins_a_stable_group_unchanged_gets_the_generation_again() -> None:
    world = GroupWorld()
    leader, follower = world.stable_group("a", "b")
    outcome = world.responses[world.join(follower)]
    assert (outcome.generation, outcome.leader, outcome.members) == (1, leader, ())
    assert world.group.state is GroupState.STABLE


def test_follower_with_other_metadata_makes_a_stable_group_rebalance() -> None:
    world = GroupWorld()
    _, follower = world.stable_group("a", "b")
    world.join(follower, supports=protocols("range", topics=("t", "u")))
    assert world.group.state is GroupState.PREPARING_REBALANCE


def test_repeated_join_while_completing_gets_the_same_response() -> None:
    world = GroupWorld()
    token = world.join(name="a")
    world.advance(DELAY_MS)
    again = world.join("a-1")
    assert world.group.state is GroupState.COMPLETING_REBALANCE
    assert world.responses[again] == world.responses[token]


def test_member_with_changed_metadata_restarts_a_completing_rebalance() -> None:
    world = GroupWorld()
    a, b = world.join(name="a"), world.join(name="b")
    world.advance(DELAY_MS * 2)
    parked = world.sync("b-2")
    token = world.join("a-1", supports=protocols("range", topics=("u",)))
    assert world.responses[parked].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert token not in world.responses
    assert {a, b} <= set(world.responses)


def test_member_that_does_not_rejoin_in_time_is_removed() -> None:
    world = GroupWorld()
    leader, follower = world.stable_group("a", "b", rebalance_ms=5_000)
    token = world.join(leader, rebalance_ms=5_000)
    world.advance(5_000)
    assert world.responses[token].generation == 2
    assert follower not in world.group.members


def test_leader_that_does_not_rejoin_is_replaced_by_a_rejoined_member() -> None:
    world = GroupWorld()
    leader, follower = world.stable_group("a", "b", rebalance_ms=5_000)
    token = world.join(follower, rebalance_ms=5_000, supports=protocols("range", topics=("u",)))
    world.advance(5_000)
    assert world.responses[token].leader == follower
    assert leader not in world.group.members


def test_static_member_that_does_not_rejoin_stays_until_its_session_ends() -> None:
    world = GroupWorld()
    world.join(instance="i", session_ms=30_000, rebalance_ms=5_000)
    world.join(name="b", session_ms=30_000, rebalance_ms=5_000)
    world.advance(DELAY_MS * 2)
    leader, follower = list(world.group.members)
    for member_id in (leader, follower):
        world.sync(member_id)
    token = world.join(follower, session_ms=30_000, rebalance_ms=5_000, supports=protocols("range", topics=("u",)))
    world.advance(5_000)
    assert world.responses[token].leader == follower
    assert leader in world.group.members
    world.advance(30_000)
    assert leader not in world.group.members


def test_join_phase_continues_while_only_static_members_are_absent() -> None:
    world = GroupWorld()
    world.join(instance="i", session_ms=600_000, rebalance_ms=5_000)
    world.advance(DELAY_MS)
    world.sync("i-1")
    world.join(name="b", needs_id=False, rebalance_ms=5_000)
    world.leave("b-2")
    world.advance(5_000)
    assert world.group.state is GroupState.PREPARING_REBALANCE
    token = world.join("i-1", instance="i", session_ms=600_000, rebalance_ms=5_000)
    assert world.responses[token].generation == 2


def test_new_member_without_completed_join_is_removed_after_five_minutes() -> None:
    """Its join is parked, but the client may be gone."""
    world = GroupWorld()
    (a,) = world.stable_group("a", session_ms=1_800_000, rebalance_ms=1_800_000)
    token = world.join(name="b", rebalance_ms=1_800_000)
    world.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert world.responses[token].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(world.group.members) == [a]


def test_parked_join_suspends_the_session_timeout() -> None:
    world = GroupWorld()
    a, b = world.stable_group("a", "b", rebalance_ms=300_000)
    token = world.join(a, rebalance_ms=300_000)
    for _ in range(10):
        world.advance(SESSION_MS // 2)
        assert world.heartbeat(b) is ErrorCode.REBALANCE_IN_PROGRESS
    assert token not in world.responses
    world.join(b, rebalance_ms=300_000)
    assert world.responses[token].generation == 2
    world.advance(SESSION_MS)
    assert world.group.state is GroupState.EMPTY


def test_member_that_joins_twice_gets_two_responses() -> None:
    """The first response is unused, but its connection waits for it."""
    world = GroupWorld()
    a, _ = world.stable_group("a", "b")
    first, second = world.join(a), world.join(a)
    assert world.responses[first].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in world.responses


def test_full_group_refuses_a_new_member() -> None:
    """KIP-389."""
    world = GroupWorld(group_max_size=1)
    world.stable_group("a")
    outcome = world.responses[world.join(name="b")]
    assert outcome.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert outcome.member_id == ""
    assert world.group.state is GroupState.STABLE


def test_full_group_admits_its_own_members_first_come_first_served() -> None:
    world = GroupWorld(group_max_size=2)
    a, b = world.stable_group("a", "b")
    first = world.join(a)
    second = world.join(b)
    assert world.responses[first].generation == world.responses[second].generation == 2


def test_rejoin_beyond_the_maximum_size_removes_the_member() -> None:
    world = GroupWorld(group_max_size=2)
    a, b = world.stable_group("a", "b")
    world.join(a)
    world.join(name="c")
    late = world.join(b)
    assert world.responses[late].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert b not in world.group.members


def test_rejoin_applies_new_timeouts() -> None:
    world = GroupWorld()
    (a,) = world.stable_group("a")
    world.join(a, session_ms=20_000, rebalance_ms=90_000)
    assert world.group.members[a].session_timeout_ms == 20_000
    assert world.group.rebalance_timeout_ms == 90_000


def test_protocol_change_of_a_lone_member_needs_an_overlap() -> None:
    """Kafka also counts its previous protocols, so that a rolling change of protocols works."""
    world = GroupWorld()
    (a,) = world.stable_group("a")
    refused = world.responses[world.join(a, supports=protocols("sticky"))]
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    accepted = world.responses[world.join(a, supports=protocols("sticky", "range"))]
    assert accepted.protocol_name == "sticky"


def test_rebalance_timeout_is_the_largest_of_all_members() -> None:
    world = GroupWorld()
    leader, _ = world.stable_group("a", "b")
    world.join(leader, rebalance_ms=1_000)
    world.advance(SESSION_MS - 1)
    assert world.group.state is GroupState.PREPARING_REBALANCE
    assert REBALANCE_MS > SESSION_MS

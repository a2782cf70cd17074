"""KIP-345: members with a group.instance.id."""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.server.coordination.groups.actions import GroupState, PersistGroup
from kctl.server.coordination.groups.events import Leaver
from tests.unit.groups.world import SESSION_MS, GroupWorld, protocols

DELAY_MS = 3_000


def stable(world: GroupWorld, *instances: str) -> list[str]:
    tokens = [world.join(instance=instance) for instance in instances]
    world.advance(DELAY_MS * 3)
    member_ids = [world.responses[token].member_id for token in tokens]
    for member_id in member_ids:
        world.sync(member_id, assignments={id_: id_.encode() for id_ in member_ids})
    return member_ids


def test_restarted_static_member_causes_no_rebalance() -> None:
    world = GroupWorld()
    leader, follower = stable(world, "i1", "i2")
    outcome = world.responses[world.join(instance="i2")]
    assert (outcome.error, outcome.generation, outcome.leader) == (ErrorCode.NONE, 1, leader)
    assert outcome.member_id not in {leader, follower}
    assert world.group.state is GroupState.STABLE
    assert world.responses[world.sync(outcome.member_id)].assignment == follower.encode()


def test_restarted_leader_gets_its_old_id_as_leader_and_does_not_assign() -> None:
    world = GroupWorld()
    leader, _ = stable(world, "i1", "i2")
    outcome = world.responses[world.join(instance="i1")]
    assert outcome.leader == leader != outcome.member_id
    assert outcome.members == ()
    assert world.group.leader == outcome.member_id


def test_replacement_is_persisted_before_the_response() -> None:
    world = GroupWorld()
    stable(world, "i1")
    world.holds_appends = True
    token = world.join(instance="i1")
    assert token not in world.responses
    world.finish_append()
    assert world.responses[token].error is ErrorCode.NONE
    persisted = world.log[-1]
    assert isinstance(persisted, PersistGroup)
    assert [member.member_id for member in persisted.snapshot.members] == [world.responses[token].member_id]
    assert persisted.snapshot.members[0].assignment == b"i1-1"


def test_replacement_with_a_failed_append_is_undone() -> None:
    world = GroupWorld()
    (old,) = stable(world, "i1")
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    before = world.group.describe()
    outcome = world.responses[world.join(instance="i1", supports=protocols("range", topics=("u",)))]
    assert world.group.describe() == before
    assert outcome.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert outcome.member_id == ""
    assert world.heartbeat(old, instance="i1") is ErrorCode.NONE
    world.advance(SESSION_MS)
    assert world.group.state is GroupState.EMPTY


def test_replaced_member_is_fenced_in_every_request() -> None:
    world = GroupWorld()
    (old,) = stable(world, "i1")
    world.join(instance="i1")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(old, instance="i1") is fenced
    assert world.responses[world.sync(old, instance="i1")].error is fenced
    assert world.responses[world.join(old, instance="i1")].error is fenced
    assert world.leave(Leaver(old, "i1")).leavers == (fenced,)
    tp_error = world.responses[world.commit({}, member_id=old, generation=1, instance="i1")]
    assert tp_error == {}


def test_parked_join_of_the_replaced_member_is_fenced() -> None:
    world = GroupWorld()
    first, second = stable(world, "i1", "i2")
    world.join(name="c")
    parked = world.join(first, instance="i1")
    restarted = world.join(instance="i1")
    assert world.responses[parked].error is ErrorCode.FENCED_INSTANCE_ID
    world.join(second, instance="i2")
    assert world.responses[restarted].generation == 2


def test_replacement_while_completing_restarts_the_rebalance() -> None:
    world = GroupWorld()
    a, b = world.join(instance="i1"), world.join(instance="i2")
    world.advance(DELAY_MS * 2)
    parked = world.sync(world.responses[b].member_id)
    token = world.join(instance="i2")
    assert world.responses[parked].error is ErrorCode.FENCED_INSTANCE_ID
    assert world.group.state is GroupState.PREPARING_REBALANCE
    again = world.join(world.responses[a].member_id, instance="i1")
    assert world.responses[token].generation == world.responses[again].generation == 2


def test_replacement_that_changes_the_protocol_choice_starts_a_rebalance() -> None:
    world = GroupWorld()
    both = protocols("range", "sticky")
    token = world.join(instance="i1", supports=both)
    world.advance(DELAY_MS)
    world.sync(world.responses[token].member_id)
    token = world.join(instance="i1", supports=protocols("sticky", "range"))
    assert world.responses[token].generation == 2
    assert world.responses[token].protocol_name == "sticky"


def test_member_id_with_an_unknown_instance_is_refused() -> None:
    world = GroupWorld()
    (a,) = stable(world, "i1")
    assert world.responses[world.join(a, instance="other")].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_is_removed_by_its_instance_id_alone() -> None:
    world = GroupWorld()
    stable(world, "i1")
    assert world.leave(Leaver("", "i1")).leavers == (ErrorCode.NONE,)
    assert world.group.state is GroupState.EMPTY


def test_session_timeout_of_the_old_member_id_has_no_effect() -> None:
    world = GroupWorld()
    stable(world, "i1")
    world.advance(SESSION_MS - 1)
    new = world.responses[world.join(instance="i1")].member_id
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(new, instance="i1") is ErrorCode.NONE
    assert list(world.group.members) == [new]


def test_each_join_gets_one_response_when_a_member_is_replaced_twice() -> None:
    """A second restart arrives while the first replacement is being appended."""
    world = GroupWorld()
    stable(world, "i1")
    world.holds_appends = True
    first = world.join(instance="i1")
    second = world.join(instance="i1")
    assert world.responses[first].error is ErrorCode.FENCED_INSTANCE_ID
    world.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.finish_append()
    assert world.responses[second].error is ErrorCode.NONE
    assert list(world.group.members) == [world.responses[second].member_id]


def test_two_replacements_with_failed_appends_are_both_undone() -> None:
    world = GroupWorld()
    (old,) = stable(world, "i1")
    world.holds_appends = True
    first, second = world.join(instance="i1"), world.join(instance="i1")
    world.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.responses[first].error is ErrorCode.FENCED_INSTANCE_ID
    assert world.responses[second].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert list(world.group.members) == [old]

"""A classic group with members becomes one of the consumer protocol, or stays as it is."""

from __future__ import annotations

import pytest

from kctl.errors import ErrorCode
from kctl.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from kctl.server.coordination.consumer_groups.requests import (
    CONVERTED_BYTES_MAX,
    CONVERTED_MEMBERS_MAX,
    ConsumerGroupSettings,
    HeartbeatOutcome,
    HeartbeatRequest,
)
from kctl.server.coordination.groups.actions import Action, JoinOutcome, PersistNewerGroup, Respond, ScheduleTimer
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.events import JOIN_TIMER, AppendDone, Event, JoinRequest, Now
from kctl.server.coordination.groups.group import Group, Member
from kctl.server.coordination.groups.step import step
from tests.simulation.test_consumer_groups import Topics

SUBSCRIPTION = encode_subscription(ConsumerProtocolSubscription(topics=["orders"]), 1)
BEAT = HeartbeatRequest(
    token="beat", member_id="new", member_epoch=0, rebalance_timeout_ms=1_000, owned={}, topic_names=("orders",)
)


def assignment(*partitions: int) -> bytes:
    topics = [TopicPartitions(topic="orders", partitions=[*partitions])]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=topics))


def classic_group(*assignments: bytes, metadata: bytes = SUBSCRIPTION, policy: str = "bidirectional") -> Group:
    """A stable group of generation 5."""
    group = Group("g", GroupConfig(consumer=ConsumerGroupSettings(migration_policy=policy)))
    group.topics = Topics()
    members = [
        Member(
            member_id=f"m{number}",
            rebalance_timeout_ms=2_000,
            session_timeout_ms=1_000,
            protocols=(("range", metadata),),
            assignment=blob,
        )
        for number, blob in enumerate(assignments)
    ]
    group.resume_generation(5, members, Now(0, 0))
    return group


def play(group: Group, *events: Event) -> list[Action]:
    return [action for event in events for action in step(group, event, Now(1, 1))]


def responses(actions: list[Action]) -> dict[object, object]:
    return {action.token: action.outcome for action in actions if isinstance(action, Respond)}


def last_append(actions: list[Action]) -> PersistNewerGroup:
    return [action for action in actions if isinstance(action, PersistNewerGroup)][-1]


@pytest.mark.parametrize(
    ("group", "why"),
    [
        (classic_group(*[b""] * (CONVERTED_MEMBERS_MAX + 1)), "group size exceeds"),
        (classic_group(b"", metadata=SUBSCRIPTION + bytes(CONVERTED_BYTES_MAX)), "metadata of its members"),
        (classic_group(b"", metadata=b"\0\1\0\0"), "malformed"),
        (classic_group(b"\0"), "malformed"),
        (classic_group(assignment(0), assignment(0)), "two members own the same partition"),
        (classic_group(assignment(0), policy="disabled"), "disabled"),
        (classic_group(assignment(0), policy="downgrade"), "disabled"),
    ],
    ids=["members", "bytes", "subscription", "assignment", "owners", "disabled", "downgrade"],
)
def test_a_group_that_cannot_be_converted_does_not_change(group: Group, why: str) -> None:
    generation, members, state = group.generation, dict(group.members), group.state
    (action,) = play(group, BEAT)
    assert isinstance(action, Respond)
    assert isinstance(action.outcome, HeartbeatOutcome)
    assert action.outcome.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert why in (action.outcome.message or "")
    assert group.newer is None
    assert (group.generation, group.members, group.state) == (generation, members, state)


def test_a_group_is_classic_again_with_its_members_if_the_log_refuses_the_conversion() -> None:
    group = classic_group(assignment(0), assignment(1))
    rejoin = JoinRequest(
        token="join",
        member_id="m0",
        session_timeout_ms=1_000,
        rebalance_timeout_ms=2_000,
        protocol_type="consumer",
        protocols=(("range", SUBSCRIPTION),),
    )
    play(group, rejoin)
    actions = play(group, BEAT)
    parked = responses(actions)["join"]
    assert isinstance(parked, JoinOutcome)
    assert parked.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.consumer is not None
    assert {*group.consumer.members} == {"m0", "m1", "new"}
    actions = play(group, AppendDone(last_append(actions).append_id, ErrorCode.NOT_ENOUGH_REPLICAS, is_written=False))
    refused = responses(actions)["beat"]
    assert isinstance(refused, HeartbeatOutcome)
    assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.newer is None
    assert (group.generation, {*group.members}) == (5, {"m0", "m1"})
    assert any(isinstance(action, ScheduleTimer) and action.key == JOIN_TIMER for action in actions)


def test_a_group_of_the_consumer_protocol_stays_one_if_the_log_refuses_the_conversion_back() -> None:
    group = classic_group(assignment(0), assignment(1))
    done = play(group, BEAT)
    play(group, AppendDone(last_append(done).append_id, ErrorCode.NONE))
    assert group.consumer is not None
    before = list(group.consumer.values())
    leave = HeartbeatRequest(token="leave", member_id="new", member_epoch=-1)
    actions = play(group, leave)
    assert last_append(actions).classic is not None
    assert group.newer is None
    actions = play(group, AppendDone(last_append(actions).append_id, ErrorCode.NOT_ENOUGH_REPLICAS, is_written=False))
    assert group.consumer is not None
    assert list(group.consumer.values()) == before
    assert not group.members
    again = play(group, leave)
    assert last_append(again).classic is not None

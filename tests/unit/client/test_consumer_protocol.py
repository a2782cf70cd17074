"""The state machine of a member of the consumer protocol (KIP-848), event by event: what its heartbeats have."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from kctl.client.consuming.membership.consumer_protocol import HEARTBEAT_MS_MIN, ConsumerMember, step
from kctl.client.consuming.membership.member import (
    Action,
    CommitResultReceived,
    Disconnected,
    Fail,
    GroupHeartbeatResponseReceived,
    HeartbeatDue,
    Left,
    LookUpCoordinator,
    LookUpTopicNames,
    MembershipSettings,
    Phase,
    PollOverdue,
    PollRequested,
    Revoke,
    Revoked,
    SendGroupHeartbeat,
    StartReading,
    StopReading,
    TopicsNamed,
)
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

SETTINGS = MembershipSettings("g", ("t",), rack="r1", protocol="consumer", remote_assignor="range")
ID, OTHER_ID = UUID(int=1), UUID(int=2)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BEAT_MS = 5_000


def request_of(actions: list[Action]) -> ConsumerGroupHeartbeatRequest:
    (sent,) = [action for action in actions if isinstance(action, SendGroupHeartbeat)]
    return sent.request


def respond(
    member: ConsumerMember,
    request: ConsumerGroupHeartbeatRequest,
    *partitions: int,
    epoch: int = 1,
    topic_id: UUID = ID,
    is_changed: bool = True,
    code: ErrorCode = ErrorCode.NONE,
    now_ms: int = 0,
) -> list[Action]:
    assignment = Assignment(topic_partitions=[TopicPartitions(topic_id=topic_id, partitions=list(partitions))])
    response = ConsumerGroupHeartbeatResponse(
        error_code=code,
        member_epoch=epoch,
        heartbeat_interval_ms=BEAT_MS,
        assignment=assignment if is_changed else None,
    )
    return step(member, GroupHeartbeatResponseReceived(response, request), now_ms)


def beat(member: ConsumerMember, now_ms: int) -> ConsumerGroupHeartbeatRequest:
    return request_of(step(member, HeartbeatDue(), now_ms))


def reading(settings: MembershipSettings = SETTINGS) -> ConsumerMember:
    """A member that owns both partitions since 0 ms and has reported it."""
    member = ConsumerMember(settings, "me")
    assert respond(member, request_of(step(member, PollRequested(), 0)), 0, 1) == [
        StartReading(()),
        LookUpTopicNames((ID,)),
    ]
    assert step(member, TopicsNamed({ID: "t"}), 0) == [StartReading((T0, T1))]
    report = beat(member, 1)
    assert report.topic_partitions == [TopicPartitions(topic_id=ID, partitions=[0, 1])]
    assert respond(member, report, is_changed=False) == []
    return member


def test_a_heartbeat_has_everything_at_first_and_after_errors_and_else_what_has_changed() -> None:
    member = ConsumerMember(SETTINGS, "me")
    join = request_of(step(member, PollRequested(), 0))
    assert (join.member_id, join.member_epoch, join.topic_partitions) == ("me", 0, [])
    assert (join.subscribed_topic_names, join.server_assignor, join.rack_id) == (["t"], "range", "r1")
    assert join.rebalance_timeout_ms == SETTINGS.rebalance_timeout_ms
    member = reading()
    assert step(member, HeartbeatDue(), BEAT_MS) == []
    delta = beat(member, BEAT_MS + 1)
    unchanged = (delta.subscribed_topic_names, delta.topic_partitions, delta.server_assignor, delta.rack_id)
    assert (delta.member_epoch, delta.rebalance_timeout_ms, unchanged) == (1, -1, (None, None, None, None))
    assert step(member, HeartbeatDue(), 9 * BEAT_MS) == [], "one heartbeat at a time"
    assert step(member, Disconnected(Phase.STABLE), BEAT_MS + 2) == [LookUpCoordinator()]
    assert member.owned == (T0, T1), "it reads on"
    full = beat(member, BEAT_MS + 200)
    assert (full.subscribed_topic_names, full.rebalance_timeout_ms) == (["t"], SETTINGS.rebalance_timeout_ms)
    assert full.topic_partitions == [TopicPartitions(topic_id=ID, partitions=[0, 1])]
    hurried = ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=1, heartbeat_interval_ms=0)
    step(member, GroupHeartbeatResponseReceived(hurried, full), 0)
    assert member.heartbeat_interval_ms == HEARTBEAT_MS_MIN


def test_partitions_are_reported_as_revoked_after_the_application_has_revoked_them() -> None:
    member = reading()
    assert respond(member, beat(member, BEAT_MS + 1), 0, epoch=1) == [Revoke((T1,))]
    assert beat(member, 3 * BEAT_MS).topic_partitions is None, "heartbeats go on meanwhile"
    member.is_beating = False
    assert (member.owned, member.revoking, member.may_commit) == ((T0, T1), (T1,), True)
    report = request_of(step(member, Revoked(), 3 * BEAT_MS))
    assert report.topic_partitions == [TopicPartitions(topic_id=ID, partitions=[0])]
    assert respond(member, report, epoch=2, is_changed=False) == []
    assert (member.owned, member.generation, member.phase) == ((T0,), 2, Phase.STABLE)


def test_a_topic_that_was_created_again_is_not_the_one_that_is_read() -> None:
    member = reading()
    actions = respond(member, beat(member, BEAT_MS + 1), 0, topic_id=OTHER_ID)
    assert actions == [Revoke((T0, T1)), LookUpTopicNames((OTHER_ID,))]
    step(member, TopicsNamed({OTHER_ID: "t"}), 0)
    report = request_of(step(member, Revoked(), 0))
    assert report.topic_partitions == []
    assert respond(member, report, is_changed=False) == [StartReading((T0,))]
    assert member.owned_ids == {T0: OTHER_ID}


def test_a_member_that_was_removed_joins_again_with_its_id() -> None:
    for code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
        member = reading()
        assert respond(member, beat(member, BEAT_MS + 1), code=code) == [StopReading()]
        assert (member.owned, member.phase) == ((), Phase.OUTSIDE)
        again = request_of(step(member, PollRequested(), 0))
        assert (again.member_id, again.member_epoch, again.topic_partitions) == ("me", 0, [])
        member = reading()
        assert step(member, CommitResultReceived(code, 1), 0) == [StopReading()]
        assert step(reading(), CommitResultReceived(code, 7), 0) == [], "of another epoch"
    member = reading()
    assert step(member, CommitResultReceived(ErrorCode.STALE_MEMBER_EPOCH, 1), 0) != [], "the next epoch is asked for"


def test_members_leave_with_the_epoch_of_their_kind() -> None:
    for instance, epoch in ((None, -1), ("i1", -2)):
        for event in (Left(), PollOverdue()):
            member = reading(replace(SETTINGS, group_instance_id=instance))
            request = request_of(step(member, event, 0))
            assert (request.member_epoch, request.instance_id, member.owned) == (epoch, instance, ())
            assert respond(member, request) == []
    assert step(ConsumerMember(SETTINGS, "me"), Left(), 0) == []
    member = ConsumerMember(SETTINGS, "me")
    step(member, PollRequested(), 0)
    assert request_of(step(member, Left(), 0)).member_epoch == -1, "the outcome of the join is unknown"


def test_errors_that_repetition_does_not_help_end_the_membership() -> None:
    for code, words in (
        (ErrorCode.UNRELEASED_INSTANCE_ID, "has not left"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, "'range' of group_remote_assignor"),
        (ErrorCode.UNSUPPORTED_VERSION, "group_protocol='classic'"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "full"),
        (ErrorCode.INVALID_REQUEST, "inconsistent"),
    ):
        member = ConsumerMember(SETTINGS, "me")
        (failed,) = respond(member, request_of(step(member, PollRequested(), 0)), code=code)
        assert isinstance(failed, Fail)
        assert (failed.error.code, words in str(failed.error), member.phase) == (code, True, Phase.OUTSIDE)

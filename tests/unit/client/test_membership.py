"""The group member's state machine, event by event: partitions kept, revoked, and the next request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kctl.client.consuming.membership.member import (
    Assign,
    Assigned,
    CommitResultReceived,
    Disconnected,
    Fail,
    HeartbeatDue,
    HeartbeatResponseReceived,
    Joined,
    Left,
    LookUpCoordinator,
    Member,
    MembershipSettings,
    PartitionsChanged,
    Phase,
    PollOverdue,
    PollRequested,
    Revoke,
    Revoked,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    StartReading,
    StopReading,
    Synced,
)
from kctl.client.consuming.membership.step import BEAT_AGAIN_MS, encode_partitions, step
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.heartbeat import HeartbeatResponse
from kctl.protocol.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from kctl.protocol.apis.sync_group import SyncGroupResponse
from kctl.protocol.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_subscription,
    encode_subscription,
)

SETTINGS = MembershipSettings("g", ("t",))
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
T2 = TopicPartition("t", 2)
COOPERATIVE = replace(SETTINGS, assignors=("cooperative-sticky",))
SOON_MS = 10
BEAT_MS = SETTINGS.heartbeat_interval_ms
SESSION_MS = SETTINGS.session_timeout_ms


def joined(
    leader: str = "me",
    *,
    generation: int = 1,
    assignor: str = "range",
    members: list[JoinGroupResponseMember] | None = None,
) -> Joined:
    metadata = encode_subscription(ConsumerProtocolSubscription(topics=["t"]))
    if members is None:
        members = [JoinGroupResponseMember(member_id="me", metadata=metadata)] if leader == "me" else []
    return Joined(
        JoinGroupResponse(
            error_code=0,
            generation_id=generation,
            protocol_name=assignor,
            leader=leader,
            member_id="me",
            members=members,
        )
    )


def refused(code: ErrorCode, member_id: str = "") -> Joined:
    return Joined(JoinGroupResponse(error_code=code, protocol_name=None, leader="", member_id=member_id, members=[]))


def reported(code: ErrorCode, *, generation: int = 1) -> HeartbeatResponseReceived:
    return HeartbeatResponseReceived(HeartbeatResponse(error_code=code), generation)


def reading(settings: MembershipSettings = SETTINGS) -> Member:
    """The leader of generation 1, which has read the only partition since 0 ms."""
    member = Member(settings)
    step(member, PollRequested(), 0)
    step(member, joined(), 0)
    (sync,) = step(member, Assigned({"me": [T0]}), 0)
    assert isinstance(sync, SendSync)
    (assignment,) = sync.request.assignments
    taken = step(member, Synced(SyncGroupResponse(error_code=0, assignment=assignment.assignment)), 0)
    assert taken == [StartReading((T0,))]
    return member


def synced(*partitions: TopicPartition) -> Synced:
    return Synced(SyncGroupResponse(error_code=0, assignment=encode_partitions(partitions)))


def cooperating(*partitions: TopicPartition) -> Member:
    """A member that was assigned these partitions in generation 1, by another leader."""
    member = Member(COOPERATIVE)
    step(member, PollRequested(), 0)
    step(member, joined("you", assignor="cooperative-sticky"), 0)
    assert step(member, synced(*partitions), 0) == [StartReading(partitions)]
    return member


def subscription(join: object, assignor: str) -> ConsumerProtocolSubscription:
    """The subscription in the JoinGroup request for this assignor."""
    assert isinstance(join, SendJoin)
    (metadata,) = [protocol.metadata for protocol in join.request.protocols if protocol.name == assignor]
    return decode_subscription(metadata)


def reported_partitions(owned: list[TopicPartitions]) -> list[TopicPartition]:
    return [TopicPartition(topic.topic, number) for topic in owned for number in topic.partitions]


def test_new_member_rejoins_with_its_assigned_id() -> None:
    member = Member(SETTINGS)
    step(member, PollRequested(), 0)
    (again,) = step(member, refused(ErrorCode.MEMBER_ID_REQUIRED, "me-1"), 0)
    assert isinstance(again, SendJoin)
    assert again.request.member_id == "me-1"


def test_only_the_leader_assigns() -> None:
    member = Member(SETTINGS)
    step(member, PollRequested(), 0)
    (action,) = step(member, joined(), 0)
    assert isinstance(action, Assign)
    assert [member.member_id for member in action.members] == ["me"]
    other = Member(SETTINGS)
    step(other, PollRequested(), 0)
    (sync,) = step(other, joined(leader="you"), 0)
    assert isinstance(sync, SendSync)
    assert sync.request.assignments == []


def test_heartbeats_are_sent_at_their_interval() -> None:
    member = reading()
    assert step(member, HeartbeatDue(), BEAT_MS - 1) == []
    (beat,) = step(member, HeartbeatDue(), BEAT_MS)
    assert isinstance(beat, SendHeartbeat)
    assert step(member, HeartbeatDue(), BEAT_MS + SOON_MS) == []


def test_eager_rebalance_revokes_all_partitions_before_rejoining() -> None:
    member = reading()
    assert step(member, reported(ErrorCode.REBALANCE_IN_PROGRESS), SOON_MS) == [Revoke((T0,))]
    assert step(member, reported(ErrorCode.REBALANCE_IN_PROGRESS), SOON_MS) == []
    (beat,) = step(member, HeartbeatDue(), BEAT_MS)
    assert isinstance(beat, SendHeartbeat), "the session goes on while it commits"
    (join,) = step(member, Revoked(), BEAT_MS)
    assert isinstance(join, SendJoin)
    assert join.request.member_id == "me"


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_coordinator_move_revokes_no_partition(code: ErrorCode) -> None:
    member = reading()
    assert step(member, reported(code), 1_000) == [LookUpCoordinator()]
    assert member.phase is Phase.STABLE
    assert step(member, HeartbeatDue(), 1_000 + BEAT_AGAIN_MS - 1) == []
    assert len(step(member, HeartbeatDue(), 1_000 + BEAT_AGAIN_MS)) == 1


def test_lost_connection_revokes_no_partition_before_the_session_timeout() -> None:
    member = reading()
    assert step(member, Disconnected(Phase.STABLE), 1_000) == [LookUpCoordinator()]
    assert StopReading() not in step(member, HeartbeatDue(), SESSION_MS - 1)
    assert step(member, HeartbeatDue(), SESSION_MS) == [StopReading()]
    (join,) = step(member, PollRequested(), SESSION_MS)
    assert isinstance(join, SendJoin)


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")]
)
def test_removed_member_commits_nothing_and_rejoins(code: ErrorCode, member_id: str) -> None:
    for event in (reported(code), CommitResultReceived(code, 1)):
        member = reading()
        assert step(member, event, SOON_MS) == [StopReading()]
        assert not member.is_in_generation
        (join,) = step(member, PollRequested(), SOON_MS)
        assert isinstance(join, SendJoin)
        assert join.request.member_id == member_id


def test_response_of_an_earlier_generation_is_ignored() -> None:
    member = reading()
    step(member, PartitionsChanged(), 0)
    step(member, Revoked(), 0)
    step(member, joined(leader="you", generation=2), 0)
    step(member, Synced(SyncGroupResponse(error_code=0, assignment=b"")), 0)
    for code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID):
        assert step(member, reported(code, generation=1), SOON_MS) == []
    assert member.phase is Phase.STABLE


def test_response_of_an_abandoned_join_is_ignored() -> None:
    member = Member(SETTINGS)
    step(member, PollRequested(), 0)
    assert step(member, Disconnected(Phase.JOINING), 0) == [LookUpCoordinator()]
    assert step(member, joined(), 0) == []
    assert member.phase is Phase.OUTSIDE


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.FENCED_INSTANCE_ID, "another member uses the group.instance.id 'mine'"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "the group is full"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "range, cooperative-sticky"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "session.timeout.ms=10000"),
    ],
)
def test_non_retriable_error_fails_the_member_with_a_message(code: ErrorCode, words: str) -> None:
    member = Member(replace(SETTINGS, group_instance_id="mine"))
    step(member, PollRequested(), 0)
    (failed,) = step(member, refused(code), 0)
    assert isinstance(failed, Fail)
    assert failed.error.code is code
    assert words in str(failed.error)


def test_only_dynamic_members_send_leave_group() -> None:
    assert step(reading(), Left(), 0) == [SendLeave("me")]
    assert step(reading(replace(SETTINGS, group_instance_id="mine")), Left(), 0) == []
    assert step(Member(SETTINGS), Left(), 0) == []


def test_member_that_does_not_poll_leaves_and_joins_as_a_new_one() -> None:
    member = reading()
    assert step(member, PollOverdue(), SOON_MS) == [StopReading(), SendLeave("me")]
    assert not member.owned
    assert step(member, PollOverdue(), SOON_MS) == []
    (join,) = step(member, PollRequested(), SOON_MS)
    assert isinstance(join, SendJoin)
    assert join.request.member_id == ""
    assert step(reading(replace(SETTINGS, group_instance_id="mine")), PollOverdue(), SOON_MS) == [StopReading()]


def test_member_missing_in_the_assignment_reads_nothing() -> None:
    member = Member(SETTINGS)
    step(member, PollRequested(), 0)
    step(member, joined(leader="you"), 0)
    assert step(member, Synced(SyncGroupResponse(error_code=0, assignment=b"")), 0) == [StartReading(())]


def test_cooperative_member_keeps_and_claims_its_partitions() -> None:
    member = cooperating(T0, T1)
    assert step(member, reported(ErrorCode.REBALANCE_IN_PROGRESS), SOON_MS) == [Revoke(())]
    (join,) = step(member, Revoked(), SOON_MS)
    claim = subscription(join, "cooperative-sticky")
    assert reported_partitions(claim.owned_partitions) == [T0, T1]
    assert (claim.generation_id, claim.user_data) == (1, b"\0\0\0\1")
    assert member.owned == (T0, T1)
    assert member.may_commit
    assert not member.is_in_generation


def test_cooperative_member_revokes_lost_partitions_and_rejoins() -> None:
    member = cooperating(T0, T1)
    step(member, reported(ErrorCode.REBALANCE_IN_PROGRESS), SOON_MS)
    step(member, Revoked(), SOON_MS)
    step(member, joined("you", generation=2, assignor="cooperative-sticky"), SOON_MS)
    assert step(member, synced(T1, T2), SOON_MS) == [StartReading((T2,)), Revoke((T0,))]
    assert member.is_in_generation, "it commits the partitions that it gives up"
    assert step(member, reported(ErrorCode.REBALANCE_IN_PROGRESS, generation=2), SOON_MS) == []
    (join,) = step(member, Revoked(), SOON_MS)
    claim = subscription(join, "cooperative-sticky")
    assert (reported_partitions(claim.owned_partitions), claim.generation_id) == ([T1, T2], 2)


def test_cooperative_member_without_revocations_keeps_reading() -> None:
    member = cooperating(T0)
    step(member, reported(ErrorCode.REBALANCE_IN_PROGRESS), SOON_MS)
    step(member, Revoked(), SOON_MS)
    step(member, joined("you", generation=2, assignor="cooperative-sticky"), SOON_MS)
    assert step(member, synced(T0), SOON_MS) == [StartReading(())]
    assert member.phase is Phase.STABLE


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_removed_cooperative_member_claims_nothing(code: ErrorCode) -> None:
    for phase in (Phase.STABLE, Phase.SYNCING):
        member = cooperating(T0)
        if phase is Phase.STABLE:
            assert step(member, reported(code), SOON_MS) == [StopReading()]
            (join,) = step(member, PollRequested(), SOON_MS)
        else:
            step(member, reported(ErrorCode.REBALANCE_IN_PROGRESS), SOON_MS)
            step(member, Revoked(), SOON_MS)
            step(member, joined("you", generation=2, assignor="cooperative-sticky"), SOON_MS)
            refusal = Synced(SyncGroupResponse(error_code=code, assignment=b""))
            abandon, join = step(member, refusal, SOON_MS)
            assert abandon == StopReading()
        assert subscription(join, "cooperative-sticky").owned_partitions == []
        assert not member.may_commit


def test_cooperative_member_claims_the_generation_of_its_last_assignment() -> None:
    """It joined the next generation but has no assignment in it."""
    member = cooperating(T0)
    step(member, reported(ErrorCode.REBALANCE_IN_PROGRESS), SOON_MS)
    step(member, Revoked(), SOON_MS)
    step(member, joined("you", generation=2, assignor="cooperative-sticky"), SOON_MS)
    refusal = Synced(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b""))
    (join,) = step(member, refusal, SOON_MS)
    claim = subscription(join, "cooperative-sticky")
    assert (reported_partitions(claim.owned_partitions), claim.generation_id) == ([T0], 1)


def test_cooperative_member_without_a_coordinator_reads_until_its_session_timeout() -> None:
    member = cooperating(T0)
    step(member, reported(ErrorCode.REBALANCE_IN_PROGRESS), SOON_MS)
    step(member, Revoked(), SOON_MS)
    assert step(member, Disconnected(Phase.JOINING), SOON_MS) == [LookUpCoordinator()]
    assert step(member, HeartbeatDue(), SESSION_MS - 1) == []
    assert member.owned == (T0,)
    assert step(member, HeartbeatDue(), SESSION_MS) == [StopReading()]
    assert list(member.owned) == []


def test_member_that_supports_an_eager_assignor_always_revokes_everything() -> None:
    member = Member(replace(SETTINGS, assignors=("range", "cooperative-sticky")))
    step(member, PollRequested(), 0)
    step(member, joined("you", assignor="cooperative-sticky"), 0)
    step(member, synced(T0), 0)
    assert step(member, reported(ErrorCode.REBALANCE_IN_PROGRESS), SOON_MS) == [Revoke((T0,))]
    (join,) = step(member, Revoked(), SOON_MS)
    assert subscription(join, "cooperative-sticky").owned_partitions == []


def test_sticky_member_claims_revoked_partitions_in_its_user_data() -> None:
    member = Member(replace(SETTINGS, assignors=("sticky",)))
    step(member, PollRequested(), 0)
    step(member, joined("you", generation=7, assignor="sticky"), 0)
    step(member, synced(T0, T2), 0)
    assert step(member, reported(ErrorCode.REBALANCE_IN_PROGRESS, generation=7), SOON_MS) == [Revoke((T0, T2))]
    (join,) = step(member, Revoked(), SOON_MS)
    claim = subscription(join, "sticky")
    assert claim.owned_partitions == []
    assert claim.user_data == bytes.fromhex("00000001 0001 74 00000002 00000000 00000002 00000007")


def test_leader_that_withheld_partitions_without_effect_rebalances_again() -> None:
    """The static member that had to revoke was replaced by one without partitions."""
    member = Member(COOPERATIVE)
    step(member, PollRequested(), 0)
    claim = ConsumerProtocolSubscription(
        topics=["t"], owned_partitions=[TopicPartitions(topic="t", partitions=[0, 1])], generation_id=1
    )
    members = [JoinGroupResponseMember(member_id=name, metadata=encode_subscription(claim)) for name in ("me", "you")]
    step(member, joined(generation=2, assignor="cooperative-sticky", members=members), 0)
    step(member, Assigned({"me": [T0], "you": []}), 0)
    step(member, synced(T0), 0)
    for now_ms in range(BEAT_MS, SESSION_MS, BEAT_MS):
        step(member, HeartbeatDue(), now_ms)
        step(member, reported(ErrorCode.NONE, generation=2), now_ms)
    assert member.phase is Phase.STABLE
    assert step(member, HeartbeatDue(), SESSION_MS) == [Revoke(())]

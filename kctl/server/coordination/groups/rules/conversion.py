"""Conversion of groups with members between the classic and the consumer protocol (KIP-848).

To the consumer protocol: the generation becomes the epoch, and each member owns what it was assigned last.  Members of
the classic protocol stay members, see classic_members.  Parked requests get REBALANCE_IN_PROGRESS.

To the classic protocol: when the last member of the consumer protocol is gone, the epoch becomes the generation, the
target assignment the assignment of each member, and a rebalance begins.

One batch has the records of a conversion.  If the log refuses it, the group is as before, but for parked requests.

Pure.  Kafka: GroupMetadataManager.convertToConsumerGroup, convertToClassicGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias
from uuid import UUID

from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.protocol.codec import version_of
from kctl.protocol.consumer_protocol import (
    SUBSCRIPTION_VERSION,
    ConsumerProtocolAssignment,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from kctl.server.coordination.consumer_groups.group import ConsumerGroup
from kctl.server.coordination.consumer_groups.requests import CONVERTED_BYTES_MAX, CONVERTED_MEMBERS_MAX
from kctl.server.coordination.consumer_groups.state import (
    ClassicMember,
    MemberAssignment,
    MemberMetadata,
    Partitions,
    RecordType,
)
from kctl.server.coordination.groups.actions import (
    Action,
    CancelTimer,
    GroupSnapshot,
    GroupState,
    JoinOutcome,
    ScheduleTimer,
    SyncOutcome,
)
from kctl.server.coordination.groups.events import JOIN_TIMER, SYNC_TIMER, Now
from kctl.server.coordination.groups.group import Group, Member
from kctl.server.coordination.groups.rules.rebalance import (
    expect_heartbeat,
    forget_session,
    respond_to_join,
    respond_to_sync,
    session_timer,
    start_rebalance_if_possible,
)
from kctl.server.coordination.newer_groups import (
    FIRST_EPOCH,
    BecomesClassic,
    Changes,
    ClusterTopics,
    GroupEpoch,
    TargetEpoch,
)

Revert: TypeAlias = Callable[[Now, list[Action]], None]
"""Makes the group again what it was."""


# To the consumer protocol.


def check_upgrade(group: Group) -> None:
    """Raise ApiError(GROUP_ID_NOT_FOUND) unless the classic group may be converted with its members."""
    settings = group.config.consumer
    why = None
    if not settings.may_upgrade:
        why = "online upgrade is disabled"
    elif not group.is_consumer_group:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > min(settings.max_size, CONVERTED_MEMBERS_MAX):
        why = "the group size exceeds the consumer group maximum size"
    elif group.metadata_bytes > CONVERTED_BYTES_MAX:
        why = f"the metadata of its members has more than {CONVERTED_BYTES_MAX} bytes"
    if why is not None:
        raise _not_upgraded(group, why)


def _not_upgraded(group: Group, why: str) -> ApiError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {why}."
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def consumer_group_of(group: Group) -> Changes:
    """Return what makes a group of the consumer protocol with the members of the classic group, in Kafka's order.

    The latter does not change.  Raises ApiError(GROUP_ID_NOT_FOUND) if a subscription or an assignment is malformed, or
    has data of an assignor that would be lost.
    """
    consumer = ConsumerGroup()
    changes = Changes(consumer)
    epoch = max(group.generation, FIRST_EPOCH)
    owned: dict[str, Partitions] = {}
    taken: set[tuple[UUID, int]] = set()
    for member in group.members.values():
        try:
            changes.put(RecordType.MEMBER, member.member_id, _metadata_of(group, member))
            owned[member.member_id] = _owned_by(group, member)
        except MalformedRequest:
            raise _not_upgraded(group, "the embedded consumer protocol is malformed") from None
        for partition in _each(owned[member.member_id]):
            if partition in taken:
                raise _not_upgraded(group, "two members own the same partition")
            taken.add(partition)
    metadata_hash = consumer.topic_hashes.of_topics(consumer.all_subscribed_names(), group.topics)
    changes.put(RecordType.GROUP, "", GroupEpoch(epoch, metadata_hash))
    for member_id, partitions in owned.items():
        changes.put(RecordType.MEMBER_TARGET, member_id, partitions)
    changes.put(RecordType.TARGET, "", TargetEpoch(epoch))
    for member_id, partitions in owned.items():
        assigned = {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in partitions.items()}
        value = MemberAssignment(epoch=epoch, previous_epoch=epoch, assigned=assigned, revoking={})
        changes.put(RecordType.MEMBER_ASSIGNMENT, member_id, value)
    return changes


def _each(partitions: Partitions) -> Iterator[tuple[UUID, int]]:
    return ((topic_id, number) for topic_id, numbers in partitions.items() for number in numbers)


def _metadata_of(group: Group, member: Member) -> MemberMetadata:
    # Before the first generation no protocol is elected.
    subscription = decode_subscription(member.metadata(group.protocol_name or member.protocols[0][0]))
    return MemberMetadata(
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
    )


def _owned_by(group: Group, member: Member) -> Partitions:
    if not member.assignment:
        return {}
    assignment = decode_assignment(member.assignment)
    if assignment.user_data:
        raise _not_upgraded(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade",
        )
    return partitions_by_id(assignment.assigned_partitions, group.topics)


def partitions_by_id(partitions: list[TopicPartitions], topics: ClusterTopics) -> Partitions:
    """Return the partitions of those topics that exist, by topic id."""
    by_id: dict[UUID, frozenset[int]] = {}
    for topic in partitions:
        if topic.partitions and topics.partition_count(topic.topic):
            topic_id = topics.topic_id(topic.topic)
            by_id[topic_id] = by_id.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return by_id


def set_classic_aside(group: Group, now: Now, out: list[Action]) -> Revert:
    """Take the members of the classic protocol out of the group, which is of another type now."""
    had_members = bool(group.members or group.pending_members)
    in_progress = ErrorCode.REBALANCE_IN_PROGRESS
    for member in group.members.values():
        respond_to_join(group, member, JoinOutcome(error=in_progress, member_id=member.member_id), out)
        respond_to_sync(member, SyncOutcome(in_progress), out)
        forget_session(member, out)
    out += [CancelTimer(session_timer(member_id)) for member_id in sorted(group.pending_members)]
    if had_members:
        out += [CancelTimer(JOIN_TIMER), CancelTimer(SYNC_TIMER)]
    put_back = group.set_classic_aside()

    def revert(now: Now, out: list[Action]) -> None:
        put_back()
        for member_id in list(group.pending_members):
            group.remove_pending(member_id)
        for member in group.members.values():
            expect_heartbeat(member, member.session_timeout_ms, now, out)
        if not group.members or group.state is GroupState.STABLE:
            return
        # All have to join again: their parked requests were completed.
        if group.state is GroupState.PREPARING_REBALANCE:
            group.initial_delay = None
            out.append(ScheduleTimer(JOIN_TIMER, group.rebalance_timeout_ms))
        else:
            start_rebalance_if_possible(group, now, out)

    return revert


# To the classic protocol.


def become_classic(
    group: Group, end: BecomesClassic, changes: Changes, leaving: tuple[str, ...], now: Now, out: list[Action]
) -> tuple[GroupSnapshot, Revert]:
    """Let the members of a consumer group, but for those that are leaving, be a classic group."""
    consumer = group.consumer
    assert consumer is not None
    members, assignments = [], {}
    for member_id, metadata in consumer.members.items():
        if member_id not in leaving and metadata.classic is not None:
            members.append(_classic_member(member_id, metadata, metadata.classic))
            version = version_of(metadata.classic.protocols[0][1])
            assignments[member_id] = assignment_bytes(consumer.target_of(member_id), version, group.topics)
    for key, _ in consumer.tombstones():
        changes.put(key.type, key.name, None)
    group.newer = None
    group.resume_generation(end.epoch, members, now)
    for member in members:
        member.assignment = assignments[member.member_id]
        expect_heartbeat(member, member.session_timeout_ms, now, out)
    snapshot = group.snapshot(tuple(group.member_snapshots(assignments)))
    if end.is_rebalanced:
        start_rebalance_if_possible(group, now, out)

    def revert(now: Now, out: list[Action]) -> None:
        """Forget the classic group; the changes of the other one were taken back."""
        for member in group.members.values():
            forget_session(member, out)
        out.append(CancelTimer(JOIN_TIMER))
        group.set_classic_aside()
        group.newer = consumer

    return snapshot, revert


def _classic_member(member_id: str, metadata: MemberMetadata, classic: ClassicMember) -> Member:
    return Member(
        member_id=member_id,
        group_instance_id=metadata.instance_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=classic.protocols,
    )


def assignment_bytes(partitions: Mapping[UUID, Iterable[int]], version: int, topics: ClusterTopics) -> bytes:
    """Return an assignment as members of the classic protocol read it, in the version of their subscription."""
    named = ((topics.topic_name(topic_id), numbers) for topic_id, numbers in partitions.items())
    assigned = [TopicPartitions(topic=name, partitions=sorted(numbers)) for name, numbers in named if name is not None]
    return encode_assignment(
        ConsumerProtocolAssignment(assigned_partitions=assigned), min(version, SUBSCRIPTION_VERSION)
    )

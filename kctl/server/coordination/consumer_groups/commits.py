"""Who may commit and read offsets of a group of the consumer protocol.

A member commits with its epoch.  An older epoch is accepted for partitions that it has had since then: the response
with the new epoch may be under way (KIP-1251).  Pure.  Kafka: ConsumerGroup.validateOffsetCommit, validateOffsetFetch.
"""

from __future__ import annotations

from collections.abc import Iterable

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.server.coordination.consumer_groups.group import ConsumerGroup
from kctl.server.coordination.consumer_groups.state import MemberAssignment
from kctl.server.coordination.newer_groups import NO_EPOCH, ClusterTopics


def commit_error(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    partitions: Iterable[TopicPartition],
    topics: ClusterTopics,
    *,
    knows_epochs: bool,
) -> ErrorCode:
    """Return the error of an OffsetCommit; `knows_epochs` is False before version 9."""
    if epoch < 0 and group.is_empty:
        # A tool, or a client that assigns partitions manually.
        return ErrorCode.NONE
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not knows_epochs:
        return ErrorCode.UNSUPPORTED_VERSION
    return _epoch_error(group.assignment(member_id), epoch, partitions, topics)


def transactional_commit_error(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    partitions: Iterable[TopicPartition],
    topics: ClusterTopics,
) -> ErrorCode:
    """Return the error of a TxnOffsetCommit; producers older than KIP-447 send no member."""
    if (epoch < 0 and group.is_empty) or (epoch == NO_EPOCH and not member_id and instance_id is None):
        return ErrorCode.NONE
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = _epoch_error(group.assignment(member_id), epoch, partitions, topics)
    # Producers do not know the newer code.
    return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error


def fetch_error(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Return the error of an OffsetFetch; without a member, anyone may read."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if group.assignment(member_id).epoch == epoch else ErrorCode.STALE_MEMBER_EPOCH


def _epoch_error(
    assignment: MemberAssignment, epoch: int, partitions: Iterable[TopicPartition], topics: ClusterTopics
) -> ErrorCode:
    if epoch == assignment.epoch:
        return ErrorCode.NONE
    if epoch > assignment.epoch:
        return ErrorCode.STALE_MEMBER_EPOCH
    for name, number in partitions:
        topic_id = topics.topic_id(name)
        since = assignment.assigned.get(topic_id, {}).get(number)
        if since is None:
            since = assignment.revoking.get(topic_id, {}).get(number)
        if since is None or epoch < since:
            return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.NONE

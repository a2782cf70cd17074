"""Who may commit and read offsets of a group whose members have epochs: consumer and streams groups.

A member commits with its epoch, one of the classic protocol with the same number as its generation.  An older epoch is
accepted for partitions that it has had since then: the response with the new epoch may be under way (KIP-1251).  Pure.
Kafka: ConsumerGroup and StreamsGroup, validateOffsetCommit and validateOffsetFetch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.server.coordination.consumer_groups.group import ConsumerGroup
from kctl.server.coordination.newer_groups import NO_EPOCH, ClusterTopics
from kctl.server.coordination.streams_groups.group import StreamsGroup

ReconciledGroup: TypeAlias = ConsumerGroup | StreamsGroup


def commit_error(
    group: ReconciledGroup,
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
    if not knows_epochs and not _is_classic(group, member_id):
        return ErrorCode.UNSUPPORTED_VERSION
    return _epoch_error(group, member_id, epoch, partitions, topics)


def transactional_commit_error(
    group: ReconciledGroup,
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
    error = _epoch_error(group, member_id, epoch, partitions, topics)
    # Producers do not know the newer code.
    return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error


def fetch_error(group: ReconciledGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Return the error of an OffsetFetch; without a member, anyone may read."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    if member_id is None or member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if group.assignment(member_id).epoch == epoch else _stale(group, member_id)


def _is_classic(group: ReconciledGroup, member_id: str) -> bool:
    return isinstance(group, ConsumerGroup) and group.is_classic(member_id)


def _stale(group: ReconciledGroup, member_id: str) -> ErrorCode:
    """Return the error for an epoch that is not the member's; its clients of the classic protocol know generations."""
    return ErrorCode.ILLEGAL_GENERATION if _is_classic(group, member_id) else ErrorCode.STALE_MEMBER_EPOCH


def _epoch_error(
    group: ReconciledGroup,
    member_id: str,
    epoch: int,
    partitions: Iterable[TopicPartition],
    topics: ClusterTopics,
) -> ErrorCode:
    current = group.assignment(member_id).epoch
    if epoch == current:
        return ErrorCode.NONE
    if epoch > current:
        return _stale(group, member_id)
    for partition in partitions:
        since = group.assigned_since(member_id, partition, topics)
        if since is None or epoch < since:
            return _stale(group, member_id)
    return ErrorCode.NONE

"""Fetches and commits the offsets of a group, for its members."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kctl.client.connections.transport import Connection
from kctl.client.consuming.membership.assignors import NO_GENERATION
from kctl.client.consuming.positions import NO_EPOCH, Position
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kctl.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
)
from kctl.system.reference_cycles import copy_of

STABLE_VERSION_MIN = 7
SEVERAL_GROUPS_VERSION_MIN = 8
GROUPS_PER_REQUEST = 100


class CommittedOffset(NamedTuple):
    """The commit of a group for one partition."""

    offset: int
    leader_epoch: int = NO_EPOCH
    """Of the last record before the offset, as the committing client says; NO_EPOCH if it does not."""
    metadata: str = ""

    @property
    def position(self) -> Position:
        """The position to check and to read from."""
        return Position(self.offset, self.leader_epoch)


def commit_of(value: int | Position | CommittedOffset) -> CommittedOffset:
    """Return the commit of an offset or position.

    The epoch of a leader that may have no records is left out: it would not say what was read.
    """
    if isinstance(value, CommittedOffset):
        return value
    if isinstance(value, Position):
        return CommittedOffset(value.offset, NO_EPOCH if value.is_of_leader else value.leader_epoch)
    return CommittedOffset(value)


def groups_per_request(connection: Connection) -> int:
    """Return how many groups one OffsetFetch request may contain: several since Kafka 3.0 (KIP-709)."""
    has_several = connection.versions.highest(OffsetFetchRequest) >= SEVERAL_GROUPS_VERSION_MIN
    return GROUPS_PER_REQUEST if has_several else 1


async def fetch_commits(
    connection: Connection,
    groups: Mapping[str, list[OffsetFetchRequestTopic] | None],
    *,
    require_stable: bool = False,
    member_epoch: tuple[str, int] | None = None,
) -> dict[str, list[OffsetFetchResponseTopic] | ApiError]:
    """Return the commits of these partitions, or of all partitions with None; the error of a group, if it has one.

    `member_epoch` is the id and the epoch of a member of the consumer protocol, which the broker checks.  At most
    `groups_per_request` groups.  Partitions have errors of their own.  Groups that the response does not
    contain are absent.
    """
    if groups_per_request(connection) > 1:
        member_id, epoch = member_epoch or (None, NO_GENERATION)
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id=group_id, topics=topics, member_id=member_id, member_epoch=epoch)
                for group_id, topics in groups.items()
            ],
            require_stable=require_stable,
        )
        response = await connection.send(request, OffsetFetchResponse)
        return {group.group_id: _error(group.error_code) or group.topics for group in response.groups}
    ((group_id, topics),) = groups.items()
    request = OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)
    response = await connection.send(request, OffsetFetchResponse)
    return {group_id: _error(response.error_code) or response.topics}


async def committed_offsets(
    connection: Connection,
    group_id: str,
    partitions: Collection[TopicPartition],
    *,
    may_be_unstable: bool = False,
    member_epoch: tuple[str, int] | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """Return the commits of the partitions that have one.

    `member_epoch` as in `fetch_commits`.  Raises ApiError with the coordinator's error, among others
    UNSTABLE_OFFSET_COMMIT while a transaction with offset commits is open (KIP-447; brokers before 2.5 return the
    offset committed before it, as with `may_be_unstable`).
    """
    topics = [
        OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
        for topic, numbers in _by_topic(partitions).items()
    ]
    is_stable = not may_be_unstable and connection.versions.highest(OffsetFetchRequest) >= STABLE_VERSION_MIN
    fetched = await fetch_commits(connection, {group_id: topics}, require_stable=is_stable, member_epoch=member_epoch)
    found = fetched.get(group_id, [])
    if isinstance(found, ApiError):
        raise copy_of(found)
    committed: dict[TopicPartition, CommittedOffset] = {}
    for topic in found:
        for partition in topic.partitions:
            if error := _error(partition.error_code):
                raise copy_of(error)
            if partition.committed_offset >= 0:
                tp = TopicPartition(topic.name, partition.partition_index)
                committed[tp] = CommittedOffset(
                    partition.committed_offset, partition.committed_leader_epoch, partition.metadata or ""
                )
    return committed


async def commit_offsets(
    connection: Connection,
    group_id: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    member_id: str,
    generation: int,
    group_instance_id: str | None,
) -> dict[TopicPartition, ErrorCode]:
    """Commit offsets as a member of a generation; return the error code of each partition."""
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offsets[TopicPartition(topic, number)].offset,
                        committed_leader_epoch=offsets[TopicPartition(topic, number)].leader_epoch,
                        committed_metadata=offsets[TopicPartition(topic, number)].metadata,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in _by_topic(offsets).items()
        ],
    )
    response = await connection.send(request, OffsetCommitResponse)
    return {
        TopicPartition(topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }


def _by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


def _error(error_code: int) -> ApiError | None:
    return ApiError(ErrorCode.of(error_code)) if error_code else None

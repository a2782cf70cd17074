"""Fetches and commits the offsets of a group, for its members."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from kctl.client.connections.transport import Connection
from kctl.client.consuming.membership.assignors import NO_GENERATION
from kctl.client.consuming.positions import NO_EPOCH, Position
from kctl.errors import ApiError, ErrorCode
from kctl.model import ZERO_UUID, TopicPartition
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
TOPIC_IDS_VERSION_MIN = 10
"""Of OffsetCommit and OffsetFetch: topics have ids and no names (Kafka 4.1)."""
GROUPS_PER_REQUEST = 100

TopicId = Callable[[str], UUID | None]
"""Returns the id of the topic whose positions are committed or fetched, if it is known."""


def no_topic_id(_: str) -> None:
    """Return no id: topics are identified by their names."""


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


def takes_topic_ids(connection: Connection) -> bool:
    """Return whether the broker identifies the topics of commits by their ids."""
    versions = connection.versions
    return min(versions.highest(OffsetCommitRequest), versions.highest(OffsetFetchRequest)) >= TOPIC_IDS_VERSION_MIN


def commit_version(connection: Connection, *, has_ids: bool = False) -> int:
    """Return the version of OffsetCommit to send, without or with the ids of all topics."""
    return _version(connection, OffsetCommitRequest, has_ids=has_ids)


def _version(connection: Connection, request_class: type, *, has_ids: bool) -> int:
    highest = connection.versions.highest(request_class)
    return highest if has_ids else min(highest, TOPIC_IDS_VERSION_MIN - 1)


async def fetch_commits(
    connection: Connection,
    groups: Mapping[str, list[OffsetFetchRequestTopic] | None],
    *,
    require_stable: bool = False,
    member_epoch: tuple[str, int] | None = None,
    has_ids: bool = False,
) -> dict[str, list[OffsetFetchResponseTopic] | ApiError]:
    """Return the commits of these partitions, or of all partitions with None; the error of a group, if it has one.

    `member_epoch` is the id and the epoch of a member of the consumer protocol, which the broker checks.  `has_ids`:
    the topics of request and response have ids and no names.  At most `groups_per_request` groups.  Partitions have
    errors of their own.  Groups that the response does not contain are absent.
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
        version = _version(connection, OffsetFetchRequest, has_ids=has_ids)
        response = await connection.send(request, OffsetFetchResponse, version=version)
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
    topic_id: TopicId = no_topic_id,
) -> dict[TopicPartition, CommittedOffset]:
    """Return the commits of the partitions that have one.

    Raises as `commits_or_errors`, and ApiError with the first error of a partition.
    """
    found = await commits_or_errors(
        connection,
        group_id,
        partitions,
        may_be_unstable=may_be_unstable,
        member_epoch=member_epoch,
        topic_id=topic_id,
    )
    commits: dict[TopicPartition, CommittedOffset] = {}
    for tp, commit in found.items():
        if isinstance(commit, ApiError):
            raise copy_of(commit)
        commits[tp] = commit
    return commits


async def commits_or_errors(
    connection: Connection,
    group_id: str,
    partitions: Collection[TopicPartition],
    *,
    may_be_unstable: bool = False,
    member_epoch: tuple[str, int] | None = None,
    topic_id: TopicId = no_topic_id,
) -> dict[TopicPartition, CommittedOffset | ApiError]:
    """Return the commits of the partitions that have one, and the errors of partitions.

    `member_epoch` as in `fetch_commits`.  A broker that takes topic ids returns no commit of an earlier topic of the
    same name if `topic_id` has the ids of all topics, and UNKNOWN_TOPIC_ID for one that it does not know.  Raises
    ApiError with the coordinator's error, among others UNSTABLE_OFFSET_COMMIT while a transaction with offset commits
    is open (KIP-447; brokers before 2.5 return the offset committed before it, as with `may_be_unstable`).
    """
    by_topic = _by_topic(partitions)
    names = _names_by_id(by_topic, topic_id) if takes_topic_ids(connection) else {}
    ids = {name: found for found, name in names.items()}
    topics = [
        OffsetFetchRequestTopic(name=topic, topic_id=ids.get(topic, ZERO_UUID), partition_indexes=numbers)
        for topic, numbers in by_topic.items()
    ]
    is_stable = not may_be_unstable and connection.versions.highest(OffsetFetchRequest) >= STABLE_VERSION_MIN
    fetched = await fetch_commits(
        connection, {group_id: topics}, require_stable=is_stable, member_epoch=member_epoch, has_ids=bool(names)
    )
    found = fetched.get(group_id, [])
    if isinstance(found, ApiError):
        raise copy_of(found)
    commits: dict[TopicPartition, CommittedOffset | ApiError] = {}
    for topic in found:
        name = names.get(topic.topic_id) if names else topic.name
        for partition in () if name is None else topic.partitions:
            tp = TopicPartition(name or "", partition.partition_index)
            if error := _error(partition.error_code):
                commits[tp] = error
            elif partition.committed_offset >= 0:
                commits[tp] = CommittedOffset(
                    partition.committed_offset, partition.committed_leader_epoch, partition.metadata or ""
                )
    return commits


async def commit_offsets(
    connection: Connection,
    group_id: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    member_id: str,
    generation: int,
    group_instance_id: str | None,
    topic_id: TopicId = no_topic_id,
) -> dict[TopicPartition, ErrorCode]:
    """Commit offsets as a member of a generation; return the error code of each partition.

    A broker that takes topic ids refuses offsets of a topic that was deleted (UNKNOWN_TOPIC_ID), also if there is
    another one of its name, provided that `topic_id` has the ids of all topics.
    """
    by_topic = _by_topic(offsets)
    names = _names_by_id(by_topic, topic_id) if takes_topic_ids(connection) else {}
    ids = {name: found for found, name in names.items()}
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=ids.get(topic, ZERO_UUID),
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
            for topic, numbers in by_topic.items()
        ],
    )
    version = commit_version(connection, has_ids=bool(names))
    response = await connection.send(request, OffsetCommitResponse, version=version)
    return {
        TopicPartition(name, partition.partition_index): ErrorCode.of(partition.error_code)
        for topic in response.topics
        if (name := names.get(topic.topic_id) if names else topic.name) is not None
        for partition in topic.partitions
    }


def _names_by_id(names: Collection[str], topic_id: TopicId) -> dict[UUID, str]:
    """Return the topics by their ids; none if one of them has no known id."""
    found = {found: name for name in names if (found := topic_id(name)) is not None and found != ZERO_UUID}
    return found if len(found) == len(names) else {}


def _by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


def _error(error_code: int) -> ApiError | None:
    return ApiError(ErrorCode.of(error_code)) if error_code else None

"""Fetches and commits the offsets of a group, for its members."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kctl.client.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

STABLE_VERSION_MIN = 7


async def committed_offsets(
    connection: Connection, group_id: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Committed offsets of the partitions that have one.  Raises ApiError like `commits_with_metadata`."""
    found = await commits_with_metadata(connection, group_id, partitions)
    return {tp: offset for tp, (offset, _) in found.items()}


async def commits_with_metadata(
    connection: Connection, group_id: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, str]]:
    """Committed offset and metadata of the partitions that have an offset.

    Raises ApiError with the coordinator's error, among others UNSTABLE_OFFSET_COMMIT while a transaction with offset
    commits is open (KIP-447; brokers before 2.5 return the offset committed before it).
    """
    version = connection.versions.highest(OffsetFetchRequest)
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=[
            OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in _by_topic(partitions).items()
        ],
        require_stable=version >= STABLE_VERSION_MIN,
    )
    response = await connection.send(request, OffsetFetchResponse)
    _raise_for(response.error_code)
    committed: dict[TopicPartition, tuple[int, str]] = {}
    for topic in response.topics:
        for one in topic.partitions:
            _raise_for(one.error_code)
            if one.committed_offset >= 0:
                tp = TopicPartition(topic.name, one.partition_index)
                committed[tp] = one.committed_offset, one.metadata or ""
    return committed


async def commit_offsets(
    connection: Connection,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    member_id: str,
    generation: int,
    group_instance_id: str | None,
) -> dict[TopicPartition, ErrorCode]:
    """Commits offsets as a member of a generation; returns the error code of each partition."""
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
                        committed_offset=offsets[TopicPartition(topic, number)],
                        committed_metadata="",
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in _by_topic(offsets).items()
        ],
    )
    response = await connection.send(request, OffsetCommitResponse)
    return {
        TopicPartition(topic.name, one.partition_index): ErrorCode.of(one.error_code)
        for topic in response.topics
        for one in topic.partitions
    }


def _by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


def _raise_for(error_code: int) -> None:
    if error_code:
        raise ApiError(ErrorCode.of(error_code))

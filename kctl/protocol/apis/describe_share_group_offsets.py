"""DescribeShareGroupOffsets (key 90, versions 0-1): the share-partition start offsets of share groups (KIP-932).

New in Kafka 4.1.  1: the lag (KIP-1226).
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import (
    array,
    int16,
    int32,
    int64,
    partition_number,
    request,
    response,
    string,
    struct,
    uuid,
)


@struct
class RequestedTopic:
    """Partitions of one topic."""

    topic_name: str = string(is_topic=True)
    partitions: list[int] = array(partition_number)


@struct
class RequestedGroup:
    """A group and the partitions whose offsets are requested."""

    group_id: str = string()
    topics: list[RequestedTopic] | None = array(RequestedTopic, nullable="0+", default=None)
    """Null for all partitions of the group."""


@request(key=90, versions="0-1", flexible="0+", served="none")
class DescribeShareGroupOffsetsRequest:
    """Sent to the coordinator of the groups."""

    groups: list[RequestedGroup] = array(RequestedGroup)


@struct
class SharePartition:
    """One partition of a group."""

    partition_index: int = int32(is_partition=True)
    start_offset: int = int64()
    """The first offset that is not acknowledged yet; -1 before the group has read the partition."""
    leader_epoch: int = int32()
    lag: int = int64("1+", default=-1, ignorable=True)
    """Records from the start offset on that are not acknowledged; -1 if unknown."""
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class ShareTopic:
    """The partitions of one topic."""

    topic_name: str = string(is_topic=True)
    topic_id: UUID = uuid()
    partitions: list[SharePartition] = array(SharePartition)


@struct
class ShareGroup:
    """The offsets of one group."""

    group_id: str = string()
    topics: list[ShareTopic] = array(ShareTopic)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    """One entry per group of the request."""

    throttle_time_ms: int = int32(default=0)
    groups: list[ShareGroup] = array(ShareGroup)

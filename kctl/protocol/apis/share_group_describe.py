"""ShareGroupDescribe (key 77, version 1): state and members of share groups (KIP-932).

Version 0 was an early access in Kafka 4.0; 1 is new in 4.1.
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import (
    array,
    boolean,
    int16,
    int32,
    nested,
    partition_number,
    request,
    response,
    string,
    struct,
    uuid,
)


@request(key=77, versions="1", flexible="0+", served="none")
class ShareGroupDescribeRequest:
    """Sent to the coordinator of the groups."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean(default=False)


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    topic_name: str = string(is_topic=True)
    partitions: list[int] = array(partition_number)


@struct
class Assignment:
    """The partitions that a member reads, which other members may read as well."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@struct
class Member:
    """A member of a share group."""

    member_id: str = string()
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    assignment: Assignment = nested(Assignment)


@struct
class DescribedGroup:
    """The state of one group."""

    error_code: int = int16()
    """GROUP_ID_NOT_FOUND for a missing group or one of another type."""
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    """`Empty`, `Stable` or `Dead`."""
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


@response(key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    """One entry per group of the request."""

    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array(DescribedGroup)

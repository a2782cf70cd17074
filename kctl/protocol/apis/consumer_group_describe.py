"""ConsumerGroupDescribe (key 69, versions 0-1): state and members of groups of the consumer protocol (KIP-848).

A group that is not there, or is of another kind, is GROUP_ID_NOT_FOUND.

New in Kafka 3.7.  Flexible from the start.  1: the kind of member (KIP-1099).
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, boolean, int8, int16, int32, nested, request, response, string, struct, uuid


@request(key=69, versions="0-1", flexible="0+", served="none")
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean(default=False)


@struct
class TopicPartitions:
    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@struct
class Member:
    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: Assignment = nested(Assignment)
    target_assignment: Assignment = nested(Assignment)
    member_type: int = int8("1+", default=-1, ignorable=True)
    """0: of the classic protocol, 1: of the consumer protocol, -1: the broker does not tell."""


@struct
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


@response(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array(DescribedGroup)

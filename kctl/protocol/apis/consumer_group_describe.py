"""ConsumerGroupDescribe (key 69, versions 0-1): state and members of groups of the consumer protocol (KIP-848).

New in Kafka 3.7.  Flexible from the start.  1: `member_type` (KIP-1099).
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import (
    array,
    boolean,
    int8,
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


@request(key=69, versions="0-1", flexible="0+", served="none")
class ConsumerGroupDescribeRequest:
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
    """The partitions assigned to a member."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@struct
class Member:
    """A member of a group."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    """The rack of the client; null if unknown."""
    member_epoch: int = int32()
    """The group epoch that the member has reached."""
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    """An RE2 expression evaluated by the coordinator; null if the member has none."""
    assignment: Assignment = nested(Assignment)
    """The partitions that the member owns now."""
    target_assignment: Assignment = nested(Assignment)
    """The partitions that the member will own when the rebalance is complete."""
    member_type: int = int8("1+", default=-1, ignorable=True)
    """0 for the classic protocol, 1 for the consumer protocol, -1 if the broker does not report it."""


@struct
class DescribedGroup:
    """The state of one group."""

    error_code: int = int16()
    """GROUP_ID_NOT_FOUND for a missing group or one of another type."""
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    """`Empty`, `Assigning`, `Reconciling`, `Stable` or `Dead`."""
    group_epoch: int = int32()
    """Increases with each change of members or subscriptions."""
    assignment_epoch: int = int32()
    """The group epoch that the target assignment was computed for."""
    assignor_name: str = string()
    """The assignor on the side of the broker (KIP-848)."""
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)
    """A bit for each operation that the client may perform, by its code; the least int32 if not requested."""


@response(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """One entry per group of the request."""

    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array(DescribedGroup)

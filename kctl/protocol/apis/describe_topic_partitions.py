"""DescribeTopicPartitions (key 75, version 0): partitions with their eligible leader replicas, in pages (KIP-966).

New in Kafka 3.8.
"""

from __future__ import annotations

from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.protocol.message import (
    array,
    boolean,
    int16,
    int32,
    nested,
    request,
    response,
    string,
    struct,
    uuid,
)


@struct
class TopicRequest:
    """A topic to describe."""

    name: str = string(is_topic=True)


@struct
class Cursor:
    """The first partition of a page."""

    topic_name: str = string(is_topic=True)
    partition_index: int = int32(is_partition=True)


@request(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """May be sent to any broker; topics without a name are all topics."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = nested(Cursor, nullable="0+", default=None)


@struct
class PartitionDescription:
    """One partition."""

    error_code: int = int16()
    partition_index: int = int32(is_partition=True)
    leader_id: int = int32()
    """-1 if there is no leader."""
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, nullable="0+", default=None)
    """Replicas out of sync that have all committed records, and may be elected; null if the feature is off."""
    last_known_elr: list[int] | None = array(int32, nullable="0+", default=None)
    """Members of the former set that lost that place by an unclean shutdown; null if the feature is off."""
    offline_replicas: list[int] = array(int32, ignorable=True, default=[])


@struct
class TopicDescription:
    """One topic."""

    error_code: int = int16()
    name: str | None = string(nullable="0+", is_topic=True)
    topic_id: UUID = uuid(default=ZERO_UUID, ignorable=True)
    is_internal: bool = boolean(default=False, ignorable=True)
    partitions: list[PartitionDescription] = array(PartitionDescription)
    topic_authorized_operations: int = int32(default=-2147483648)


@response(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """A page of partitions."""

    throttle_time_ms: int = int32(default=0)
    topics: list[TopicDescription] = array(TopicDescription)
    next_cursor: Cursor | None = nested(Cursor, nullable="0+", default=None)
    """Where the next page begins; null after the last one."""

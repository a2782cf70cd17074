"""DescribeQuorum (key 55, versions 0-2): voters and observers of the metadata log of a KRaft cluster (KIP-595).

Only the client supports it: brokers on ZooKeeper have no metadata log.

1: when each replica fetched and was caught up (KIP-836).  2: error messages, directories, listeners of the controllers
(KIP-853).
"""

from __future__ import annotations

from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct, uint16, uuid


@struct
class PartitionData:
    """One partition."""

    partition_index: int = int32(is_partition=True)


@struct
class TopicData:
    """Partitions of one topic."""

    topic_name: str = string(is_topic=True)
    partitions: list[PartitionData] = array(PartitionData)


METADATA_LOG = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
"""The topics of each request: the only log that has a quorum."""


@request(key=55, versions="0-2", flexible="0+", served="none")
class DescribeQuorumRequest:
    """Sent to any broker, which forwards it to the active controller."""

    topics: list[TopicData] = array(TopicData)


@struct
class ReplicaState:
    """How far one replica has read the log."""

    replica_id: int = int32()
    replica_directory_id: UUID = uuid("2+", default=ZERO_UUID)
    """The id of the log directory (KIP-853)."""
    log_end_offset: int = int64()
    """-1 if unknown."""
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    """Time of the leader at the last fetch in ms; -1 for the leader and if unknown."""
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)
    """When the leader appended the offset of the last fetch, in ms; -1 if unknown."""


@struct
class PartitionResponse:
    """The quorum of one partition."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    leader_id: int = int32()
    """-1 if unknown."""
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    """Controllers that vote."""
    observers: list[ReplicaState] = array(ReplicaState)
    """Brokers and other nodes that only follow."""


@struct
class TopicResponse:
    """The partitions of one topic."""

    topic_name: str = string(is_topic=True)
    partitions: list[PartitionResponse] = array(PartitionResponse)


@struct
class Listener:
    """A listener of a controller."""

    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


@struct
class Node:
    """The listeners of one voter."""

    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


@response(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    """One result per requested partition."""

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    topics: list[TopicResponse] = array(TopicResponse)
    nodes: list[Node] = array(Node, "2+", default=[])

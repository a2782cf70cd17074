"""Metadata (key 3, versions 0-13): the brokers, the controller, and the leader and replicas of partitions.

1: controller, racks, internal topics.  2: cluster id (KIP-78).  3: throttle time.  4: `allow_auto_topic_creation`.  5:
offline replicas (KIP-112).  7: leader epochs (KIP-320).  8: authorized operations (KIP-430); those of the cluster were
removed in 11 (KIP-700).  9: flexible.  10: topic ids (KIP-516) in the response.  12: requests by topic id.
13: an error of the whole response (KIP-1102).
"""

from __future__ import annotations

from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.protocol.message import array, boolean, int16, int32, request, response, string, struct, uuid


@struct
class MetadataRequestTopic:
    """A topic to describe."""

    topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
    name: str | None = string(nullable="10+", is_topic=True)
    """Null if the topic is given by id, which versions 10 and 11 refuse."""


@request(key=3, versions="0-13", flexible="9+", sent="0-12")
class MetadataRequest:
    """May be sent to any broker."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    """Null for all topics, and an empty list for none.  In version 0 an empty list means all."""
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    """Create missing topics if `auto.create.topics.enable` is set; always true before version 4."""
    include_cluster_authorized_operations: bool = boolean("8-10", default=False)
    include_topic_authorized_operations: bool = boolean("8+", default=False)


@struct
class MetadataResponseBroker:
    """A live broker with its endpoint for the listener of the request."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    """A partition and its replicas."""

    error_code: int = int16()
    """LEADER_NOT_AVAILABLE without a live leader, LISTENER_NOT_FOUND if it lacks this listener (6+)."""
    partition_index: int = int32(is_partition=True)
    leader_id: int = int32()
    """-1 if there is none."""
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    """All replicas, preferred leader first."""
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "5+", default=[], ignorable=True)
    """Replicas on brokers that are not alive, or in log directories that are offline."""


@struct
class MetadataResponseTopic:
    """A topic and its partitions."""

    error_code: int = int16()
    """LEADER_NOT_AVAILABLE for a topic that is just being created."""
    name: str | None = string(nullable="12+", is_topic=True)
    """Null only if the topic was asked for by an id which does not exist, or which the client may not describe."""
    topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = boolean("1+", default=False, ignorable=True)
    """True for `__consumer_offsets` and `__transaction_state`."""
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-2147483648)
    """A bit for each operation that the client may perform, by its code; the least int32 if not requested."""


@response(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """The cluster metadata that this broker received from the controller."""

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True, is_cluster_id=True)
    """Null if unknown."""
    controller_id: int = int32("1+", default=-1, ignorable=True)
    """-1 if there is no active controller."""
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    """A bit for each operation that the client may perform, by its code; the least int32 if not requested."""
    error_code: int = int16("13+", default=0, ignorable=True)
    """REBOOTSTRAP_REQUIRED from a broker that has left the cluster."""

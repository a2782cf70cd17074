"""Metadata (key 3, versions 0-11): the brokers, the controller, and who leads which partition.

All topics are meant by an empty list in version 0 and by null since 1, where an empty list means none.

1: controller, racks, internal topics.  2: cluster id.  4: whether to create missing topics.  5: offline replicas. 7:
leader epochs (KIP-320).  8-10: authorized operations, as bits (KIP-430); those of the cluster left again in 11. 9:
flexible.  10: topic ids (KIP-516); asking by id instead of name works from 12 on only.
"""

from __future__ import annotations

from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.protocol.message import array, boolean, int16, int32, request, response, string, struct, uuid


@struct
class MetadataRequestTopic:
    topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
    name: str | None = string(nullable="10+")


@request(key=3, versions="0-11", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10", default=False)
    include_topic_authorized_operations: bool = boolean("8+", default=False)


@struct
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "5+", default=[], ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: int = int16()
    name: str = string()
    topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = boolean("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    # This default says that nobody asked.
    topic_authorized_operations: int = int32("8+", default=-2147483648)


@response(key=3, versions="0-11", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)

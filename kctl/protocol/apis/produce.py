"""Produce (key 0, versions 0-13): appends record batches to partitions that this broker leads.

1, 2: throttle time; messages of magic 1 (KIP-32).  3: batches of magic 2 only, transactional ids (KIP-98).  5: log
start offset (KIP-107).  7: zstd is allowed (KIP-110).  8: errors of single records (KIP-467).  9: flexible.  10: the
new leader with errors that report one (KIP-951).  11: TRANSACTION_ABORTABLE.  12: adds partitions to the transaction
(KIP-890).  13: topic ids instead of names (KIP-516).
"""

from __future__ import annotations

from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.protocol.message import (
    Records,
    array,
    int16,
    int32,
    int64,
    nested,
    records,
    request,
    response,
    string,
    struct,
    uuid,
)


@struct
class PartitionProduceData:
    """The records for one partition."""

    index: int = int32(is_partition=True)
    records: Records | None = records(nullable="0+")
    """From version 3 on exactly one batch of magic 2; before, messages of magic 0 or 1."""


@struct
class TopicProduceData:
    """The partitions of one topic."""

    name: str = string("0-12", default="", is_topic=True, ignorable=True)
    topic_id: UUID = uuid("13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@request(key=0, versions="0-13", flexible="9+", sent="0-9")
class ProduceRequest:
    """Sent to the leaders; partitions succeed or fail independently."""

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    """Null outside of transactions."""
    acks: int = int16()
    """0 for no response, 1 for an append by the leader, -1 for all in-sync replicas."""
    timeout_ms: int = int32()
    """How long to wait for the replicas with acks=-1; then REQUEST_TIMED_OUT, and the records remain in the log."""
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@struct
class BatchIndexAndErrorMessage:
    """A record that made the batch invalid."""

    batch_index: int = int32()
    """Index of the record in the batch."""
    batch_index_error_message: str | None = string(nullable="8+", default=None)


@struct
class LeaderIdAndEpoch:
    """The current leader, -1 if unknown."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@struct
class NodeEndpoint:
    """A broker that leads one of the partitions, with its endpoint for the listener of the request."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@struct
class PartitionProduceResponse:
    """The result for one partition."""

    index: int = int32(is_partition=True)
    error_code: int = int16()
    base_offset: int = int64()
    """Offset of the first record; -1 on an error."""
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    """Time of the append in ms since the epoch for LogAppendTime, -1 for CreateTime."""
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", default=[], ignorable=True)
    """The records that were refused, by their index in the batch (KIP-467)."""
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, "10+", tag=0, default=None)
    """Set with NOT_LEADER_OR_FOLLOWER (KIP-951)."""


@struct
class TopicProduceResponse:
    """The partitions of one topic."""

    name: str = string("0-12", default="", is_topic=True, ignorable=True)
    topic_id: UUID = uuid("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@response(key=0, versions="0-13", flexible="9+")
class ProduceResponse:
    """The result for each partition; not sent for acks=0."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0, default=[], ignorable=True)
    """The leaders that the partitions name."""

"""DescribeProducers (key 61, version 0): the producer state of partitions, to find hanging transactions (KIP-664).

Flexible from the start.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, partition_number, request, response, string, struct


@struct
class TopicRequest:
    """Partitions of one topic."""

    name: str = string(is_topic=True)
    partition_indexes: list[int] = array(partition_number)


@request(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    """Sent to the leaders of the partitions."""

    topics: list[TopicRequest] = array(TopicRequest)


@struct
class ProducerState:
    """The state of one producer id in the partition."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    """Sequence number of the last record; -1 if only markers are known."""
    last_timestamp: int = int64(default=-1)
    """Timestamp of the last batch in ms since the epoch; -1 if only markers are known."""
    coordinator_epoch: int = int32()
    """Epoch of the transaction coordinator that wrote the last marker; -1 if there is none."""
    current_txn_start_offset: int = int64(default=-1)
    """First offset of the open transaction; -1 if there is none."""


@struct
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState)
    """Those with producer state in this partition."""


@struct
class TopicResponse:
    """The partitions of one topic."""

    name: str = string(is_topic=True)
    partitions: list[PartitionResponse] = array(PartitionResponse)


@response(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """The producer state of each partition."""

    throttle_time_ms: int = int32(default=0)
    topics: list[TopicResponse] = array(TopicResponse)

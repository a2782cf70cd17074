"""DescribeProducers (key 61, version 0): the producers that a partition's leader remembers (KIP-664).

Flexible from the start.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct


@struct
class TopicRequest:
    name: str = string()
    partition_indexes: list[int] = array(int32)


@request(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: list[TopicRequest] = array(TopicRequest)


@struct
class ProducerState:
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@struct
class PartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState)


@struct
class TopicResponse:
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@response(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: int = int32(default=0)
    topics: list[TopicResponse] = array(TopicResponse)

"""AlterPartition (key 56, version 0): a leader asks the controller for a new ISR (KIP-497).

Kafka 2.8 calls it AlterIsr; the name used here is the one since 3.2.  Flexible from the start.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct


@struct
class RequestPartitionData:
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32)
    partition_epoch: int = int32()


@struct
class RequestTopicData:
    topic_name: str = string()
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


@request(key=56, versions="0", flexible="0+")
class AlterPartitionRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[RequestTopicData] = array(RequestTopicData)


@struct
class ResponsePartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    partition_epoch: int = int32()


@struct
class ResponseTopicData:
    topic_name: str = string()
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


@response(key=56, versions="0", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    topics: list[ResponseTopicData] = array(ResponseTopicData)

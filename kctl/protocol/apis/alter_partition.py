"""AlterPartition (key 56, version 0): a leader requests a change of the ISR from the controller (KIP-497).

Kafka 2.8 calls it AlterIsr; the name used here is the one since 3.2.  Flexible from the start.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, int64, request, response, string, struct


@struct
class RequestPartitionData:
    """The ISR that the leader proposes for one partition."""

    partition_index: int = int32(is_partition=True)
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32)
    """Broker ids, including the leader."""
    partition_epoch: int = int32()
    """Version of the partition's state at the leader; a stale one fails with INVALID_UPDATE_VERSION."""


@struct
class RequestTopicData:
    """The partitions of one topic."""

    topic_name: str = string(is_topic=True)
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


@request(key=56, versions="0", flexible="0+")
class AlterPartitionRequest:
    """Sent by a leader to the active controller, which writes the ISR to ZooKeeper."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    """The zxid of the registration of the sender (KIP-380); -1 is not checked."""
    topics: list[RequestTopicData] = array(RequestTopicData)


@struct
class ResponsePartitionData:
    """The state of one partition after the change, or the error."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    partition_epoch: int = int32()
    """The new version of the state, for the leader's next request."""


@struct
class ResponseTopicData:
    """The partitions of one topic."""

    topic_name: str = string(is_topic=True)
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


@response(key=56, versions="0", flexible="0+")
class AlterPartitionResponse:
    """The result for each partition."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    """An error of the whole request, such as NOT_CONTROLLER or STALE_BROKER_EPOCH."""
    topics: list[ResponseTopicData] = array(ResponseTopicData)

"""AlterPartitionReassignments (key 45, version 0): move partitions to other replicas, or cancel that (KIP-455).

`replicas` null cancels.  The active controller does.  Flexible from the start.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, request, response, string, struct


@struct
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable="0+", default=None)


@struct
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@request(key=45, versions="0", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60000)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@struct
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@response(key=45, versions="0", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default="")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)

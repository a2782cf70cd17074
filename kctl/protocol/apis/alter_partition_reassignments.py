"""AlterPartitionReassignments (key 45, versions 0-1): starts, replaces or cancels partition reassignments (KIP-455).

Sent to the active controller.  Flexible from the start.  1: refuses changes of the replication factor (KIP-860).
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, int16, int32, request, response, string, struct


@struct
class ReassignablePartition:
    """The target replicas of one partition."""

    partition_index: int = int32(is_partition=True)
    replicas: list[int] | None = array(int32, nullable="0+", default=None)
    """Target replicas, preferred leader first; null cancels the reassignment."""


@struct
class ReassignableTopic:
    """The partitions of one topic."""

    name: str = string(is_topic=True)
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@request(key=45, versions="0-1", flexible="0+", sent="0")
class AlterPartitionReassignmentsRequest:
    """Changes the target replicas; partitions succeed or fail independently."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    """Whether the number of replicas of a partition may change."""
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@struct
class ReassignablePartitionResponse:
    """The result for one partition."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class ReassignableTopicResponse:
    """The results for one topic."""

    name: str = string(is_topic=True)
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@response(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """The result for each partition; success means that the reassignment was started."""

    throttle_time_ms: int = int32(default=0)
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    """As in the request."""
    error_code: int = int16()
    """An error of the whole request, such as NOT_CONTROLLER."""
    error_message: str | None = string(nullable="0+", default="")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)

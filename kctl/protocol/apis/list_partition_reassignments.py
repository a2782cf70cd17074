"""ListPartitionReassignments (key 46, version 0): the reassignments in progress (KIP-455).

Sent to the active controller.  Flexible from the start.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, partition_number, request, response, string, struct


@struct
class ListPartitionReassignmentsTopics:
    """Partitions of one topic."""

    name: str = string(is_topic=True)
    partition_indexes: list[int] = array(partition_number)


@request(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """Lists reassignments."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )
    """Null for all partitions."""


@struct
class OngoingPartitionReassignment:
    """A partition that is being reassigned."""

    partition_index: int = int32(is_partition=True)
    replicas: list[int] = array(int32)
    """The current replicas, including those being added and removed."""
    adding_replicas: list[int] = array(int32)
    """Replicas that a reassignment adds."""
    removing_replicas: list[int] = array(int32)
    """Replicas that a reassignment removes when it is complete."""


@struct
class OngoingTopicReassignment:
    """The partitions of one topic."""

    name: str = string(is_topic=True)
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@response(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """The partitions with a reassignment in progress; others are left out."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default="")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)

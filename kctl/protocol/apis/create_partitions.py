"""CreatePartitions (key 37, versions 0-3): adds partitions to topics (KIP-195).

Sent to the active controller.  2: flexible.  3: THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from kctl.protocol.message import array, boolean, int16, int32, request, response, string, struct


@struct
class CreatePartitionsAssignment:
    """The replicas of one new partition, preferred leader first."""

    broker_ids: list[int] = array(int32)


@struct
class CreatePartitionsTopic:
    """A topic and its new number of partitions."""

    name: str = string(is_topic=True)
    count: int = int32()
    """The total number of partitions afterwards."""
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")
    """One entry per new partition; null lets the controller assign replicas."""


@request(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """Adds partitions; topics succeed or fail independently."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()
    """Check the request, and change nothing."""


@struct
class CreatePartitionsTopicResult:
    """The result for one topic."""

    name: str = string(is_topic=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """One result per topic of the request."""

    throttle_time_ms: int = int32(default=0)
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)

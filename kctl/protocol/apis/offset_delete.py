"""OffsetDelete (key 47, version 0): deletes committed offsets of a group (KIP-496).

Never flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, int16, int32, request, response, string, struct


@struct
class OffsetDeleteRequestPartition:
    """A partition whose offset is deleted."""

    partition_index: int = int32(is_partition=True)


@struct
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: str = string(is_topic=True)
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@request(key=47, versions="0", flexible="none")
class OffsetDeleteRequest:
    """Sent to the group coordinator."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@struct
class OffsetDeleteResponsePartition:
    """The result for one partition."""

    partition_index: int = int32(is_partition=True)
    error_code: int = int16()
    """GROUP_SUBSCRIBED_TO_TOPIC if an active member subscribes to the topic."""


@struct
class OffsetDeleteResponseTopic:
    """The results for one topic."""

    name: str = string(is_topic=True)
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@response(key=47, versions="0", flexible="none")
class OffsetDeleteResponse:
    """The result for each partition."""

    error_code: int = int16()
    """An error of the whole group; `topics` is empty then."""
    throttle_time_ms: int = int32(default=0)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)

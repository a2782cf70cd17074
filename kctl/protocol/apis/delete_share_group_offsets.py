"""DeleteShareGroupOffsets (key 92, version 0): forgets the topics of an empty share group (KIP-932).

New in Kafka 4.1.
"""

from __future__ import annotations

from uuid import UUID

from kctl.protocol.message import array, int16, int32, request, response, string, struct, uuid


@struct
class DeletedTopic:
    """A topic whose offsets are deleted."""

    topic_name: str = string(is_topic=True)


@request(key=92, versions="0", flexible="0+", served="none")
class DeleteShareGroupOffsetsRequest:
    """Sent to the coordinator of the group."""

    group_id: str = string()
    topics: list[DeletedTopic] = array(DeletedTopic)


@struct
class TopicResult:
    """The outcome for one topic."""

    topic_name: str = string(is_topic=True)
    topic_id: UUID = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    """One outcome per topic, or one error for all."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[TopicResult] = array(TopicResult)

"""DeleteTopics (key 20, versions 0-6): deletes topics (KIP-4).

Sent to the active controller.  1: throttle time.  4: flexible.  5: error messages, THROTTLING_QUOTA_EXCEEDED (KIP-599).
6: by topic id too (KIP-516): `topics` replaces `topic_names`.
"""

from __future__ import annotations

from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.protocol.message import array, int16, int32, request, response, string, struct, topic_name, uuid


@struct
class DeleteTopicState:
    """A topic by name or by id."""

    name: str | None = string(nullable="6+", default=None, is_topic=True)
    """Null if the topic is given by id; both together are invalid."""
    topic_id: UUID = uuid()


@request(key=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    """Deletes topics; each succeeds or fails independently."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+", default=[])
    topic_names: list[str] = array(topic_name, "0-5", default=[], ignorable=True)
    timeout_ms: int = int32()
    """How long to wait until the topics are deleted; then REQUEST_TIMED_OUT, and the deletion continues."""


@struct
class DeletableTopicResult:
    """The result for one topic."""

    name: str | None = string(nullable="6+", is_topic=True)
    """Null if the id is unknown, or if the caller may not describe the topic."""
    topic_id: UUID = uuid("6+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@response(key=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    """One result per topic of the request."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)

"""DeleteTopics (key 20, versions 0-6): delete topics; the active controller does.

4: flexible.  5: errors have a message (KIP-599).  6: by id too: `topics` replaces `topic_names`, and each entry has
either a name or an id (KIP-516).
"""

from __future__ import annotations

from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.protocol.message import array, int16, int32, request, response, string, struct, uuid


@struct
class DeleteTopicState:
    name: str | None = string(nullable="6+", default=None)
    topic_id: UUID = uuid()


@request(key=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+", default=[])
    topic_names: list[str] = array(string, "0-5", default=[], ignorable=True)
    timeout_ms: int = int32()


@struct
class DeletableTopicResult:
    name: str | None = string(nullable="6+")
    topic_id: UUID = uuid("6+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@response(key=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)

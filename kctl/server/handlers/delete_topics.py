"""DeleteTopics (key 20, versions 0-6): requests the deletion of topics and waits until they are deleted.

Only the active controller serves it; other brokers respond with NOT_CONTROLLER.  A deletion is a node under
/admin/delete_topics, which stays until every replica is deleted, so a topic with REQUEST_TIMED_OUT is deleted later.  A
second request for a topic that is being deleted waits as well.

Version notes: before 3 a broker with delete.topic.enable=false responds with INVALID_REQUEST, since then with
TOPIC_DELETION_DISABLED; 5 messages; 6 by name or by id (KIP-516).

Quotas on changes (KIP-599) count the partitions of the topics: since version 5 a topic beyond the quota gets
THROTTLING_QUOTA_EXCEEDED; older requests are served, and the client is throttled.
"""

from __future__ import annotations

from collections.abc import Callable

from kctl.config.dynamic import ConfigView
from kctl.errors import ApiError, ErrorCode
from kctl.model import ZERO_UUID
from kctl.protocol.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.cluster.control.metadata_waits import MetadataWaits
from kctl.server.cluster.topics.writer import TopicWriter
from kctl.server.loop.slices import gather_sliced
from kctl.server.peers.metadata import MetadataCache
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import SUCCESS, TIMED_OUT, TOPIC_DENIED, Outcome, outcome_of
from kctl.server.requests.quotas.accounts import MutationAllowance

FIRST_VERSION_WITH_DELETION_DISABLED = 3
FIRST_VERSION_WITH_STRICT_QUOTA = 5
FIRST_VERSION_BY_ID = 6

_NOT_CONTROLLER = Outcome(ErrorCode.NOT_CONTROLLER)
_UNKNOWN_NAME = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_UNKNOWN_ID = Outcome(ErrorCode.UNKNOWN_TOPIC_ID)
_NAME_AND_ID = Outcome(ErrorCode.INVALID_REQUEST, "A topic must have a name or an id, not both.")
_NEITHER = Outcome(ErrorCode.INVALID_REQUEST, "A topic must have a name or an id.")
_DISABLED = "Topic deletion is disabled by delete.topic.enable."


class DeleteTopicsHandler:
    """Serves DeleteTopics requests.  Owner: event loop."""

    def __init__(
        self,
        topics: TopicWriter,
        metadata: MetadataCache,
        waits: MetadataWaits,
        configs: ConfigView,
        *,
        is_controller: Callable[[], bool],
    ) -> None:
        self._topics = topics
        self._metadata = metadata
        self._waits = waits
        self._configs = configs
        self._is_controller = is_controller

    async def handle(self, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
        """Serve one request and return the response."""
        requested = (
            list({(topic.name, topic.topic_id): topic for topic in request.topics}.values())
            if context.api_version >= FIRST_VERSION_BY_ID
            else [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in dict.fromkeys(request.topic_names)]
        )
        refusal = self._refusal(requested, context.api_version)
        if refusal is not None:
            return DeleteTopicsResponse(responses=[_result(topic, topic.name, refusal) for topic in requested])
        allowance = None
        if context.account is not None:
            allowance = context.account.mutations(is_strict=context.api_version >= FIRST_VERSION_WITH_STRICT_QUOTA)
        deletions = (self._delete(topic, allowance, request.timeout_ms, context) for topic in requested)
        return DeleteTopicsResponse(responses=await gather_sliced(deletions))

    def _refusal(self, requested: list[DeleteTopicState], version: int) -> Outcome | None:
        """Return the outcome for all topics of a request that cannot be served."""
        if not self._is_controller():
            return _NOT_CONTROLLER
        if not self._configs.current.delete_topic_enable:
            is_known = version >= FIRST_VERSION_WITH_DELETION_DISABLED
            return Outcome(ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST, _DISABLED)
        if any(topic.name is not None and topic.topic_id != ZERO_UUID for topic in requested):
            return _NAME_AND_ID
        return None

    async def _delete(
        self,
        requested: DeleteTopicState,
        allowance: MutationAllowance | None,
        timeout_ms: int,
        context: RequestContext,
    ) -> DeletableTopicResult:
        name = requested.name if requested.topic_id == ZERO_UUID else self._metadata.topic_name(requested.topic_id)
        if name is None:
            return _result(requested, None, _NEITHER if requested.topic_id == ZERO_UUID else _UNKNOWN_ID)
        is_by_id = requested.topic_id != ZERO_UUID
        if is_by_id and not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return _result(
                requested, None, TOPIC_DENIED
            )  # A client that may not describe the topic does not get its name.
        if not context.allows(Operation.DELETE, ResourceType.TOPIC, name):
            return _result(requested, name, TOPIC_DENIED)
        partitions = self._metadata.partitions(name)
        if partitions is None:
            return _result(requested, name, _UNKNOWN_NAME)
        if allowance is not None:
            try:
                allowance.take(len(partitions))
            except ApiError as error:
                return _result(requested, name, Outcome.of(error))
        outcome = await outcome_of(self._topics.request_deletion(name))
        if outcome.is_success:
            outcome = await self._gone(name, timeout_ms)
        return _result(requested, name, outcome)

    async def _gone(self, name: str, timeout_ms: int) -> Outcome:
        if timeout_ms <= 0:
            return TIMED_OUT
        is_gone = await self._waits.until(name, lambda: self._metadata.partitions(name) is None, timeout_ms)
        return SUCCESS if is_gone else TIMED_OUT


def _result(requested: DeleteTopicState, name: str | None, outcome: Outcome) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=requested.topic_id, error_code=outcome.code, error_message=outcome.message
    )

"""ShareAcknowledge (key 79, versions 1-2): acknowledgements of a member of a share group, without a fetch.

Served with `share` in group.coordinator.rebalance.protocols.  The response waits until they are stored.  With session
epoch -1 the session ends, and what the member has not acknowledged is released.

Version notes: 2 renewals of acquisition locks (KIP-1222).
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.share_acknowledge import (
    AcknowledgedPartition,
    AcknowledgedTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.requests.context import RequestContext
from kctl.server.share_partitions.manager import ShareManager
from kctl.server.share_partitions.service import ShareService
from kctl.server.share_partitions.sessions import INITIAL_EPOCH, MemberKey, TopicIdPartition


class ShareAcknowledgeHandler:
    """Serves ShareAcknowledge requests.  Owner: event loop."""

    def __init__(self, service: ShareService, manager: ShareManager) -> None:
        self._service = service
        self._manager = manager

    async def handle(self, request: ShareAcknowledgeRequest, context: RequestContext) -> ShareAcknowledgeResponse:
        """Serve one request and return the response."""
        key = MemberKey(request.group_id or "", request.member_id or "")
        try:
            context.check(Operation.READ, ResourceType.GROUP, key.group_id)
            if request.share_session_epoch == INITIAL_EPOCH:
                raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            self._service.session(key, request.share_session_epoch, (), (), context.peer)
        except ApiError as error:
            message = error.message or error.code.description
            return ShareAcknowledgeResponse(
                error_code=error.code, error_message=message, responses=[], node_endpoints=[]
            )
        requested = {
            TopicIdPartition(topic.topic_id, partition.partition_index): partition.acknowledgement_batches
            for topic in request.topics
            for partition in topic.partitions
        }
        outcomes = await self._service.acknowledge(key, requested, context, may_renew=request.is_renew_ack)
        if request.share_session_epoch < INITIAL_EPOCH:
            self._service.close(key)
        topics: dict[object, AcknowledgedTopic] = {}
        for partition, outcome in outcomes.items():
            topic = topics.setdefault(partition.topic_id, AcknowledgedTopic(topic_id=partition.topic_id, partitions=[]))
            topic.partitions.append(
                AcknowledgedPartition(
                    partition_index=partition.partition,
                    error_code=outcome.error,
                    error_message=outcome.message,
                    current_leader=self._service.leader(partition, outcome.error),
                )
            )
        leaders = [partition.current_leader for topic in topics.values() for partition in topic.partitions]
        return ShareAcknowledgeResponse(
            error_code=ErrorCode.NONE,
            acquisition_lock_timeout_ms=self._manager.settings(key.group_id).limits.lock_ms,
            responses=list(topics.values()),
            node_endpoints=self._service.endpoints(leaders, context.listener),
        )

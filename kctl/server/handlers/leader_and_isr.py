"""LeaderAndIsr (key 4, versions 0-5): the controller sets this broker's roles in partitions.

A request of an older controller gets STALE_CONTROLLER_EPOCH, one for an earlier run of this broker STALE_BROKER_EPOCH;
neither changes anything.  Otherwise each partition has its own result.

Version notes: 2 groups by topic and carries the broker epoch; 3 reassignments; 5 topic ids, also in the response.
"""

from __future__ import annotations

from itertools import chain

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from kctl.security.acls import Operation
from kctl.server.cluster.control.authority import Claim, ControllerAuthority
from kctl.server.cluster.control.plane import BrokerControlPlane
from kctl.server.loop.slices import release, sliced
from kctl.server.requests.context import RequestContext

FIRST_VERSION_WITH_TOPIC_IDS = 5


class LeaderAndIsrHandler:
    """Serves LeaderAndIsr requests.  Owner: event loop."""

    def __init__(self, control_plane: BrokerControlPlane, authority: ControllerAuthority) -> None:
        self._control_plane = control_plane
        self._authority = authority

    async def handle(self, request: LeaderAndIsrRequest, context: RequestContext) -> LeaderAndIsrResponse:
        """Serve one request and return the response."""
        try:
            return await self._respond(request, context)
        finally:
            partitions = (topic.partition_states for topic in request.topic_states)
            others = (request.topic_states, request.ungrouped_partition_states, request.live_leaders)
            await release(chain(partitions, others))

    async def _respond(self, request: LeaderAndIsrRequest, context: RequestContext) -> LeaderAndIsrResponse:
        if not context.allows_on_cluster(Operation.CLUSTER_ACTION):
            return LeaderAndIsrResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        try:
            await self._authority.check(Claim(request.controller_id, request.controller_epoch, request.broker_epoch))
            errors = await self._control_plane.leader_and_isr(request)
        except ApiError as error:
            return LeaderAndIsrResponse(error_code=error.code)
        if context.api_version < FIRST_VERSION_WITH_TOPIC_IDS:
            return LeaderAndIsrResponse(
                error_code=ErrorCode.NONE,
                partition_errors=[
                    LeaderAndIsrPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
                    async for tp, code in sliced(errors.items())
                ],
            )
        by_topic: dict[str, list[LeaderAndIsrPartitionError]] = {}
        async for (topic_name, partition), code in sliced(errors.items()):
            error_of_partition = LeaderAndIsrPartitionError(partition_index=partition, error_code=code)
            by_topic.setdefault(topic_name, []).append(error_of_partition)
        topics = [
            LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=by_topic.get(topic.topic_name, []))
            async for topic in sliced(request.topic_states)
        ]
        return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=topics)

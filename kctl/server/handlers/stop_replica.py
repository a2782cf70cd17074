"""StopReplica (key 5, versions 0-3): the controller stops replicas on this broker, and deletes their logs if requested.

Version notes: 0 and 1 delete all or none and list partitions flat or by topic; 1 broker epoch; 3 leader epochs, and a
delete flag per partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from kctl.security.acls import Operation
from kctl.server.cluster.control.authority import Claim, ControllerAuthority
from kctl.server.cluster.control.plane import BrokerControlPlane
from kctl.server.loop.slices import release, sliced
from kctl.server.requests.context import RequestContext

FIRST_VERSION_WITH_EPOCHS = 3
_ANY_EPOCH = -1


class StopReplicaHandler:
    """Serves StopReplica requests.  Owner: event loop."""

    def __init__(self, control_plane: BrokerControlPlane, authority: ControllerAuthority) -> None:
        self._control_plane = control_plane
        self._authority = authority

    async def handle(self, request: StopReplicaRequest, context: RequestContext) -> StopReplicaResponse:
        """Serve one request and return the response."""
        if context.api_version < FIRST_VERSION_WITH_EPOCHS:
            request.topic_states = [topic async for topic in sliced(_topic_states(request))]
        try:
            return await self._respond(request, context)
        finally:
            partitions = (topic.partition_states for topic in request.topic_states)
            others = (request.topic_states, request.topics, request.ungrouped_partitions)
            await release(chain(partitions, others))

    async def _respond(self, request: StopReplicaRequest, context: RequestContext) -> StopReplicaResponse:
        if not context.allows_on_cluster(Operation.CLUSTER_ACTION):
            return StopReplicaResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, partition_errors=[])
        try:
            await self._authority.check(Claim(request.controller_id, request.controller_epoch, request.broker_epoch))
            errors = await self._control_plane.stop_replica(request)
        except ApiError as error:
            return StopReplicaResponse(error_code=error.code, partition_errors=[])
        return StopReplicaResponse(
            error_code=ErrorCode.NONE,
            partition_errors=[
                StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
                async for tp, code in sliced(errors.items())
            ],
        )


def _topic_states(request: StopReplicaRequest) -> Iterator[StopReplicaTopicState]:
    """Yield the partitions of an old request in the newest version."""
    flat = ((state.topic_name, state.partition_index) for state in request.ungrouped_partitions)
    grouped = ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
    for topic_name, index in chain(flat, grouped):
        state = StopReplicaPartitionState(
            partition_index=index, leader_epoch=_ANY_EPOCH, delete_partition=request.delete_partitions
        )
        yield StopReplicaTopicState(topic_name=topic_name, partition_states=[state])

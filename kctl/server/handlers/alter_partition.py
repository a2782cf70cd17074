"""AlterPartition (key 56, version 0; AlterIsr in 2.8): leaders change the ISR through the controller.  KIP-497.

Only the active controller serves it, and only for a broker's current epoch.  Each partition has its state as written,
or an error: FENCED_LEADER_EPOCH and INVALID_UPDATE_VERSION mean that a newer LeaderAndIsr will follow.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.model import LeaderAndIsr, TopicPartition
from kctl.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from kctl.security.acls import Operation
from kctl.server.cluster.controller.runner import ControllerRunner
from kctl.server.requests.context import RequestContext

_NOTHING = LeaderAndIsr(0, 0, (), 0, partition_epoch=0)


class AlterPartitionHandler:
    """Serves AlterPartition requests.  Owner: event loop."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller

    async def handle(self, request: AlterPartitionRequest, context: RequestContext) -> AlterPartitionResponse:
        """Serve one request and return the response."""
        if not context.allows_on_cluster(Operation.CLUSTER_ACTION):
            return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[])
        state = self._controller.state
        if not state.is_active:
            return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER, topics=[])
        live = state.brokers.get(request.broker_id)
        if live is None or live.epoch != request.broker_epoch:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, topics=[])
        requested = {
            TopicPartition(topic.topic_name, partition.partition_index): LeaderAndIsr(
                request.broker_id,
                partition.leader_epoch,
                tuple(partition.new_isr),
                0,
                partition_epoch=partition.partition_epoch,
            )
            for topic in request.topics
            for partition in topic.partitions
        }
        outcome = await self._controller.alter_isrs(requested)
        if not outcome and requested:
            return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER, topics=[])
        topics: dict[str, list[ResponsePartitionData]] = {}
        for topic_partition, code in outcome.items():
            is_done = code is ErrorCode.NONE
            current = state.leaders.get(topic_partition, _NOTHING) if is_done else _NOTHING
            topics.setdefault(topic_partition.topic, []).append(
                ResponsePartitionData(
                    partition_index=topic_partition.partition,
                    error_code=code,
                    leader_id=current.leader,
                    leader_epoch=current.leader_epoch,
                    isr=list(current.isr),
                    partition_epoch=current.partition_epoch,
                )
            )
        return AlterPartitionResponse(
            error_code=ErrorCode.NONE,
            topics=[ResponseTopicData(topic_name=topic, partitions=partitions) for topic, partitions in topics.items()],
        )

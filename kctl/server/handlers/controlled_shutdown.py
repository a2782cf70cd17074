"""ControlledShutdown (key 7, versions 0-3): the controller moves leadership away from a broker that shuts down.

The response lists the replicated partitions that the broker still leads; the broker repeats the request until there
are none.

Version notes: 0 has a request header without client id; 2 the broker epoch, which fences earlier runs of the broker.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.protocol.apis.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from kctl.security.acls import Operation
from kctl.server.controller.runner import ControllerRunner
from kctl.server.requests.context import RequestContext

FIRST_VERSION_WITH_BROKER_EPOCH = 2


class ControlledShutdownHandler:
    """Serves ControlledShutdown requests.  Owner: event loop."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller

    async def handle(self, request: ControlledShutdownRequest, context: RequestContext) -> ControlledShutdownResponse:
        """Serves one request and returns the response."""
        if not context.allows_on_cluster(Operation.CLUSTER_ACTION):
            return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        state = self._controller.state
        if not state.is_active:
            # Kafka's "controller moved": the broker looks for the controller again.
            return _refused(ErrorCode.STALE_CONTROLLER_EPOCH)
        live = state.brokers.get(request.broker_id)
        if live is None:
            return _refused(ErrorCode.BROKER_NOT_AVAILABLE)
        if context.api_version >= FIRST_VERSION_WITH_BROKER_EPOCH and request.broker_epoch < live.epoch:
            return _refused(ErrorCode.STALE_BROKER_EPOCH)
        remaining = await self._controller.controlled_shutdown(request.broker_id)
        return ControlledShutdownResponse(
            error_code=ErrorCode.NONE,
            remaining_partitions=[
                RemainingPartition(topic_name=tp.topic, partition_index=tp.partition) for tp in remaining
            ],
        )


def _refused(code: ErrorCode) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(error_code=code, remaining_partitions=[])

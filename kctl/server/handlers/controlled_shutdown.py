"""ControlledShutdown (key 7, versions 0-3): the controller moves leadership away from a broker that shuts down.

The response lists the replicated partitions that the broker still leads; the broker repeats the request until there
are none.

A broker that is shutting down leads no new partitions until it registers again, so a false request would take it out of
service until it restarts.  Only the broker itself sends its current epoch: other epochs are refused, also larger
ones, which Kafka accepts.  Requests without an epoch are accepted only for brokers whose
inter.broker.protocol.version may send them, and not for the controller's own broker, which calls the controller
directly.

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
from kctl.server.cluster.controller.runner import ControllerRunner
from kctl.server.cluster.controller.state import LiveBroker
from kctl.server.peers.versions import FIRST_REGISTRATION_WITH_FEATURES
from kctl.server.requests.context import RequestContext

FIRST_VERSION_WITH_BROKER_EPOCH = 2


class ControlledShutdownHandler:
    """Serves ControlledShutdown requests.  Owner: event loop."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller

    async def handle(self, request: ControlledShutdownRequest, context: RequestContext) -> ControlledShutdownResponse:
        """Serve one request and return the response."""
        if not context.allows_on_cluster(Operation.CLUSTER_ACTION):
            return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        state = self._controller.state
        if not state.is_active:
            # Kafka's "controller moved": the broker looks for the controller again.
            return _refused(ErrorCode.STALE_CONTROLLER_EPOCH)
        live = state.brokers.get(request.broker_id)
        if live is None:
            return _refused(ErrorCode.BROKER_NOT_AVAILABLE)
        if not _is_current(request, context.api_version, live, is_own_broker=request.broker_id == state.broker_id):
            return _refused(ErrorCode.STALE_BROKER_EPOCH)
        remaining = await self._controller.controlled_shutdown(request.broker_id)
        return ControlledShutdownResponse(
            error_code=ErrorCode.NONE,
            remaining_partitions=[
                RemainingPartition(topic_name=tp.topic, partition_index=tp.partition) for tp in remaining
            ],
        )


def _is_current(request: ControlledShutdownRequest, version: int, live: LiveBroker, *, is_own_broker: bool) -> bool:
    """Return whether the request can be from the current run of the broker.

    Brokers send their epoch since inter.broker.protocol.version 2.2; a registration shows whether it is 2.7 or later.
    """
    if version >= FIRST_VERSION_WITH_BROKER_EPOCH:
        return request.broker_epoch == live.epoch
    return not is_own_broker and live.registration.version < FIRST_REGISTRATION_WITH_FEATURES


def _refused(code: ErrorCode) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(error_code=code, remaining_partitions=[])

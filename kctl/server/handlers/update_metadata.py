"""UpdateMetadata (key 6, versions 0-7): the controller sends the live brokers and the partition states.

Version notes: 1 several endpoints per broker; 2 racks; 3 listener names; 5 groups by topic, broker epoch; 7 topic ids.
"""

from __future__ import annotations

from itertools import chain

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.update_metadata import UpdateMetadataEndpoint, UpdateMetadataRequest, UpdateMetadataResponse
from kctl.security.acls import Operation
from kctl.server.cluster.control.authority import Claim, ControllerAuthority
from kctl.server.cluster.control.plane import BrokerControlPlane
from kctl.server.loop.slices import release
from kctl.server.requests.context import RequestContext

FIRST_VERSION_WITH_LISTENERS = 3
_PROTOCOL_NAMES = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


class UpdateMetadataHandler:
    """Serves UpdateMetadata requests.  Owner: event loop."""

    def __init__(self, control_plane: BrokerControlPlane, authority: ControllerAuthority) -> None:
        self._control_plane = control_plane
        self._authority = authority

    async def handle(self, request: UpdateMetadataRequest, context: RequestContext) -> UpdateMetadataResponse:
        """Serve one request and return the response."""
        try:
            return await self._respond(request, context)
        finally:
            partitions = (topic.partition_states for topic in request.topic_states)
            others = (request.topic_states, request.ungrouped_partition_states, request.live_brokers)
            await release(chain(partitions, others))

    async def _respond(self, request: UpdateMetadataRequest, context: RequestContext) -> UpdateMetadataResponse:
        if context.api_version < FIRST_VERSION_WITH_LISTENERS:
            _name_listeners(request, context.api_version)
        if not context.allows_on_cluster(Operation.CLUSTER_ACTION):
            return UpdateMetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        try:
            await self._authority.check(Claim(request.controller_id, request.controller_epoch, request.broker_epoch))
            await self._control_plane.update_metadata(request, may_clear=True)
        except ApiError as error:
            return UpdateMetadataResponse(error_code=error.code)
        return UpdateMetadataResponse(error_code=ErrorCode.NONE)


def _name_listeners(request: UpdateMetadataRequest, version: int) -> None:
    """Set listener names of old versions: the name of a listener was that of its security protocol."""
    for broker in request.live_brokers:
        if version == 0:
            broker.endpoints = [UpdateMetadataEndpoint(port=broker.v0_port, host=broker.v0_host, security_protocol=0)]
        for endpoint in broker.endpoints:
            endpoint.listener = _PROTOCOL_NAMES.get(endpoint.security_protocol, "PLAINTEXT")

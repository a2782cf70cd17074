"""ListConfigResources (key 74, versions 0-1): the names of the resources that can have properties of their own.

Needs the permission to describe the configuration of the cluster.  Topics, brokers and their loggers are all that
exist; groups are those with properties of their own.  There are no subscriptions to client metrics.

Version notes: 0 only subscriptions to client metrics (KIP-714); 1 the requested types, all if there are none;
UNSUPPORTED_VERSION for a type that cannot be listed (KIP-1142).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kctl.config.dynamic import ConfigView
from kctl.errors import ErrorCode
from kctl.limits import SLICE_OBJECTS
from kctl.protocol.apis.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kctl.security.acls import Operation
from kctl.server.cluster.configs.alterations import ResourceType
from kctl.server.loop.slices import sliced
from kctl.server.peers.metadata import MetadataCache
from kctl.server.requests.context import RequestContext

FIRST_VERSION_WITH_TYPES = 1
CLIENT_METRICS = 16


class ListConfigResourcesHandler:
    """Serves ListConfigResources requests.  Owner: event loop."""

    def __init__(self, configs: ConfigView, metadata: MetadataCache) -> None:
        self._names: Mapping[int, Callable[[], Iterable[str]]] = {
            ResourceType.GROUP: lambda: configs.group_overrides,
            CLIENT_METRICS: tuple,
            ResourceType.BROKER_LOGGER: lambda: map(str, metadata.brokers),
            ResourceType.BROKER: lambda: map(str, metadata.brokers),
            ResourceType.TOPIC: lambda: metadata.topics,
        }

    async def handle(self, request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
        """Serve one request and return the response."""
        if not context.allows_on_cluster(Operation.DESCRIBE_CONFIGS):
            return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        types = {*request.resource_types} or {*self._names}
        if context.api_version < FIRST_VERSION_WITH_TYPES:
            types = {CLIENT_METRICS}
        if not types <= self._names.keys():
            return _refused(ErrorCode.UNSUPPORTED_VERSION)
        resources = [
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, names in self._names.items()
            if kind in types
            async for name in sliced(list(names()), SLICE_OBJECTS)
        ]
        return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=resources)


def _refused(code: ErrorCode) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=code, config_resources=[])

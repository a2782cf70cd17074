"""AlterConfigs (key 33, versions 0-2): replaces all overrides of a topic or a broker; omitted ones are removed.

Any broker alters topics; a broker alters only its own configuration and, under the empty name, the defaults of all
brokers.  The change is a znode and a notification, which every broker applies a moment later.  Each resource has its
own result; one that is listed twice gets INVALID_REQUEST.  Clients should use IncrementalAlterConfigs (KIP-339).
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from kctl.security.acls import Operation
from kctl.server.cluster.configs.alterations import ResourceType, replaced
from kctl.server.cluster.configs.resources import ConfigResources, check_access
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import outcomes_of_resources


class AlterConfigsHandler:
    """Serves AlterConfigs requests.  Owner: event loop."""

    def __init__(self, resources: ConfigResources) -> None:
        self._resources = resources

    async def handle(self, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
        """Serve one request and return the response."""
        outcomes = await outcomes_of_resources(
            request.resources, lambda resource: self._alter(resource, context, validate_only=request.validate_only)
        )
        return AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=outcome.code,
                    error_message=outcome.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource, outcome in outcomes
            ]
        )

    async def _alter(self, resource: AlterConfigsResource, context: RequestContext, *, validate_only: bool) -> None:
        """Alter the configuration of a resource, or raise ApiError or ZooKeeperError."""
        check_access(context, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
        if resource.resource_type == ResourceType.TOPIC and not resource.resource_name:
            # IncrementalAlterConfigs responds with INVALID_REQUEST; Kafka has no such check for this request.
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic '' does not exist.")
        overrides = replaced([(entry.name, entry.value) for entry in resource.configs])
        entity_path = self._resources.entity_path(resource.resource_type, resource.resource_name)
        await self._resources.check(resource.resource_type, resource.resource_name, overrides, {**overrides})
        if not validate_only:
            await self._resources.replace(entity_path, overrides)

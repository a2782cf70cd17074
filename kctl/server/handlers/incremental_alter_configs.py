"""IncrementalAlterConfigs (key 44, versions 0-1): sets, deletes, appends to, subtracts from overrides.  KIP-339.

The brokers that may alter a resource are those of AlterConfigs.  Append and subtract are for lists; for a list without
an override they start from its default.  The levels of this broker's loggers can be set and deleted (KIP-412).
"""

from __future__ import annotations

from collections.abc import Callable

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kctl.security import acls
from kctl.server.cluster.configs.alterations import Alteration, Operation, ResourceType, altered, check_alterations
from kctl.server.cluster.configs.loggers import check_logger, set_logger
from kctl.server.cluster.configs.resources import ConfigResources, check_access, check_this_broker
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import outcomes_of_resources


class IncrementalAlterConfigsHandler:
    """Serves IncrementalAlterConfigs requests.  Owner: event loop."""

    def __init__(self, broker_id: int, resources: ConfigResources, levels_changed: Callable[[], None]) -> None:
        self._broker_id = broker_id
        self._resources = resources
        self._levels_changed = levels_changed

    async def handle(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext
    ) -> IncrementalAlterConfigsResponse:
        """Serve one request and return the response."""
        outcomes = await outcomes_of_resources(
            request.resources, lambda resource: self._alter(resource, context, validate_only=request.validate_only)
        )
        return IncrementalAlterConfigsResponse(
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
        check_access(context, acls.Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
        alterations = [Alteration(entry.name, entry.config_operation, entry.value) for entry in resource.configs]
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            self._alter_loggers(resource.resource_name, alterations, validate_only=validate_only)
            return
        # Before the resource is looked up, as in Kafka; `altered` checks again.
        check_alterations(alterations)
        kind, name = resource.resource_type, resource.resource_name
        entity_path = self._resources.entity_path(kind, name)
        current = await self._resources.current(entity_path)
        overrides = altered(current, alterations, self._resources.properties(kind))
        requested = {alteration.name: alteration.value for alteration in alterations}
        await self._resources.check(kind, name, overrides, requested)
        if not validate_only:
            await self._resources.replace(entity_path, overrides)

    def _alter_loggers(self, name: str, alterations: list[Alteration], *, validate_only: bool) -> None:
        check_this_broker(name, self._broker_id)
        check_alterations(alterations)
        for alteration in alterations:
            if alteration.operation not in {Operation.SET, Operation.DELETE}:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"The level of logger {alteration.name} can only be set or deleted"
                )
            check_logger(alteration.name, alteration.value if alteration.operation == Operation.SET else None)
        if not validate_only:
            for alteration in alterations:
                set_logger(alteration.name, alteration.value if alteration.operation == Operation.SET else None)
            self._levels_changed()

"""DescribeAcls (key 29, versions 0-2): the ACLs that a filter selects.  KIP-140, KIP-290 (prefixed patterns).

Requires DESCRIBE on the cluster.  Any broker responds from its cache, which is updated shortly after a change.  Without
an authorizer the response is SECURITY_DISABLED.

Kafka closes the connection if the filter has code 0 (UNKNOWN); here it gets INVALID_REQUEST.

Version notes: 1 pattern types; 2 flexible.
"""

from __future__ import annotations

from kctl.errors import ApiError
from kctl.protocol.apis.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kctl.security.acls import AclEntry, Operation, ResourcePattern
from kctl.server.loop.slices import sliced
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import CLUSTER_DENIED, NO_AUTHORIZER, Outcome, requested_filter
from kctl.server.security.authorization.access import Authorizer


class DescribeAclsHandler:
    """Serves DescribeAcls requests.  Owner: event loop."""

    def __init__(self, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer

    async def handle(self, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
        """Serve one request and return the response."""
        if not context.allows_on_cluster(Operation.DESCRIBE):
            return _refused(CLUSTER_DENIED)
        if self._authorizer is None:
            return _refused(NO_AUTHORIZER)
        try:
            selection = requested_filter(request)
        except ApiError as error:
            return _refused(Outcome.of(error))
        resources: dict[ResourcePattern, DescribeAclsResource] = {}
        async for binding in sliced(self._authorizer.acls()):
            if selection.selects(binding):
                pattern = binding.pattern
                resource = resources.get(pattern)
                if resource is None:
                    resource = resources[pattern] = DescribeAclsResource(
                        resource_type=pattern.type,
                        resource_name=pattern.name,
                        pattern_type=pattern.pattern_type,
                        acls=[],
                    )
                resource.acls.append(_description(binding.entry))
        return DescribeAclsResponse(error_code=0, resources=list(resources.values()))


def _description(entry: AclEntry) -> AclDescription:
    return AclDescription(
        principal=entry.principal, host=entry.host, operation=entry.operation, permission_type=entry.permission
    )


def _refused(outcome: Outcome) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=outcome.code, error_message=outcome.message, resources=[])

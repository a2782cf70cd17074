"""DeleteAcls (key 31, versions 0-2): removes the ACLs that filters select.  KIP-140, KIP-290 (prefixed patterns).

Requires ALTER on the cluster.  Any broker serves it and announces the change to the others.  Each filter has its own
result with the ACLs that were removed; one that several filters select is in the result of the first.  Without an
authorizer every filter gets SECURITY_DISABLED.

Kafka closes the connection if a filter has code 0 (UNKNOWN); here that filter gets INVALID_REQUEST.

Version notes: 1 pattern types; 2 flexible.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.limits import ACL_CHANGES_MAX
from kctl.protocol.apis.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kctl.security.acls import AclBinding, AclFilter, Operation
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import CLUSTER_DENIED, NO_AUTHORIZER, Outcome, requested_filter
from kctl.server.security.authorization.access import Authorizer

_TOO_MANY = Outcome(ErrorCode.INVALID_REQUEST, f"A request can have at most {ACL_CHANGES_MAX} filters.")


class DeleteAclsHandler:
    """Serves DeleteAcls requests.  Owner: event loop."""

    def __init__(self, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer

    async def handle(self, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
        """Serve one request and return the response."""
        if not context.allows_on_cluster(Operation.ALTER):
            return _all_refused(request, CLUSTER_DENIED)
        if self._authorizer is None:
            return _all_refused(request, NO_AUTHORIZER)
        if len(request.filters) > ACL_CHANGES_MAX:
            return _all_refused(request, _TOO_MANY)
        refused: list[Outcome | None] = []
        filters: list[AclFilter] = []
        for acl_filter in request.filters:
            try:
                filters.append(requested_filter(acl_filter))
                refused.append(None)
            except ApiError as error:
                refused.append(Outcome.of(error))
        deleted = iter(await self._authorizer.delete(filters))
        return DeleteAclsResponse(
            filter_results=[_refused(outcome) if outcome is not None else _result(next(deleted)) for outcome in refused]
        )


def _result(deleted: list[tuple[AclBinding, Outcome]]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=ErrorCode.NONE,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_code=outcome.code,
                error_message=outcome.message,
                resource_type=pattern.type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for (pattern, entry), outcome in deleted
        ],
    )


def _all_refused(request: DeleteAclsRequest, outcome: Outcome) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_refused(outcome) for _ in request.filters])


def _refused(outcome: Outcome) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=outcome.code, error_message=outcome.message, matching_acls=[])

"""CreateAcls (key 30, versions 0-2): adds ACLs.  KIP-140, KIP-290 (prefixed patterns).

Requires ALTER on the cluster.  Any broker serves it and announces the change to the others.  Each ACL has its own
result; one that exists already succeeds.  Without an authorizer every ACL gets SECURITY_DISABLED.

Kafka closes the connection if an ACL has code 0 (UNKNOWN); here that ACL gets INVALID_REQUEST.

Version notes: 1 pattern types; 2 flexible.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.limits import ACL_CHANGES_MAX
from kctl.protocol.apis.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kctl.security.acls import AclBinding, Operation
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import CLUSTER_DENIED, NO_AUTHORIZER, Outcome, requested_binding
from kctl.server.security.authorization.access import Authorizer

_TOO_MANY = Outcome(ErrorCode.INVALID_REQUEST, f"A request can have at most {ACL_CHANGES_MAX} ACLs.")


class CreateAclsHandler:
    """Serves CreateAcls requests.  Owner: event loop."""

    def __init__(self, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer

    async def handle(self, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
        """Serve one request and return the response."""
        creations = request.creations
        if not context.allows_on_cluster(Operation.ALTER):
            return _response([CLUSTER_DENIED] * len(creations))
        if self._authorizer is None:
            return _response([NO_AUTHORIZER] * len(creations))
        if len(creations) > ACL_CHANGES_MAX:
            return _response([_TOO_MANY] * len(creations))
        outcomes: list[Outcome | None] = []
        bindings: list[AclBinding] = []
        for creation in creations:
            try:
                bindings.append(requested_binding(creation))
                outcomes.append(None)
            except ApiError as error:
                outcomes.append(Outcome.of(error))
        created = iter(await self._authorizer.create(bindings))
        return _response([next(created) if outcome is None else outcome for outcome in outcomes])


def _response(outcomes: list[Outcome]) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=outcome.code, error_message=outcome.message) for outcome in outcomes]
    )

"""DeleteAcls (key 31, versions 0-2): each filter is refused with SECURITY_DISABLED, as without an authorizer in Kafka.

Kafka closes the connection when a filter holds the code 0 (UNKNOWN); here that filter gets the same answer.

Not done: ACLs.
"""

from __future__ import annotations

from kctl.protocol.apis.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import NO_AUTHORIZER


def delete_acls(request: DeleteAclsRequest, _context: RequestContext) -> DeleteAclsResponse:
    """One result per filter, in the order of the request."""
    refusal = DeleteAclsFilterResult(
        error_code=NO_AUTHORIZER.code, error_message=NO_AUTHORIZER.message, matching_acls=[]
    )
    return DeleteAclsResponse(filter_results=[refusal for _ in request.filters])

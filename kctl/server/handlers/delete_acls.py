"""DeleteAcls (key 31, versions 0-2): each filter gets SECURITY_DISABLED, as in Kafka without an authorizer.

Kafka closes the connection if a filter has code 0 (UNKNOWN); here that filter gets the same error.

Not done: ACLs.
"""

from __future__ import annotations

from kctl.protocol.apis.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import NO_AUTHORIZER


def delete_acls(request: DeleteAclsRequest, _context: RequestContext) -> DeleteAclsResponse:
    """Returns one result per filter, in request order."""
    refusal = DeleteAclsFilterResult(
        error_code=NO_AUTHORIZER.code, error_message=NO_AUTHORIZER.message, matching_acls=[]
    )
    return DeleteAclsResponse(filter_results=[refusal for _ in request.filters])

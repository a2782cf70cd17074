"""CreateAcls (key 30, versions 0-2): each rule gets SECURITY_DISABLED, as in Kafka without an authorizer.

Kafka closes the connection if a rule has code 0 (UNKNOWN); here that rule gets the same error.

Not done: ACLs.
"""

from __future__ import annotations

from kctl.protocol.apis.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import NO_AUTHORIZER


def create_acls(request: CreateAclsRequest, _context: RequestContext) -> CreateAclsResponse:
    """Returns one result per rule, in request order."""
    refusal = AclCreationResult(error_code=NO_AUTHORIZER.code, error_message=NO_AUTHORIZER.message)
    return CreateAclsResponse(results=[refusal for _ in request.creations])

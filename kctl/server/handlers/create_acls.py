"""CreateAcls (key 30, versions 0-2): each rule is refused with SECURITY_DISABLED, as without an authorizer in Kafka.

Kafka closes the connection when a rule holds the code 0 (UNKNOWN); here that rule gets the same answer.

Not done: ACLs.
"""

from __future__ import annotations

from kctl.protocol.apis.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import NO_AUTHORIZER


def create_acls(request: CreateAclsRequest, _context: RequestContext) -> CreateAclsResponse:
    """One result per rule, in the order of the request."""
    refusal = AclCreationResult(error_code=NO_AUTHORIZER.code, error_message=NO_AUTHORIZER.message)
    return CreateAclsResponse(results=[refusal for _ in request.creations])

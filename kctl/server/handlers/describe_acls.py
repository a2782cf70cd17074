"""DescribeAcls (key 29, versions 0-2): always SECURITY_DISABLED, as on a Kafka broker without an authorizer.

Kafka closes the connection if the filter has code 0 (UNKNOWN); here that filter gets the same error.

Not done: ACLs.
"""

from __future__ import annotations

from kctl.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import NO_AUTHORIZER


def describe_acls(_request: DescribeAclsRequest, _context: RequestContext) -> DescribeAclsResponse:
    """Refuses the whole request."""
    return DescribeAclsResponse(error_code=NO_AUTHORIZER.code, error_message=NO_AUTHORIZER.message, resources=[])

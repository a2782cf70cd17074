"""ExpireDelegationToken (key 40, versions 0-2): always DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Kafka lets only authenticated clients expire tokens; here no client is authenticated.

Not done: delegation tokens.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from kctl.server.requests.context import RequestContext


def expire_delegation_token(
    _request: ExpireDelegationTokenRequest, _context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Refuses the request, for any token."""
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
    )

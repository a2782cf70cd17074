"""RenewDelegationToken (key 39, versions 0-2): always DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Kafka lets only authenticated clients renew tokens; here no client is authenticated.

Not done: delegation tokens.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from kctl.server.requests.context import RequestContext


def renew_delegation_token(
    _request: RenewDelegationTokenRequest, _context: RequestContext
) -> RenewDelegationTokenResponse:
    """Refuses the request, for any token."""
    return RenewDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
    )

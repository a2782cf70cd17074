"""CreateDelegationToken (key 38, versions 0-2): always DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Kafka creates tokens only for authenticated clients (SASL or a certificate); here no client is authenticated.

Not done: delegation tokens.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.protocol.apis.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from kctl.server.requests.context import RequestContext


def create_delegation_token(
    _request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Returns the requesting principal and no token."""
    principal_type, _, principal_name = context.principal.partition(":")
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=principal_type,
        principal_name=principal_name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )

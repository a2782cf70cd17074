"""DescribeDelegationToken (key 41, versions 0-2): always DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Kafka describes tokens only to authenticated clients; here no client is authenticated.

Not done: delegation tokens.
"""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.protocol.apis.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kctl.server.requests.context import RequestContext


def describe_delegation_token(
    _request: DescribeDelegationTokenRequest, _context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Refuses the request, for any owner of tokens."""
    return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, tokens=[])

"""RenewDelegationToken (key 39, versions 0-2): extends the life of a token.

Any broker serves it, for the owner and the renewers of the token.  Clients that are not authenticated, or that
authenticated with a token, get DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from kctl.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import outcome_of
from kctl.server.security.tokens.token import require_authenticated
from kctl.server.security.tokens.token_manager import TokenManager


class RenewDelegationTokenHandler:
    """Serves RenewDelegationToken requests.  Owner: event loop."""

    def __init__(self, tokens: TokenManager) -> None:
        self._tokens = tokens

    async def handle(
        self, request: RenewDelegationTokenRequest, context: RequestContext
    ) -> RenewDelegationTokenResponse:
        """Serve one request and return the response."""
        expiry_ms: list[int] = []
        outcome = await outcome_of(self._renew(request, context, expiry_ms))
        return RenewDelegationTokenResponse(
            error_code=outcome.code, expiry_timestamp_ms=expiry_ms[0] if outcome.is_success else -1
        )

    async def _renew(self, request: RenewDelegationTokenRequest, context: RequestContext, expiry_ms: list[int]) -> None:
        require_authenticated(context.peer)
        expiry_ms.append(
            await self._tokens.renew(context.principal, bytes(request.hmac), period_ms=request.renew_period_ms)
        )

"""CreateDelegationToken (key 38, versions 0-2): a token that a client can pass on, to authenticate as the owner.

Any broker serves it.  Clients that are not authenticated, or that authenticated with a token, get
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED; a renewer whose type is not User gets INVALID_PRINCIPAL_TYPE; without
delegation.token.secret.key the error is DELEGATION_TOKEN_AUTH_DISABLED.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.protocol.apis.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import outcome_of
from kctl.server.security.tokens.token import DelegationToken, require_authenticated
from kctl.server.security.tokens.token_manager import TokenManager

TOKEN_RENEWERS_MAX = bound(
    Subject.AUTHENTICATION,
    "renewers of one delegation token",
    100,
    "principals",
    on_excess="INVALID_REQUEST",
)


_USER = "User"


class CreateDelegationTokenHandler:
    """Serves CreateDelegationToken requests.  Owner: event loop."""

    def __init__(self, tokens: TokenManager) -> None:
        self._tokens = tokens

    async def handle(
        self, request: CreateDelegationTokenRequest, context: RequestContext
    ) -> CreateDelegationTokenResponse:
        """Serve one request and return the response."""
        created: list[DelegationToken] = []
        outcome = await outcome_of(self._create(request, context, created))
        principal_type, _, principal_name = context.principal.partition(":")
        token = created[0] if outcome.is_success else None
        return CreateDelegationTokenResponse(
            error_code=outcome.code,
            principal_type=principal_type,
            principal_name=principal_name,
            issue_timestamp_ms=token.issue_ms if token else -1,
            expiry_timestamp_ms=token.expiry_ms if token else -1,
            max_timestamp_ms=token.max_ms if token else -1,
            token_id=token.token_id if token else "",
            hmac=self._tokens.cache.hmac(token.token_id) if token else b"",
        )

    async def _create(
        self, request: CreateDelegationTokenRequest, context: RequestContext, created: list[DelegationToken]
    ) -> None:
        require_authenticated(context.peer)
        if any(renewer.principal_type != _USER or not renewer.principal_name for renewer in request.renewers):
            raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        if len(request.renewers) > TOKEN_RENEWERS_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        renewers = [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers]
        created.append(await self._tokens.create(context.principal, renewers, max_lifetime_ms=request.max_lifetime_ms))

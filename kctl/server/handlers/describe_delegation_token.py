"""DescribeDelegationToken (key 41, versions 0-2): the tokens of some owners or renewers, or all, with their secrets.

A client gets the tokens that it owns or may renew, and those that the authorizer allows it to describe; without an
authorizer it gets all tokens, as in Kafka.  Clients that are not authenticated, or that authenticated with a token, get
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.loop.slices import sliced
from kctl.server.requests.context import RequestContext
from kctl.server.security.tokens.token import DelegationToken, require_authenticated
from kctl.server.security.tokens.token_manager import TokenManager


class DescribeDelegationTokenHandler:
    """Serves DescribeDelegationToken requests.  Owner: event loop."""

    def __init__(self, tokens: TokenManager) -> None:
        self._tokens = tokens

    async def handle(
        self, request: DescribeDelegationTokenRequest, context: RequestContext
    ) -> DescribeDelegationTokenResponse:
        """Serve one request and return the response."""
        try:
            require_authenticated(context.peer)
            self._tokens.require_enabled()
        except ApiError as error:
            return DescribeDelegationTokenResponse(error_code=error.code, tokens=[])
        owners = None
        if request.owners is not None:
            owners = {f"{principal.principal_type}:{principal.principal_name}" for principal in request.owners}
        tokens = [
            self._described(token)
            async for token in sliced(self._tokens.cache.tokens())
            if (owners is None or token.owner in owners or not owners.isdisjoint(token.renewers))
            and _may_describe(token, context)
        ]
        return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=tokens)

    def _described(self, token: DelegationToken) -> DescribedDelegationToken:
        principal_type, _, principal_name = token.owner.partition(":")
        renewers = [renewer.partition(":")[::2] for renewer in token.renewers]
        return DescribedDelegationToken(
            principal_type=principal_type,
            principal_name=principal_name,
            issue_timestamp=token.issue_ms,
            expiry_timestamp=token.expiry_ms,
            max_timestamp=token.max_ms,
            token_id=token.token_id,
            hmac=self._tokens.cache.hmac(token.token_id),
            renewers=[
                DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name) for kind, name in renewers
            ],
        )


def _may_describe(token: DelegationToken, context: RequestContext) -> bool:
    """Kafka: DelegationTokenManager.filterToken."""
    if context.principal in {token.owner, *token.renewers}:
        return True
    return not context.denied(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, (token.token_id,), is_logged=False)

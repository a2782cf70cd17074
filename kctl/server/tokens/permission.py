"""Which clients may use the APIs of delegation tokens.  Kafka: KafkaApis.allowTokenRequests (2.8).  Pure."""

from __future__ import annotations

from kctl.errors import ApiError, ErrorCode
from kctl.server.requests.context import ANONYMOUS, Peer


def require_authenticated(peer: Peer) -> None:
    """Raises ApiError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED) unless the client authenticated without a token.

    A token must not be able to create another one, which would outlive it.
    """
    is_anonymous = peer.security_protocol == "PLAINTEXT" or (
        peer.security_protocol == "SSL" and peer.principal == ANONYMOUS
    )
    if is_anonymous or peer.is_token_authenticated:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)

"""Delegation tokens and the rules for them.  KIP-48.

Kafka: DelegationTokenManager (2.8), DelegationTokenTokenInfoZNode.

Pure.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, replace

from kctl.errors import ApiError, ErrorCode
from kctl.server.requests.context import ANONYMOUS, Peer


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token as stored in ZooKeeper; its HMAC is derived from the id.  Times are wall-clock times in ms."""

    token_id: str
    """The user name for SCRAM."""
    owner: str
    """The principal that a client with this token gets, as `Type:name`."""
    renewers: tuple[str, ...]
    """Principals that may also renew and expire it."""
    issue_ms: int
    max_ms: int
    """The latest time to which it can be renewed."""
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Return whether it can neither be used nor renewed."""
        return min(self.max_ms, self.expiry_ms) < now_ms

    def belongs_to(self, principal: str) -> bool:
        """Return whether the principal may renew, expire and describe it."""
        return principal == self.owner or principal in self.renewers


@dataclass(frozen=True, slots=True)
class TokenLifetimes:
    """delegation.token.max.lifetime.ms and delegation.token.expiry.time.ms."""

    max_ms: int
    expiry_ms: int


def token_hmac(secret: str, token_id: str) -> bytes:
    """Return the secret of a token; its base64 text is the password for SCRAM."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def new_token(
    token_id: str,
    *,
    owner: str,
    renewers: tuple[str, ...],
    max_lifetime_ms: int,
    lifetimes: TokenLifetimes,
    now_ms: int,
) -> DelegationToken:
    """Return a new token.  `max_lifetime_ms` of the request is used if it is positive and below that of the broker."""
    lifetime_ms = min(max_lifetime_ms, lifetimes.max_ms) if max_lifetime_ms > 0 else lifetimes.max_ms
    return DelegationToken(
        token_id=token_id,
        owner=owner,
        renewers=renewers,
        issue_ms=now_ms,
        max_ms=now_ms + lifetime_ms,
        expiry_ms=now_ms + min(lifetime_ms, lifetimes.expiry_ms),
    )


def renewed(
    token: DelegationToken, principal: str, *, period_ms: int, lifetimes: TokenLifetimes, now_ms: int
) -> DelegationToken:
    """Return the token with a later expiry, by default after expiry.time.ms.

    Raises ApiError: DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
    """
    _require_owner_or_renewer(token, principal)
    if token.is_expired(now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    period_ms = lifetimes.expiry_ms if period_ms < 0 else period_ms
    return replace(token, expiry_ms=min(token.max_ms, now_ms + period_ms))


def expired(token: DelegationToken, principal: str, *, period_ms: int, now_ms: int) -> DelegationToken | None:
    """Return the token with an expiry after the period; None for a negative period: the token is removed at once.

    Raises ApiError: DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
    """
    _require_owner_or_renewer(token, principal)
    if period_ms < 0:
        return None
    if token.is_expired(now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return replace(token, expiry_ms=min(token.max_ms, now_ms + period_ms))


def _require_owner_or_renewer(token: DelegationToken, principal: str) -> None:
    if not token.belongs_to(principal):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


# Which clients may use the APIs of delegation tokens. Kafka: KafkaApis.allowTokenRequests (2.8). Pure.


def require_authenticated(peer: Peer) -> None:
    """Raise ApiError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED) unless the client authenticated without a token.

    A token must not be able to create another one, which would outlive it.
    """
    is_anonymous = peer.security_protocol == "PLAINTEXT" or (
        peer.security_protocol == "SSL" and peer.principal == ANONYMOUS
    )
    if is_anonymous or peer.is_token_authenticated:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)

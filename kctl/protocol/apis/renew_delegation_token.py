"""RenewDelegationToken (key 39, versions 0-2): extends the expiry time of a delegation token (KIP-48).

2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import bytes_, int16, int32, int64, request, response


@request(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenRequest:
    """Allowed for the owner and the renewers of the token."""

    hmac: bytes = bytes_(secret=True)
    """The secret of the token, which identifies it."""
    renew_period_ms: int = int64()
    """Time from now until the new expiry, limited by the token's maximum; -1 for the broker's default."""


@response(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenResponse:
    """The result."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    """In ms since the epoch."""
    throttle_time_ms: int = int32(default=0)

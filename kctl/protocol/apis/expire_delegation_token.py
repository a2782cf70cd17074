"""ExpireDelegationToken (key 40, versions 0-2): changes the expiry time of a delegation token or removes it (KIP-48).

2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import bytes_, int16, int32, int64, request, response


@request(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenRequest:
    """Allowed for the owner and the renewers of the token."""

    hmac: bytes = bytes_(secret=True)
    """The secret of the token, which identifies it."""
    expiry_time_period_ms: int = int64()
    """Time from now until the expiry; negative removes the token at once."""


@response(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenResponse:
    """The result."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    """In ms since the epoch."""
    throttle_time_ms: int = int32(default=0)

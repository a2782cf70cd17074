"""RenewDelegationToken (key 39, versions 0-2): let a delegation token live longer (KIP-48).

2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import bytes_, int16, int32, int64, request, response


@request(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: bytes = bytes_(secret=True)
    renew_period_ms: int = int64()


@response(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32(default=0)

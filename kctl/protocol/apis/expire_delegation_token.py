"""ExpireDelegationToken (key 40, versions 0-2): shorten or end the life of a delegation token (KIP-48).

2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import bytes_, int16, int32, int64, request, response


@request(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: bytes = bytes_(secret=True)
    expiry_time_period_ms: int = int64()


@response(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32(default=0)

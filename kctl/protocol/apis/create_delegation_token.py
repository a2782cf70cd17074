"""CreateDelegationToken (key 38, versions 0-2): a token that lets others act in the caller's name (KIP-48).

2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, bytes_, int16, int32, int64, request, response, string, struct


@struct
class CreatableRenewers:
    principal_type: str = string()
    principal_name: str = string()


@request(key=38, versions="0-2", flexible="2+")
class CreateDelegationTokenRequest:
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


@response(key=38, versions="0-2", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_(secret=True)
    throttle_time_ms: int = int32(default=0)

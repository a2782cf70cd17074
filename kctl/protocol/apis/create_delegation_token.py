"""CreateDelegationToken (key 38, versions 0-2): creates a token that authenticates as the caller (KIP-48).

2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, bytes_, int16, int32, int64, request, response, string, struct


@struct
class CreatableRenewers:
    """A principal that may renew the token, beside the owner."""

    principal_type: str = string()
    """`User`."""
    principal_name: str = string()


@request(key=38, versions="0-2", flexible="2+")
class CreateDelegationTokenRequest:
    """Creates a token for the caller, whose connection must not be authenticated by a token."""

    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    """Principals other than the owner that may renew the token."""
    max_lifetime_ms: int = int64()
    """-1 for the broker's `delegation.token.max.lifetime.ms`, which is also the maximum."""


@response(key=38, versions="0-2", flexible="2+")
class CreateDelegationTokenResponse:
    """The new token.  Timestamps are in ms since the epoch."""

    error_code: int = int16()
    principal_type: str = string()
    """`User`."""
    principal_name: str = string()
    issue_timestamp_ms: int = int64()
    """In ms of the epoch."""
    expiry_timestamp_ms: int = int64()
    """When the token expires unless it is renewed."""
    max_timestamp_ms: int = int64()
    """The latest time to which it can be renewed."""
    token_id: str = string()
    """The user name for SCRAM."""
    hmac: bytes = bytes_(secret=True)
    """The secret; in base64 it is the password for SCRAM."""
    throttle_time_ms: int = int32(default=0)

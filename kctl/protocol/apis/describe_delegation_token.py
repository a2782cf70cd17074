"""DescribeDelegationToken (key 41, versions 0-2): the delegation tokens of some owners (KIP-48).

2: flexible.
"""

from __future__ import annotations

from kctl.protocol.message import array, bytes_, int16, int32, int64, request, response, string, struct


@struct
class DescribeDelegationTokenOwner:
    """A principal that owns tokens."""

    principal_type: str = string()
    """`User`."""
    principal_name: str = string()


@request(key=41, versions="0-2", flexible="2+")
class DescribeDelegationTokenRequest:
    """Selects tokens; only those that the caller owns, may renew or may describe are returned."""

    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, nullable="0+")
    """Null for all owners."""


@struct
class DescribedDelegationTokenRenewer:
    """A principal that may renew the token."""

    principal_type: str = string()
    """`User`."""
    principal_name: str = string()


@struct
class DescribedDelegationToken:
    """A token.  Timestamps are in ms since the epoch."""

    principal_type: str = string()
    """`User`."""
    principal_name: str = string()
    issue_timestamp: int = int64()
    """In ms of the epoch."""
    expiry_timestamp: int = int64()
    """In ms; renewals move it up to `max_timestamp`."""
    max_timestamp: int = int64()
    """The latest time to which it can be renewed."""
    token_id: str = string()
    hmac: bytes = bytes_(secret=True)
    """The secret of the token."""
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)
    """Principals other than the owner that may renew the token."""


@response(key=41, versions="0-2", flexible="2+")
class DescribeDelegationTokenResponse:
    """The tokens that match."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32(default=0)

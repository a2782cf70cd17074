"""Delegation tokens: create, describe, renew, expire.  KIP-48.

The HMAC of a token is its password.  Requests name a token by it, so it is looked up by the id here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kctl.protocol.apis.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kctl.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from kctl.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token.  Principals are `Type:name`; times are in ms since the epoch."""

    token_id: str
    owner: str
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)


async def create_token(
    client: ClusterClient, renewers: Sequence[str], *, max_lifetime_ms: int = BROKER_DEFAULT
) -> DelegationToken:
    """Return a token of the caller.  Raises ApiError."""
    pairs = [renewer.partition(":") for renewer in renewers]
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, _, name in pairs],
        max_lifetime_ms=max_lifetime_ms,
    )

    async def send_to(connection: Connection) -> CreateDelegationTokenResponse:
        return await connection.send(request, CreateDelegationTokenResponse)

    response = await client.on_controller(send_to)
    _check(response.error_code)
    return DelegationToken(
        token_id=response.token_id,
        owner=f"{response.principal_type}:{response.principal_name}",
        renewers=tuple(renewers),
        issue_ms=response.issue_timestamp_ms,
        expiry_ms=response.expiry_timestamp_ms,
        max_ms=response.max_timestamp_ms,
        hmac=bytes(response.hmac),
    )


async def describe_tokens(client: ClusterClient, owners: Collection[str] = ()) -> list[DelegationToken]:
    """Return the tokens that the caller may describe, of some owners or renewers or of all, by age.

    Raises ApiError.
    """
    pairs = [owner.partition(":") for owner in owners]
    request = DescribeDelegationTokenRequest(
        owners=[DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, _, name in pairs]
        or None
    )

    async def send_to(connection: Connection) -> DescribeDelegationTokenResponse:
        return await connection.send(request, DescribeDelegationTokenResponse)

    response = await client.on_any_broker(send_to)
    _check(response.error_code)
    tokens = [
        DelegationToken(
            token_id=token.token_id,
            owner=f"{token.principal_type}:{token.principal_name}",
            renewers=tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers),
            issue_ms=token.issue_timestamp,
            expiry_ms=token.expiry_timestamp,
            max_ms=token.max_timestamp,
            hmac=bytes(token.hmac),
        )
        for token in response.tokens
    ]
    return sorted(tokens, key=lambda token: (token.issue_ms, token.token_id))


async def find_token(client: ClusterClient, token_id: str) -> DelegationToken:
    """Return the token with that id.  Raises ApiError, DELEGATION_TOKEN_NOT_FOUND if the caller can see none."""
    for token in await describe_tokens(client):
        if token.token_id == token_id:
            return token
    raise ApiError(
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND, f"there is no delegation token {token_id} that this user may describe"
    )


async def renew_token(client: ClusterClient, token_id: str, *, period_ms: int = BROKER_DEFAULT) -> int:
    """Let the token expire after the period from now; return when it does.  Raises ApiError."""
    token = await find_token(client, token_id)
    request = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms)

    async def send_to(connection: Connection) -> RenewDelegationTokenResponse:
        return await connection.send(request, RenewDelegationTokenResponse)

    response = await client.on_controller(send_to)
    _check(response.error_code)
    return response.expiry_timestamp_ms


async def expire_token(client: ClusterClient, token_id: str, *, period_ms: int = -1) -> int:
    """Let the token expire after the period from now, at once if negative; return when it does.  Raises ApiError."""
    token = await find_token(client, token_id)
    request = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)

    async def send_to(connection: Connection) -> ExpireDelegationTokenResponse:
        return await connection.send(request, ExpireDelegationTokenResponse)

    response = await client.on_controller(send_to)
    _check(response.error_code)
    return response.expiry_timestamp_ms


def _check(error_code: int) -> None:
    code = ErrorCode.of(error_code)
    if code is not ErrorCode.NONE:
        raise ApiError(code, code.description)

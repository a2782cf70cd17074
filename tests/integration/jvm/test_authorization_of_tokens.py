"""Permissions on delegation tokens, beside Apache Kafka 2.8.2; they need clients that SASL has authenticated.

The owner of a token and its renewers need no permission.  Others see it with Describe on it, and never renew or expire
it, whatever is permitted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from kctl.client.connections.asyncio_transport import AsyncioConnection, AsyncioTransport
from kctl.client.connections.security import client_security
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
from tests.integration.jvm.side_by_side import APACHE, OURS, SideBySide, side_by_side
from tests.peers import probe

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = ("owner", "renewer", "other")
OPERATIONS = ("Describe", "Alter", "Delete", "All")
"""Those that imply Describe."""
NOTHING = "Create"
"""An operation that does not imply Describe."""
VERSIONS = {"create": range(3), "renew": range(3), "expire": range(3), "describe": range(3)}
"""All versions of the four APIs."""
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SideBySide, dict[str, str]]]:
    """Both brokers, and the addresses of their SASL listeners."""
    plain = {who: probe.free_port() for who in (APACHE, OURS)}
    sasl = {who: f"127.0.0.1:{probe.free_port()}" for who in (APACHE, OURS)}
    passwords = " ".join(f'user_{user}="secret"' for user in ("admin", *USERS))
    common = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN} username="admin" password="secret" {passwords};',
        "delegation.token.master.key": "a key",
    }
    listeners = {who: {"listeners": f"PLAINTEXT://127.0.0.1:{plain[who]},SASL://{sasl[who]}"} for who in plain}
    with side_by_side(
        tmp_path_factory.mktemp("tokens"),
        properties=common,
        apache_port=plain[APACHE],
        apache_properties=listeners[APACHE],
        our_port=plain[OURS],
        our_properties=listeners[OURS],
    ) as both:
        yield both, sasl


class Client:
    """The requests of one user to one broker, and the parts of the responses that permissions decide."""

    def __init__(self, connection: AsyncioConnection) -> None:
        self._connection = connection

    async def create(self, version: int) -> CreateDelegationTokenResponse:
        """A token that the user `renewer` may renew."""
        request = CreateDelegationTokenRequest(
            renewers=[CreatableRenewers(principal_type="User", principal_name="renewer")], max_lifetime_ms=HOUR_MS
        )
        return await self._connection.send(request, CreateDelegationTokenResponse, version=version)

    async def renew(self, hmac: bytes, version: int) -> int:
        """The error code."""
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=HOUR_MS)
        return (await self._connection.send(request, RenewDelegationTokenResponse, version=version)).error_code

    async def expire(self, hmac: bytes, version: int) -> int:
        """The error code; the token stays."""
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=HOUR_MS)
        return (await self._connection.send(request, ExpireDelegationTokenResponse, version=version)).error_code

    async def describe(self, owners: list[str] | None, version: int) -> tuple[int, list[str]]:
        """The error code and the owners of the tokens in the response."""
        named = None
        if owners is not None:
            named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=owner) for owner in owners]
        request = DescribeDelegationTokenRequest(owners=named)
        response = await self._connection.send(request, DescribeDelegationTokenResponse, version=version)
        return response.error_code, sorted(token.principal_name for token in response.tokens)


@contextlib.asynccontextmanager
async def logged_in(address: str, user: str) -> AsyncIterator[Client]:
    host, port = probe.address(address)
    security = client_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN} username="{user}" password="secret";',
        }
    )
    connection = await AsyncioTransport().connect(
        host, port, client_id=user, connect_timeout_ms=30_000, timeout_ms=60_000, security=security
    )
    try:
        yield Client(connection)
    finally:
        await connection.close()


async def create_tokens(address: str) -> list[bytes]:
    """One of each version, of the user `owner`; returns when all of them are known."""
    async with logged_in(address, "owner") as owner:
        created = [await owner.create(version) for version in VERSIONS["create"]]
        assert {token.error_code for token in created} == {0}
        for _ in range(600):
            if await owner.describe(None, 2) == (0, ["owner"] * len(created)):
                break
            await asyncio.sleep(0.05)
    return [token.hmac for token in created]


async def verdicts(address: str, hmacs: list[bytes], users: Sequence[str]) -> dict[str, Any]:
    """What each of the users may do with the tokens."""
    seen: dict[str, Any] = {}
    for user in users:
        async with logged_in(address, user) as client:
            for owners in (None, [], ["owner"], ["other"], ["owner", "other"]):
                for version in VERSIONS["describe"]:
                    seen[f"{user} describes {owners} v{version}"] = await client.describe(owners, version)
            for version in VERSIONS["renew"]:
                seen[f"{user} renews v{version}"] = [await client.renew(hmac, version) for hmac in (*hmacs, b"none")]
            for version in VERSIONS["expire"]:
                seen[f"{user} expires v{version}"] = [await client.expire(hmac, version) for hmac in (*hmacs, b"none")]
    return seen


def grant(both: SideBySide, operation: str) -> None:
    """Allows the user `other` one operation on all tokens."""
    entry = {"principal": "User:other", "permissionType": "Allow", "operation": operation, "host": "*"}
    with both.zookeepers() as clients:
        for client in clients:
            client.ensure_path("/kafka-acl/DelegationToken/*")
            client.set("/kafka-acl/DelegationToken/*", json.dumps({"version": 1, "acls": [entry]}).encode())
            client.create("/kafka-acl-changes/acl_changes_", b"DELEGATION_TOKEN:*", sequence=True)


def test_owners_renewers_and_others_get_the_same_verdicts(brokers: tuple[SideBySide, dict[str, str]]) -> None:
    both, addresses = brokers
    tokens = {who: asyncio.run(create_tokens(address)) for who, address in addresses.items()}

    def both_verdicts(*users: str) -> list[dict[str, Any]]:
        return [asyncio.run(verdicts(addresses[who], tokens[who], users)) for who in (APACHE, OURS)]

    apache, ours = both_verdicts(*USERS)
    assert ours == apache
    assert apache["owner describes None v2"] == (0, ["owner"] * 3)
    assert apache["other describes None v2"] == (0, [])
    for operation in OPERATIONS:
        grant(both, NOTHING)
        wait_until_others_see(addresses, [])
        grant(both, operation)
        wait_until_others_see(addresses, ["owner"] * 3)
        apache, ours = both_verdicts("other")
        assert ours == apache, operation


def wait_until_others_see(addresses: dict[str, str], owners: list[str]) -> None:
    async def seen(address: str) -> list[str]:
        async with logged_in(address, "other") as client:
            return (await client.describe(None, 2))[1]

    probe.wait_until(
        lambda: all(asyncio.run(seen(address)) == owners for address in addresses.values()),
        what=f"tokens of {owners} in the responses to another user",
        timeout_s=60,
    )

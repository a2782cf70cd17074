"""Quotas of new connections of an IP address, changed while the broker runs.  KIP-612."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time

from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from tests.peers import probe
from tests.peers.kctl_broker import KctlBroker

LIMITED, OTHER = "127.0.0.77", "127.0.0.78"
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
CONNECTIONS = 15
"""More than ten seconds allow at one connection per second."""


async def set_rate(bootstrap: str, rate: float | None) -> None:
    host, port = probe.address(bootstrap)
    operation = OpData(key="connection_creation_rate", value=rate or 0.0, remove=rate is None)
    entity = [RequestEntityData(entity_type="ip", entity_name=LIMITED)]
    request = AlterClientQuotasRequest(entries=[RequestEntryData(entity=entity, ops=[operation])], validate_only=False)
    connection = await AsyncioTransport().connect(
        host, port, client_id="quotas", connect_timeout_ms=30_000, timeout_ms=30_000
    )
    try:
        response = await connection.send(request, AlterClientQuotasResponse)
    finally:
        await connection.close()
    assert [entry.error_code for entry in response.entries] == [0]


def served(bootstrap: str, address: str) -> list[bool]:
    """Whether each of several connections from this address gets a response; the broker closes the others later."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_connection(probe.address(bootstrap), 30, source_address=(address, 0)))
            for _ in range(CONNECTIONS)
        ]
        return [gets_response(sock) for sock in sockets]


def gets_response(sock: socket.socket) -> bool:
    try:
        sock.sendall(API_VERSIONS)
        return bool(sock.recv(1))
    except ConnectionError:
        return False


def wait_until(bootstrap: str, *, all_served: bool) -> None:
    """Waits until the broker applies the quota, or its removal."""
    deadline_s = time.monotonic() + 60
    while all(served(bootstrap, LIMITED)) is not all_served:
        assert time.monotonic() < deadline_s


def test_a_connection_rate_is_enforced_as_soon_as_it_is_set_and_until_it_is_removed(broker: KctlBroker) -> None:
    assert all(served(broker.bootstrap, LIMITED))
    asyncio.run(set_rate(broker.bootstrap, 1.0))
    try:
        wait_until(broker.bootstrap, all_served=False)
        assert not any(served(broker.bootstrap, LIMITED)[-3:])
        assert all(served(broker.bootstrap, OTHER))
        assert "reason=connection_creation_rate of its address" in broker.log_text
    finally:
        asyncio.run(set_rate(broker.bootstrap, None))
    wait_until(broker.bootstrap, all_served=True)

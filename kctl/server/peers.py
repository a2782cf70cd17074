"""Connections to other brokers, by id, on the inter-broker listener.

Owner: event loop.
"""

from __future__ import annotations

from typing import TypeVar

from kctl.client.transport import Connection, ConnectionLost, Transport
from kctl.client.versions import BrokerVersions
from kctl.errors import AuthenticationFailed, ConfigError
from kctl.model import Endpoint
from kctl.server.metadata_cache import MetadataCache
from kctl.server.peer_security import PeerSecurity

T = TypeVar("T")


class BrokerPeers:
    """Connects to brokers in the metadata cache."""

    def __init__(
        self,
        broker_id: int,
        *,
        transport: Transport,
        security: PeerSecurity,
        metadata: MetadataCache,
        listener: str,
        timeout_ms: int,
    ) -> None:
        self._broker_id = broker_id
        self._transport = transport
        self._security = security
        self._metadata = metadata
        self._listener = listener
        self._timeout_ms = timeout_ms

    async def connect(self, broker_id: int, purpose: str) -> Connection:
        """Connects to a broker in the metadata.  Raises ConnectionLost."""
        broker = self._metadata.brokers.get(broker_id)
        endpoint = broker.endpoint(self._listener) if broker is not None else None
        if endpoint is None:
            raise ConnectionLost(f"broker {broker_id} is unknown, or has no listener {self._listener}")
        return await self.connect_to(endpoint, purpose)

    async def connect_to_controller(self, purpose: str) -> Connection:
        """Connects to the controller in the metadata.  Raises ConnectionLost."""
        return await self.connect(self._metadata.controller_id, purpose)

    async def connect_to(self, endpoint: Endpoint, purpose: str) -> Connection:
        """Connects to an endpoint.  Raises ConnectionLost, also if one of the brokers refuses the other."""
        try:
            security = await self._security.of(endpoint.listener)
            connection = await self._transport.connect(
                endpoint.host,
                endpoint.port,
                client_id=f"broker-{self._broker_id}-{purpose}",
                connect_timeout_ms=self._timeout_ms,
                timeout_ms=self._timeout_ms,
                security=security,
            )
        except (AuthenticationFailed, ConfigError) as error:
            raise ConnectionLost(str(error)) from None
        return connection if security is None else _SecuredConnection(connection)


class _SecuredConnection:
    """A connection whose refused re-authentication is a lost connection: brokers try again until it is accepted."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def versions(self) -> BrokerVersions:
        return self._connection.versions

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    async def send(
        self, request: object, response_class: type[T], *, version: int | None = None, timeout_ms: int | None = None
    ) -> T:
        try:
            return await self._connection.send(request, response_class, version=version, timeout_ms=timeout_ms)
        except AuthenticationFailed as error:
            raise ConnectionLost(str(error)) from None

    async def post(self, request: object, *, version: int | None = None) -> None:
        try:
            await self._connection.post(request, version=version)
        except AuthenticationFailed as error:
            raise ConnectionLost(str(error)) from None

    async def close(self) -> None:
        await self._connection.close()

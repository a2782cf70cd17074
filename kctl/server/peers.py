"""Connections to other brokers, by id, on the inter-broker listener.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from kctl.client.transport import Connection, ConnectionLost, Transport
from kctl.client.versions import BrokerVersions
from kctl.config.dynamic import ConfigView
from kctl.errors import AuthenticationFailed, ConfigError
from kctl.limits import PEER_ADDRESSES_MAX
from kctl.model import Endpoint
from kctl.server.connection_settings import set_size
from kctl.server.metadata_cache import MetadataCache
from kctl.server.peer_security import PeerSecurity

T = TypeVar("T")


class Purpose(Enum):
    """What a connection is for; the value is part of its client id."""

    REPLICA = "replica"
    CONTROLLER = "controller"
    ALTER_ISR = "alter-isr"
    CONTROLLED_SHUTDOWN = "controlled-shutdown"
    TRANSACTION_MARKERS = "transaction-markers"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """Timeouts and buffers of connections to other brokers."""

    setup_timeout_ms: int
    setup_timeout_ms_max: int
    request_timeouts_ms: Mapping[Purpose, int]
    replica_receive_buffer_bytes: int
    """SO_RCVBUF of connections of followers; -1 for the operating system's choice."""

    @classmethod
    def of(cls, configs: ConfigView) -> PeerSettings:
        """The settings in the broker's properties."""
        config = configs.current
        controller_ms = config.controller_socket_timeout_ms
        return cls(
            setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            setup_timeout_ms_max=config.socket_connection_setup_timeout_max_ms,
            request_timeouts_ms={
                Purpose.REPLICA: config.replica_socket_timeout_ms,
                Purpose.CONTROLLER: controller_ms,
                Purpose.ALTER_ISR: controller_ms,
                Purpose.CONTROLLED_SHUTDOWN: controller_ms,
                Purpose.TRANSACTION_MARKERS: config.request_timeout_ms,
            },
            replica_receive_buffer_bytes=set_size(configs, "replica.socket.receive.buffer.bytes"),
        )

    def setup_timeout_after(self, failures: int) -> int:
        """The timeout of an attempt to connect after this number of failed ones.  KIP-601."""
        doublings = min(failures, 31)
        return min(self.setup_timeout_ms << doublings, max(self.setup_timeout_ms_max, self.setup_timeout_ms))


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
        settings: PeerSettings,
    ) -> None:
        self._broker_id = broker_id
        self._transport = transport
        self._security = security
        self._metadata = metadata
        self._listener = listener
        self._settings = settings
        self._failures: dict[tuple[str, int], int] = {}
        """Failed attempts to connect since the last successful one, by address."""

    async def connect(self, broker_id: int, purpose: Purpose) -> Connection:
        """Connects to a broker in the metadata.  Raises ConnectionLost."""
        broker = self._metadata.brokers.get(broker_id)
        endpoint = broker.endpoint(self._listener) if broker is not None else None
        if endpoint is None:
            raise ConnectionLost(f"broker {broker_id} is unknown, or has no listener {self._listener}")
        return await self.connect_to(endpoint, purpose)

    async def connect_to_controller(self, purpose: Purpose) -> Connection:
        """Connects to the controller in the metadata.  Raises ConnectionLost."""
        return await self.connect(self._metadata.controller_id, purpose)

    async def connect_to(self, endpoint: Endpoint, purpose: Purpose) -> Connection:
        """Connects to an endpoint.  Raises ConnectionLost, also if one of the brokers refuses the other."""
        address = (endpoint.host, endpoint.port)
        failures = self._failures.get(address, 0)
        try:
            security = await self._security.of(endpoint.listener)
            connection = await self._transport.connect(
                endpoint.host,
                endpoint.port,
                client_id=f"broker-{self._broker_id}-{purpose.value}",
                connect_timeout_ms=self._settings.setup_timeout_after(failures),
                timeout_ms=self._settings.request_timeouts_ms[purpose],
                security=security,
                receive_buffer_bytes=self._settings.replica_receive_buffer_bytes if purpose is Purpose.REPLICA else -1,
            )
        except ConnectionLost:
            self._count_failure(address, failures)
            raise
        except (AuthenticationFailed, ConfigError) as error:
            raise ConnectionLost(str(error)) from None
        self._failures.pop(address, None)
        return connection if security is None else _SecuredConnection(connection)

    def _count_failure(self, address: tuple[str, int], failures: int) -> None:
        if len(self._failures) >= PEER_ADDRESSES_MAX:
            self._failures.clear()
        self._failures[address] = failures + 1


class _SecuredConnection:
    """A connection that reports a refused re-authentication as ConnectionLost, so that brokers retry."""

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

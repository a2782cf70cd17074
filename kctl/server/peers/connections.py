"""Connections to other brokers, by id, on the inter-broker listener.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeVar

from kctl.client.connections.transport import Connection, ConnectionLost, Security, Transport
from kctl.client.connections.versions import BrokerVersions
from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.config.listeners import listener_endpoints, listener_properties, listener_property
from kctl.errors import AuthenticationFailed, ConfigError
from kctl.limits import Subject, bound
from kctl.model import Endpoint
from kctl.server.loop.tasks import in_thread
from kctl.server.network.connection_limits import set_size
from kctl.server.network.tls.listeners import FileStates, states_of
from kctl.server.peers.metadata import MetadataCache
from kctl.server.znodes.problem_log import ProblemLog

PEER_ADDRESSES_MAX = bound(
    Subject.LONG_WORK,
    "addresses of other brokers whose failed connection attempts are counted",
    10_000,
    "addresses",
    on_excess="all are forgotten, and the timeouts for connecting start anew",
)


# Security of the connections to other brokers, from the properties of the listener that they go to.
#
# The security protocol is that of the listener here, as every broker has the same listeners. `ssl.*` properties may
# have the prefix of the listener. The SASL mechanism is `sasl.mechanism.inter.broker.protocol`; its credentials are
# in `listener.name.<listener>.<mechanism>.sasl.jaas.config`.
#
# Certificates are read again when a property or a file changes; if that fails, the old ones stay in use, at start
# those of server.properties.
#
# Kafka: ChannelBuilders.clientChannelBuilder, JaasContext.load (2.8). Owner: event loop.


log = logging.getLogger(__name__)

_JAAS = "sasl.jaas.config"


@dataclass(frozen=True, slots=True)
class _Loaded:
    properties: Mapping[str, str]
    files: FileStates
    security: Security


class PeerSecurity:
    """The security of connections to other brokers, by listener."""

    def __init__(self, configs: ConfigView) -> None:
        self._configs = configs
        self._loaded: dict[str, _Loaded] = {}
        self._problems = ProblemLog(
            log, "cannot load TLS or SASL for other brokers, the old settings stay in use listener=%s error=%s"
        )

    async def load(self, listeners: Iterable[str]) -> None:
        """Read credentials and certificates for these listeners.

        Raises ConfigError if those of server.properties are unusable, and no others are set.
        """
        for listener in listeners:
            if self._protocol(listener) != "PLAINTEXT":
                await self._first(listener)
        self._configs.add_check(self.check)

    async def check(self, _: BrokerConfig, properties: Mapping[str, str]) -> None:
        """Raise ConfigError if the changes among these properties could not be used."""
        for listener, loaded in self._loaded.items():
            changed = peer_properties(properties, listener)
            if changed not in (loaded.properties, self._properties(listener)):
                try:
                    await self._load(listener, changed)
                except ConfigError as error:
                    name = f"{error.name} (of connections to listener {listener} of brokers)"
                    raise ConfigError(name, error.value, error.reason) from None

    async def of(self, listener: str) -> Security | None:
        """Return the security of a new connection; None for PLAINTEXT.  Raises ConfigError if it was never loaded."""
        if self._protocol(listener) == "PLAINTEXT":
            return None
        loaded = self._loaded.get(listener)
        if loaded is None or self._is_changed(listener, loaded):
            try:
                loaded = self._loaded[listener] = await self._load(listener, self._properties(listener))
                self._problems.report(listener)
            except ConfigError as error:
                self._problems.report(listener, str(error))
                if loaded is None:
                    raise
        return loaded.security

    async def _first(self, listener: str) -> None:
        properties = self._properties(listener)
        static = peer_properties(self._configs.static, listener)
        try:
            self._loaded[listener] = await self._load(listener, properties)
        except ConfigError as error:
            if properties == static:
                raise
            self._problems.report(listener, str(error))
            try:
                self._loaded[listener] = await self._load(listener, static)
            except ConfigError as error:
                log.error(
                    "cannot connect to other brokers until the properties change listener=%s error=%s", listener, error
                )

    def _is_changed(self, listener: str, loaded: _Loaded) -> bool:
        return loaded.properties != self._properties(listener) or loaded.files != _files(loaded.properties)

    async def _load(self, listener: str, properties: Mapping[str, str]) -> _Loaded:
        """Load the settings and keys of connections, or raise ConfigError."""
        from kctl.client.connections.security import ClientSecurity  # noqa: PLC0415 - imports ssl

        files = _files(properties)
        # In a thread, because deriving keys from passwords of stores takes time by design.
        security = await in_thread(partial(ClientSecurity.of, self._protocol(listener), properties))
        return _Loaded(properties, files, security)

    def _protocol(self, listener: str) -> str:
        return protocol_of(self._configs.current, listener)

    def _properties(self, listener: str) -> dict[str, str]:
        return peer_properties(self._configs.properties, listener)


def protocol_of(config: BrokerConfig, listener: str) -> str:
    """Return the security protocol of a listener of this broker."""
    return next(endpoint.security_protocol for endpoint in listener_endpoints(config) if endpoint.listener == listener)


def peer_properties(properties: Mapping[str, str], listener: str) -> dict[str, str]:
    """Return the client properties, `ssl.*` and `sasl.*`, of connections to a listener of other brokers."""
    of_listener = listener_properties(properties, listener)
    mechanism = str(listener_property(properties, "sasl.mechanism.inter.broker.protocol", listener=listener))
    prefix = f"{mechanism.lower()}."
    of_mechanism = {name.removeprefix(prefix): text for name, text in of_listener.items() if name.startswith(prefix)}
    # As in Kafka, a sasl.jaas.config without the name of the mechanism is not used by brokers.
    merged = {name: text for name, text in of_listener.items() if name != _JAAS} | of_mechanism
    named = {name: text for name, text in merged.items() if name.startswith(("ssl.", "sasl."))}
    return named | {"sasl.mechanism": mechanism}


def _files(properties: Mapping[str, str]) -> FileStates:
    return states_of(
        [properties[name] for name in ("ssl.keystore.location", "ssl.truststore.location") if properties.get(name)]
    )


T = TypeVar("T")


class Purpose(Enum):
    """The purpose of a connection; the value is part of its client id."""

    REPLICA = "replica"
    CONTROLLER = "controller"
    ALTER_ISR = "alter-isr"
    CONTROLLED_SHUTDOWN = "controlled-shutdown"
    TRANSACTION_MARKERS = "transaction-markers"
    TRANSACTION_VERIFICATION = "transaction-verification"
    SHARE_STATE = "share-state"


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
        """Return the settings in the broker's properties."""
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
                Purpose.TRANSACTION_VERIFICATION: config.request_timeout_ms,
                Purpose.SHARE_STATE: config.request_timeout_ms,
            },
            replica_receive_buffer_bytes=set_size(configs, "replica.socket.receive.buffer.bytes"),
        )

    def setup_timeout_after(self, failures: int) -> int:
        """Return the timeout of an attempt to connect after this number of failed ones.  KIP-601."""
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
        """Connect to a broker in the metadata.  Raises ConnectionLost."""
        broker = self._metadata.brokers.get(broker_id)
        endpoint = broker.endpoint(self._listener) if broker is not None else None
        if endpoint is None:
            raise ConnectionLost(f"broker {broker_id} is unknown, or has no listener {self._listener}")
        return await self.connect_to(endpoint, purpose)

    async def connect_to_controller(self, purpose: Purpose) -> Connection:
        """Connect to the controller in the metadata.  Raises ConnectionLost."""
        return await self.connect(self._metadata.controller_id, purpose)

    async def connect_to(self, endpoint: Endpoint, purpose: Purpose) -> Connection:
        """Connect to an endpoint.  Raises ConnectionLost, also if one of the brokers refuses the other."""
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


# Resolves host names with the operating system's resolver.


async def resolves(name: str) -> bool:
    """Return whether this is an IPv4 address or a host name with one; resolved in a thread."""
    return await address_of(name) is not None


async def address_of(name: str) -> str | None:
    """Return the first IPv4 address of a host name, or None; resolved in a thread."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(found[0][4][0]) if found else None

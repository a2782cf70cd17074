"""Security of the connections to other brokers, from the properties of the listener that they go to.

The security protocol is that of the listener here, as every broker has the same listeners.  `ssl.*` properties may have
the prefix of the listener.  The SASL mechanism is `sasl.mechanism.inter.broker.protocol`; its credentials are in
`listener.name.<listener>.<mechanism>.sasl.jaas.config`.

Certificates are read again when a property or a file changes; if that fails, the old ones stay in use, at start those
of server.properties.

Kafka: ChannelBuilders.clientChannelBuilder, JaasContext.load (2.8).  Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kctl.client.transport import Security
from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.config.listener_overrides import listener_property
from kctl.config.listeners import listener_endpoints, listener_properties
from kctl.errors import ConfigError
from kctl.server.file_states import FileStates, states_of
from kctl.server.problem_log import ProblemLog

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
        """Reads credentials and certificates for these listeners.

        Raises ConfigError if those of server.properties are unusable, and no others are set.
        """
        for listener in listeners:
            if self._protocol(listener) != "PLAINTEXT":
                await self._first(listener)
        self._configs.add_check(self.check)

    async def check(self, _: BrokerConfig, properties: Mapping[str, str]) -> None:
        """Raises ConfigError if the changes among these properties could not be used."""
        for listener, loaded in self._loaded.items():
            changed = peer_properties(properties, listener)
            if changed not in (loaded.properties, self._properties(listener)):
                try:
                    await self._load(listener, changed)
                except ConfigError as error:
                    name = f"{error.name} (of connections to listener {listener} of brokers)"
                    raise ConfigError(name, error.value, error.reason) from None

    async def of(self, listener: str) -> Security | None:
        """The security of a new connection; None for PLAINTEXT.  Raises ConfigError if it was never loaded."""
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
        """Raises ConfigError."""
        from kctl.client.security import ClientSecurity  # noqa: PLC0415 - imports ssl

        files = _files(properties)
        # In a thread, because deriving keys from passwords of stores takes time by design.
        security = await asyncio.to_thread(ClientSecurity.of, self._protocol(listener), properties)
        return _Loaded(properties, files, security)

    def _protocol(self, listener: str) -> str:
        return protocol_of(self._configs.current, listener)

    def _properties(self, listener: str) -> dict[str, str]:
        return peer_properties(self._configs.properties, listener)


def protocol_of(config: BrokerConfig, listener: str) -> str:
    """The security protocol of a listener of this broker."""
    return next(each.security_protocol for each in listener_endpoints(config) if each.listener == listener)


def peer_properties(properties: Mapping[str, str], listener: str) -> dict[str, str]:
    """The client properties, `ssl.*` and `sasl.*`, of connections to a listener of other brokers."""
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

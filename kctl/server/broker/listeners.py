"""Opens and closes listeners when the property `listeners` changes.

Listeners are the same if they have the same name.  A listener that is no longer named is closed with its connections; a
new one is opened with its certificates and SASL mechanisms.  The address and the security protocol of an open listener
cannot change, and the inter-broker listener and the control-plane listener stay.  A change that cannot be used is
refused.  If another program has stored one in ZooKeeper, it is logged, and the other listeners are opened and closed.

Kafka: DynamicBrokerConfig.DynamicListenerConfig (2.8), which ignores a changed address until the next start.
Owner: event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.config.listeners import listener_endpoints
from kctl.errors import ConfigError
from kctl.model import Endpoint
from kctl.server.network.acceptor import ListenError
from kctl.server.network.listen_settings import TLS_PROTOCOLS
from kctl.server.network.tls.listeners import ListenerCertificates
from kctl.server.security.sasl.listeners import Channels
from kctl.server.znodes.problem_log import ProblemLog

if TYPE_CHECKING:
    from kctl.server.network.world import Listening

log = logging.getLogger(__name__)


class Listeners:
    """The open listeners.  Call `bind` with the properties of the start, `configure`, then `apply` after changes."""

    def __init__(
        self, configs: ConfigView, listening: Listening, certificates: ListenerCertificates, channels: Channels
    ) -> None:
        self._configs = configs
        self._listening = listening
        self._certificates = certificates
        self._channels = channels
        self._configured: dict[str, Endpoint] = {}
        """The open listeners, as the properties named them when they were opened."""
        self.bound: dict[str, Endpoint] = {}
        """The open listeners with the ports that they are bound to."""
        self._problems = ProblemLog(log, "cannot open a listener, it stays closed listener=%s error=%s")

    def bind(self) -> None:
        """Bind the listeners without accepting connections.  Raises ListenError."""
        for endpoint in listener_endpoints(self._configs.current):
            self._bind(endpoint)

    async def configure(self) -> None:
        """Bind the listeners of the dynamic properties instead of those at start, and load the certificates.  Raises
        ConfigError.

        A listener whose new address cannot be bound keeps the one that it has.
        """
        endpoints = {endpoint.listener: endpoint for endpoint in listener_endpoints(self._configs.current)}
        for name, before in list(self._configured.items()):
            if name not in endpoints or endpoints[name].security_protocol != before.security_protocol:
                self._close(name)
        added = [endpoint for name, endpoint in endpoints.items() if name not in self.bound]
        for endpoint in endpoints.values():
            if endpoint.listener in self.bound and not self._is_at(endpoint):
                self._move(endpoint)
        await self._certificates.load(
            endpoint for endpoint in self._configured.values() if endpoint.security_protocol in TLS_PROTOCOLS
        )
        for endpoint in added:
            await self._open(endpoint)
        self._configs.add_check(self.check)

    async def check(self, config: BrokerConfig, properties: Mapping[str, str]) -> None:
        """Raise ConfigError if listeners could not be changed to these."""
        endpoints = listener_endpoints(config)
        closing = self.bound.keys() - {endpoint.listener for endpoint in endpoints}
        free_ports = {self.bound[name].port for name in closing}
        for endpoint in endpoints:
            known = self._configured.get(endpoint.listener)
            if known is None:
                await self._try_to_prepare(endpoint, config, properties)
                if endpoint.port not in free_ports:
                    self._try_to_bind(endpoint, config)
            elif endpoint.security_protocol != known.security_protocol:
                raise ConfigError(
                    "listener.security.protocol.map",
                    config.listener_security_protocol_map,
                    f"the security protocol of listener {endpoint.listener} cannot change while it is open; "
                    "add a listener with another name",
                )
            elif not self._is_at(endpoint):
                raise ConfigError(
                    "listeners",
                    config.listeners or "",
                    f"the address of listener {endpoint.listener} cannot change while it is open; "
                    "add a listener with another name",
                )

    async def apply(self) -> None:
        """Close and open listeners to match the configuration in force."""
        endpoints = {endpoint.listener: endpoint for endpoint in listener_endpoints(self._configs.current)}
        for name in self.bound.keys() - endpoints.keys():
            self._close(name)
            log.info("closed listener listener=%s", name)
        for name, endpoint in endpoints.items():
            if name in self.bound or not await self._open(endpoint):
                continue
            self._listening.start()
            log.info("opened listener listener=%s host=%s port=%d", name, endpoint.host, self.bound[name].port)

    async def _try_to_prepare(self, endpoint: Endpoint, config: BrokerConfig, properties: Mapping[str, str]) -> None:
        """Raise ConfigError if the certificates or mechanisms of a new listener could not be used."""
        if endpoint.security_protocol in TLS_PROTOCOLS:
            await self._certificates.try_properties(endpoint, properties)
        if endpoint.security_protocol.startswith("SASL_"):
            self._channels.try_properties(endpoint, config, properties)

    def _try_to_bind(self, endpoint: Endpoint, config: BrokerConfig) -> None:
        """Bind the port and close it again, or raise ConfigError."""
        try:
            self._listening.bind(endpoint)
        except ListenError as error:
            raise ConfigError("listeners", config.listeners or "", str(error)) from None
        self._listening.unbind(endpoint.listener)

    async def _open(self, endpoint: Endpoint) -> bool:
        """Bind a new listener, which accepts connections after `Listening.start`; return False if it cannot be
        opened.
        """
        name = endpoint.listener
        try:
            if endpoint.security_protocol in TLS_PROTOCOLS:
                await self._certificates.add(endpoint)
            if endpoint.security_protocol.startswith("SASL_"):
                self._channels.add(endpoint)
            self._bind(endpoint)
        except (ConfigError, ListenError) as error:
            self._problems.report(name, str(error))
            self._certificates.remove(name)
            self._channels.remove(name)
            return False
        self._problems.report(name)
        return True

    def _move(self, endpoint: Endpoint) -> None:
        """Bind a listener, which does not accept connections yet, at another address."""
        name = endpoint.listener
        before = self._configured[name]
        self._listening.unbind(name)
        try:
            self._bind(endpoint)
        except ListenError as error:
            self._problems.report(name, str(error))
            self._bind(before)

    def _bind(self, endpoint: Endpoint) -> None:
        """Bind the port, or raise ListenError."""
        self.bound[endpoint.listener] = self._listening.bind(endpoint)
        self._configured[endpoint.listener] = endpoint

    def _close(self, name: str) -> None:
        self._listening.unbind(name)
        self._certificates.remove(name)
        self._channels.remove(name)
        del self.bound[name], self._configured[name]

    def _is_at(self, endpoint: Endpoint) -> bool:
        """Return whether the open listener of this name has this address; port 0 is any port."""
        name = endpoint.listener
        return endpoint.host == self.bound[name].host and endpoint.port in {0, self.bound[name].port}

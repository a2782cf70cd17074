"""The SASL listeners of a broker: their mechanisms, from its properties, and the channels of their connections.

Invalid properties stop the broker at start: a mechanism without users or keys, or one that is not supported.
Properties that change while the broker runs apply to new connections, and to clients that authenticate again (KIP-368).
A dynamic change that the listener cannot use is refused.  If another program has stored one in ZooKeeper, it is logged
once, and the mechanism continues with the properties that it had before: at start with those of server.properties.  A
mechanism that had none before is not offered.  Kafka 2.8 accepts the change and applies it after a restart.

Owner: event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.config.listeners import listener_endpoints, listener_property
from kctl.errors import ConfigError
from kctl.model import Endpoint
from kctl.server.network.connections.channel import Channel, DirectChannel, Handle
from kctl.server.requests.context import Peer
from kctl.server.security.sasl.channel import SaslChannel, SaslListener
from kctl.server.security.sasl.exchanges import OpenExchange
from kctl.server.security.sasl.mechanisms import MechanismProperties, Mechanisms, Secrets, enabled_mechanisms
from kctl.server.znodes.problem_log import ProblemLog
from kctl.system.environment import Clock

log = logging.getLogger(__name__)


class _InUse(NamedTuple):
    """A listener that is in use, and the problems of the properties that should replace its own."""

    listener: SaslListener
    problems: list[str]


class Channels:
    """Opens the channel of each accepted connection, by its listener.  Call `start` before and `close` at the end."""

    def __init__(
        self,
        configs: ConfigView,
        *,
        handle: Handle,
        clock: Clock,
        secrets: Secrets,
        accepts_unsigned_tokens: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Prepare the SASL listeners, or raise ConfigError.

        `accepts_unsigned_tokens` returns whether a listener does, in a broker of a test.
        """
        self._configs = configs
        self._handle = handle
        self._clock = clock
        self._secrets = secrets
        self._frame_bytes_max = configs.current.socket_request_max_bytes
        self.expired_sessions = 0
        """Connections closed because their client had not authenticated again in time, since the start."""
        self._accepts_unsigned_tokens = accepts_unsigned_tokens
        self._mechanisms = Mechanisms(clock, secrets, accepts_unsigned_tokens)
        self._problems = ProblemLog(
            log, "cannot use the SASL properties, the old ones stay in use listener=%s error=%s"
        )
        self._endpoints = {
            endpoint.listener: endpoint
            for endpoint in listener_endpoints(configs.current)
            if endpoint.security_protocol.startswith("SASL_")
        }
        self._listeners = {
            listener: self._listener(configs.current, configs.properties, endpoint, self._mechanisms)
            for listener, endpoint in self._endpoints.items()
        }
        self._properties = configs.properties

    def open(self, peer: Peer) -> Channel:
        """Return the channel of a connection; implements network.channel.OpenChannel."""
        if not peer.security_protocol.startswith("SASL_"):
            return DirectChannel(self._handle, peer, frame_bytes_max=self._frame_bytes_max)
        return SaslChannel(partial(self._listeners.__getitem__, peer.listener), self._handle, peer)

    def add(self, endpoint: Endpoint) -> None:
        """Prepare a SASL listener that is about to open.  Raises ConfigError."""
        listener = self._listener(self._configs.current, self._configs.properties, endpoint, self._mechanisms)
        self._endpoints[endpoint.listener] = endpoint
        self._listeners[endpoint.listener] = listener
        for keys in self._mechanisms.keys.values():
            keys.start_reading()

    def remove(self, listener: str) -> None:
        """Remove a listener whose connections are closed; no effect if it does not use SASL."""
        if self._endpoints.pop(listener, None) is not None:
            del self._listeners[listener]
            self._stop_unused_keys()

    def try_properties(self, endpoint: Endpoint, config: BrokerConfig, properties: Mapping[str, str]) -> None:
        """Raise ConfigError if a SASL listener could not open with these properties."""
        self._listener(
            config, properties, endpoint, Mechanisms(self._clock, self._secrets, self._accepts_unsigned_tokens)
        )

    async def check_key_files(self) -> None:
        """Raise ConfigError for a file with keys for tokens that cannot be used."""
        for keys in self._mechanisms.keys.values():
            await keys.check_file()

    async def start(self) -> None:
        """Apply the dynamic properties, read the keys for tokens and follow changes.  Raises ConfigError."""
        for keys in self._mechanisms.keys.values():
            await keys.start()
        self._changed()
        self._configs.subscribe(self._changed)
        self._configs.add_check(self.check)

    async def check(self, config: BrokerConfig, properties: Mapping[str, str]) -> None:
        """Raise ConfigError if a listener could not use the changes among these properties."""
        for endpoint in self._endpoints.values():
            if _properties_of(properties, endpoint) != _properties_of(self._configs.properties, endpoint):
                self.try_properties(endpoint, config, properties)

    async def close(self) -> None:
        """Stop reading keys."""
        for keys in self._mechanisms.keys.values():
            await keys.close()

    def _changed(self) -> None:
        config, old, new = self._configs.current, self._properties, self._configs.properties
        self._properties = new
        for endpoint in self._endpoints.values():
            if _properties_of(old, endpoint) != _properties_of(new, endpoint):
                self._change(config, new, endpoint)

    def _change(self, config: BrokerConfig, properties: Mapping[str, str], endpoint: Endpoint) -> None:
        name = endpoint.listener
        in_use = _InUse(self._listeners[name], [])
        self._listeners[name] = self._listener(config, properties, endpoint, self._mechanisms, in_use)
        self._stop_unused_keys()
        for keys in self._mechanisms.keys.values():
            keys.start_reading()
        self._problems.report(name, *in_use.problems)
        if not in_use.problems:
            log.info("changed SASL properties listener=%s", name)

    def _stop_unused_keys(self) -> None:
        for retired in self._mechanisms.keep_keys(
            listener for listener, made in self._listeners.items() if "OAUTHBEARER" in made.mechanisms
        ):
            retired.stop()

    def _listener(
        self,
        config: BrokerConfig,
        properties: Mapping[str, str],
        endpoint: Endpoint,
        mechanisms: Mechanisms,
        in_use: _InUse | None = None,
    ) -> SaslListener:
        """Return a listener of these properties.

        If they are invalid, keeps the settings of `in_use`, or raises ConfigError without one.
        """
        opened: dict[str, OpenExchange] = {}
        max_reauth_ms: dict[str, Any] = {}
        try:
            names = enabled_mechanisms(properties, endpoint.listener)
            receive_bytes_max: Any = listener_property(
                properties, "sasl.server.max.receive.size", listener=endpoint.listener
            )
        except ConfigError as error:
            if in_use is None:
                raise
            in_use.problems.append(str(error))
            return in_use.listener
        for name in names:
            values = MechanismProperties(properties, endpoint.listener, name)
            try:
                max_reauth_ms[name] = values.get("connections.max.reauth.ms")
                opened[name] = mechanisms.open(values)
            except ConfigError as error:
                if in_use is None:
                    raise
                in_use.problems.append(str(error))
                max_reauth_ms.pop(name, None)
                if name in in_use.listener.mechanisms:
                    max_reauth_ms[name] = in_use.listener.max_reauth_ms[name]
                    opened[name] = in_use.listener.mechanisms[name]
        return SaslListener(
            name=endpoint.listener,
            security_protocol=endpoint.security_protocol,
            mechanisms=opened,
            max_reauth_ms=max_reauth_ms,
            unauthenticated_bytes_max=min(receive_bytes_max, config.socket_request_max_bytes),
            request_bytes_max=config.socket_request_max_bytes,
            failure_delay_ms=config.connection_failed_authentication_delay_ms,
            monotonic_ms=self._clock.monotonic_ms,
            session_expired=self._session_expired,
        )

    def _session_expired(self) -> None:
        self.expired_sessions += 1


def _properties_of(properties: Mapping[str, str], endpoint: Endpoint) -> dict[str, str]:
    """Return the properties that determine a SASL listener."""
    own = f"listener.name.{endpoint.listener.lower()}."
    return {
        name: value
        for name, value in properties.items()
        if ("sasl." in name or name.endswith("connections.max.reauth.ms"))
        and (name.startswith(own) or not name.startswith("listener.name."))
    }

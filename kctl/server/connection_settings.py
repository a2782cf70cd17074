"""The limits of connections, from the broker's properties.

`listener.name.NAME.max.connections` and `listener.name.NAME.max.connection.creation.rate` limit one listener.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.config.broker import BrokerConfig
from kctl.config.listeners import inter_broker_listener, listener_endpoints
from kctl.errors import ConfigError
from kctl.server.network.connection_limits import UNLIMITED, LimitSettings, ListenerLimits


def limit_settings(config: BrokerConfig, properties: Mapping[str, str]) -> LimitSettings:
    """The limits in force.  `properties` has the texts of all properties.  Raises ConfigError."""
    exceptions = [entry for entry in config.max_connections_per_ip_overrides.split(",") if entry.strip()]
    names = [endpoint.listener for endpoint in listener_endpoints(config)]
    return LimitSettings(
        connections=config.max_connections,
        connections_per_second=config.max_connection_creation_rate,
        connections_per_address=config.max_connections_per_ip,
        per_address=dict(_address_and_count(entry) for entry in exceptions),
        listeners={name: _listener_limits(properties, name) for name in names},
        protected_listener=inter_broker_listener(config) if len(names) > 1 else None,
    )


def _address_and_count(entry: str) -> tuple[str, int]:
    address, _, count = entry.strip().rpartition(":")
    return address.strip("[]"), int(count)


def _listener_limits(properties: Mapping[str, str], listener: str) -> ListenerLimits:
    prefix = f"listener.name.{listener.lower()}."
    return ListenerLimits(
        connections=_limit(properties, prefix + "max.connections"),
        connections_per_second=_limit(properties, prefix + "max.connection.creation.rate"),
    )


def _limit(properties: Mapping[str, str], name: str) -> int:
    text = properties.get(name, "").strip()
    if not text:
        return UNLIMITED
    if not text.isdecimal():
        raise ConfigError(name, text, "must be a number that is not negative")
    return min(int(text), UNLIMITED)

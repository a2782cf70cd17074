"""The limits of connections, from the broker's properties.

`listener.name.NAME.max.connections` and `listener.name.NAME.max.connection.creation.rate` limit one listener.

Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from kctl.config.broker import BROKER_PROPERTIES, BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.config.listeners import inter_broker_listener, listener_endpoints
from kctl.errors import ConfigError
from kctl.server.network.connection_limits import UNLIMITED, LimitSettings, ListenerLimits, peer_address


def limit_settings(
    config: BrokerConfig, properties: Mapping[str, str], addresses: Mapping[str, str] | None = None
) -> LimitSettings:
    """The limits in force.  Raises ConfigError.

    `properties` has the texts of all properties, `addresses` the address of each host in `named_hosts`.
    """
    known = addresses or {}
    names = [endpoint.listener for endpoint in listener_endpoints(config)]
    return LimitSettings(
        connections=config.max_connections,
        connections_per_second=config.max_connection_creation_rate,
        connections_per_address=config.max_connections_per_ip,
        per_address={known.get(host, host): count for host, count in _exceptions(config)},
        listeners={name: _listener_limits(properties, name) for name in names},
        protected_listener=inter_broker_listener(config) if len(names) > 1 else None,
        windows=config.quota_window_num,
        window_ms=config.quota_window_size_seconds * 1000,
    )


def set_size(configs: ConfigView, name: str) -> int:
    """The value of a property for the size of a socket buffer, if it is set; -1 otherwise, for the system's choice.

    Kafka also applies its defaults, which are smaller than the sizes to which current systems adapt the buffers.
    """
    if name not in configs.static:
        return -1
    size = BROKER_PROPERTIES[name].parse(configs.static[name])
    assert isinstance(size, int)
    return size


def named_hosts(config: BrokerConfig) -> list[str]:
    """The hosts in max.connections.per.ip.overrides that are not IP addresses."""
    return [host for host, _ in _exceptions(config) if not _is_address(host)]


def _exceptions(config: BrokerConfig) -> list[tuple[str, int]]:
    entries = [entry.strip() for entry in config.max_connections_per_ip_overrides.split(",") if entry.strip()]
    pairs = (entry.rpartition(":") for entry in entries)
    return [(_canonical(host.strip("[]")), int(count)) for host, _, count in pairs]


def _canonical(host: str) -> str:
    """An address in the form in which those of connections are written."""
    return peer_address(host) if _is_address(host) else host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _listener_limits(properties: Mapping[str, str], listener: str) -> ListenerLimits:
    return ListenerLimits(
        connections=_limit(properties, listener, "max.connections"),
        connections_per_second=_limit(properties, listener, "max.connection.creation.rate"),
    )


def _limit(properties: Mapping[str, str], listener: str, name: str) -> int:
    of_listener = f"listener.name.{listener.lower()}.{name}"
    text = properties.get(of_listener, "").strip()
    if not text:
        return UNLIMITED
    try:
        value = BROKER_PROPERTIES[name].parse(text)
    except ValueError as error:
        raise ConfigError(of_listener, text, str(error)) from None
    assert isinstance(value, int)
    return min(value, UNLIMITED)

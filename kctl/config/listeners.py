"""Parses and validates the listener properties.  Kafka's KafkaConfig and CoreUtils (2.8)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kctl.config.broker import BROKER_PROPERTIES, BrokerConfig
from kctl.config.definition import Problem
from kctl.config.subjects.network import SECURITY_PROTOCOLS
from kctl.errors import ConfigError
from kctl.model import Endpoint

_ENDPOINT = re.compile(
    r"(?P<name>[^:/]*)://(?:\[(?P<six>[0-9a-fA-F:.%]*)\]|(?P<host>[^:\[\]/]*)):(?P<port>[0-9]{1,5})\Z"
)
_PORT_MAX = 65535
_EVERY_INTERFACE = {"0.0.0.0", "::"}  # noqa: S104 - to refuse it


def listener_endpoints(config: BrokerConfig) -> tuple[Endpoint, ...]:
    """Return the endpoints to listen on; an empty host means all interfaces, port 0 a free port.

    `config` has been validated by `kctl.config.config_loading`.
    """
    protocols = dict(_map_entries(config.listener_security_protocol_map))
    return tuple(_endpoints(_listeners_text(config), protocols))


def advertised_endpoints(config: BrokerConfig) -> tuple[Endpoint, ...]:
    """Return the endpoints published to clients and ZooKeeper.

    The caller replaces an empty host by the host name of the machine and port 0 by the bound port.
    """
    protocols = dict(_map_entries(config.listener_security_protocol_map))
    return tuple(_endpoints(_advertised_text(config), protocols))


def inter_broker_listener(config: BrokerConfig) -> str:
    """Return the name of the listener that other brokers use."""
    return (config.inter_broker_listener_name or config.security_inter_broker_protocol).upper()


def control_plane_listener(config: BrokerConfig) -> str | None:
    """Return the name of the listener for the controller's requests; None if they use the inter-broker listener."""
    name = config.control_plane_listener_name
    return None if name is None else name.upper()


def listener_properties(properties: Mapping[str, str], listener: str) -> dict[str, str]:
    """Return the properties of a listener: those that begin with `listener.name.<listener in lower case>.` override
    others.

    Kafka: AbstractConfig.valuesWithPrefixOverride.
    """
    prefix = f"listener.name.{listener.lower()}."
    own = {name.removeprefix(prefix): text for name, text in properties.items() if name.startswith(prefix)}
    return {**properties, **own}


def listener_problems(config: BrokerConfig) -> Iterator[Problem]:
    """Yield all problems of the listener properties, in the order in which to fix them."""
    mapped = list(_map_problems(config.listener_security_protocol_map))
    if mapped:
        yield from mapped
        return
    protocols = dict(_map_entries(config.listener_security_protocol_map))
    texts = {
        "listeners" if config.listeners is not None else "host.name": _listeners_text(config),
        _advertised_property(config): _advertised_text(config),
    }
    malformed = [problem for name, text in texts.items() for problem in _syntax_problems(name, text, protocols)]
    if malformed:
        yield from malformed
        return
    listeners, advertised = listener_endpoints(config), advertised_endpoints(config)
    yield from _uniqueness_problems(config, listeners, advertised)
    yield from _advertised_problems(config, listeners, advertised)
    yield from _role_problems(config, protocols, listeners, advertised)


def _listeners_text(config: BrokerConfig) -> str:
    return (
        config.listeners
        if config.listeners is not None
        else f"PLAINTEXT://{_bracketed(config.host_name)}:{config.port}"
    )


def _advertised_text(config: BrokerConfig) -> str:
    if config.advertised_listeners is not None:
        return config.advertised_listeners
    if config.listeners is not None or (config.advertised_host_name is None and config.advertised_port is None):
        return _listeners_text(config)
    host = config.advertised_host_name if config.advertised_host_name is not None else config.host_name
    port = config.advertised_port if config.advertised_port is not None else config.port
    return f"PLAINTEXT://{_bracketed(host)}:{port}"


def _advertised_property(config: BrokerConfig) -> str:
    if config.advertised_listeners is not None:
        return "advertised.listeners"
    if config.listeners is not None:
        return "listeners"
    return "host.name" if config.advertised_host_name is None else "advertised.host.name"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _map_entries(text: str) -> Iterator[tuple[str, str]]:
    for entry in _entries(text):
        name, _, protocol = entry.rpartition(":")
        yield name.strip().upper(), protocol.strip().upper()


def _endpoints(text: str, protocols: Mapping[str, str]) -> Iterator[Endpoint]:
    for entry in _entries(text):
        parts = _ENDPOINT.match(entry)
        assert parts is not None
        name = parts["name"].upper()
        yield Endpoint(name, parts["six"] or parts["host"] or "", int(parts["port"]), protocols[name])


def _map_problems(text: str) -> Iterator[Problem]:
    name = "listener.security.protocol.map"
    for listener, protocol in _map_entries(text):
        if not listener or protocol not in SECURITY_PROTOCOLS:
            yield Problem(
                name,
                text,
                f"'{listener}:{protocol}' is not a listener and one of {', '.join(SECURITY_PROTOCOLS)}",
                "write it as NAME:PROTOCOL,NAME:PROTOCOL",
            )
    for listener, count in Counter(listener for listener, _ in _map_entries(text)).items():
        if count > 1:
            yield Problem(name, text, f"has {listener} {count} times", "keep one of them")


def _syntax_problems(name: str, text: str, protocols: Mapping[str, str]) -> Iterator[Problem]:
    if not _entries(text):
        yield Problem(name, text, "names no listener", "write at least one, as in PLAINTEXT://localhost:9092")
    for entry in _entries(text):
        parts = _ENDPOINT.match(entry)
        if parts is None or int(parts["port"]) > _PORT_MAX:
            yield Problem(
                name, text, f"'{entry}' is not an address", "write it as NAME://host:port, a port being 0 to 65535"
            )
        elif parts["name"].upper() not in protocols:
            yield Problem(
                name,
                text,
                f"listener {parts['name'].upper()} has no security protocol",
                f"add {parts['name'].upper()}:PLAINTEXT to listener.security.protocol.map",
            )


def _uniqueness_problems(
    config: BrokerConfig, listeners: Sequence[Endpoint], advertised: Sequence[Endpoint]
) -> Iterator[Problem]:
    for listener in _repeated([endpoint.listener for endpoint in listeners]):
        yield Problem(
            "listeners", config.listeners, f"has the name {listener} twice", "give each listener a name of its own"
        )
    for port in _repeated([str(endpoint.port) for endpoint in listeners if endpoint.port]):
        yield Problem(
            "listeners", config.listeners, f"has the port {port} twice", "give each listener a port of its own"
        )
    if config.advertised_listeners is not None:
        for listener in _repeated([endpoint.listener for endpoint in advertised]):
            yield Problem(
                "advertised.listeners",
                config.advertised_listeners,
                f"has the name {listener} twice",
                "keep one of them",
            )


def _repeated(values: Sequence[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


def _advertised_problems(
    config: BrokerConfig, listeners: Sequence[Endpoint], advertised: Sequence[Endpoint]
) -> Iterator[Problem]:
    name = _advertised_property(config)
    names = {endpoint.listener for endpoint in listeners}
    for endpoint in advertised:
        if endpoint.listener not in names:
            yield Problem(
                name,
                _advertised_text(config),
                f"advertises {endpoint.listener}, which listeners does not have",
                f"add it to listeners or advertise only {', '.join(sorted(names))}",
            )
        if endpoint.host in _EVERY_INTERFACE:
            yield Problem(
                name,
                _advertised_text(config),
                f"clients cannot connect to {endpoint.host}",
                "set advertised.listeners to an address that clients can reach",
            )


def _role_problems(
    config: BrokerConfig, protocols: Mapping[str, str], listeners: Sequence[Endpoint], advertised: Sequence[Endpoint]
) -> Iterator[Problem]:
    chosen = config.inter_broker_listener_name
    if chosen is not None and config.security_inter_broker_protocol != "PLAINTEXT":
        yield Problem(
            "security.inter.broker.protocol",
            config.security_inter_broker_protocol,
            "inter.broker.listener.name decides the protocol already",
            "set only one of the two",
        )
    if chosen is not None and chosen.upper() not in protocols:
        yield Problem(
            "inter.broker.listener.name", chosen, "listener.security.protocol.map does not have it", "add it there"
        )
    elif inter_broker_listener(config) not in {endpoint.listener for endpoint in advertised}:
        name = "inter.broker.listener.name" if chosen is not None else "security.inter.broker.protocol"
        yield Problem(
            name,
            inter_broker_listener(config),
            "other brokers would use this listener, but it is not advertised",
            f"set inter.broker.listener.name to one of {', '.join(endpoint.listener for endpoint in advertised)}",
        )
    control = config.control_plane_listener_name
    if control is not None and control.upper() not in {endpoint.listener for endpoint in listeners}:
        yield Problem("control.plane.listener.name", control, "listeners does not have it", "add it there")
    elif control is not None and control.upper() == inter_broker_listener(config):
        yield Problem("control.plane.listener.name", control, "is also the inter-broker listener", "choose another one")


# Values that a listener, or a SASL mechanism of a listener, has for itself. KIP-103, KIP-226.
#
#     listener.name.internal.scram-sha-256.sasl.jaas.config    of a mechanism of the listener INTERNAL
#     listener.name.internal.sasl.enabled.mechanisms           of the listener
#     sasl.enabled.mechanisms                                  of all others
#
# Kafka: AbstractConfig.valuesWithPrefixOverride, JaasContext.loadServerContext (2.8).
#
# Pure.


def listener_property(properties: Mapping[str, str], name: str, *, listener: str, mechanism: str = "") -> object:
    """Return the parsed value of a property for a listener, and for one of its mechanisms if it is named.

    Raises ConfigError, without the value if it is secret.
    """
    described = BROKER_PROPERTIES[name]
    for candidate in _candidates(name, listener, mechanism):
        text = properties.get(candidate)
        if text is not None and (text.strip() or described.default is not None):
            try:
                return described.parse(text)
            except ValueError as error:
                raise ConfigError(candidate, "[hidden]" if described.sensitive else text, str(error)) from None
    return described.default


def mechanism_property_name(name: str, *, listener: str, mechanism: str) -> str:
    """Return the name of a property of one mechanism of a listener."""
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{name}"


def _candidates(name: str, listener: str, mechanism: str) -> list[str]:
    of_listener = f"listener.name.{listener.lower()}.{name}"
    of_mechanism = [mechanism_property_name(name, listener=listener, mechanism=mechanism)] if mechanism else []
    return [*of_mechanism, of_listener, name]

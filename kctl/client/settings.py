"""Client settings from options and Kafka's client properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kctl.addresses import parse_addresses
from kctl.client.transport import Security
from kctl.errors import ConfigError, UsageError
from kctl.integers import parse_integer

if TYPE_CHECKING:
    from kctl.client.guard import Guard

DEFAULT_PORT = 9092
CONNECT_TIMEOUT_MS_MAX = 5_000
METADATA_MAX_AGE_MS = 300_000
PLAINTEXT = "PLAINTEXT"


class ClientSettings(NamedTuple):
    """Bootstrap servers, timeouts, client id, rack and security."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "kctl"
    timeout_ms: int = 30_000
    """Timeout of one operation including retries."""
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS_MAX
    rack: str = ""
    """client.rack, for fetching from the nearest replica (KIP-392)."""
    security: Security | None = None
    """None for PLAINTEXT."""
    metadata_max_age_ms: int = METADATA_MAX_AGE_MS
    """metadata.max.age.ms: what runs longer looks up leaders, partitions and topic ids again after this time."""
    resolved: tuple[tuple[str, str], ...] = ()
    """kctl.resolve: host names of brokers, and the addresses at which they are reached instead."""
    guard: Guard | None = None
    """Checks of every connection; None for none."""


def client_settings(
    *,
    bootstrap_servers: str | None,
    properties: Mapping[str, str],
    timeout_ms: int | None,
    default_servers: str,
    default_timeout_ms: int,
    security: Security | None = None,
    resolved: Mapping[str, str] | None = None,
) -> ClientSettings:
    """Settings from explicit values, else from Kafka's client properties, else the defaults.

    `security` is made of the same properties; see kctl.client.security.

    Raises UsageError and ConfigError.  Other properties of Kafka's admin client are only checked, and those of its
    producer and consumer ignored, as by Kafka's tools.
    """
    if properties:
        from kctl.client.property_values import ANY_CLIENT, check_properties  # noqa: PLC0415 - most commands have none

        check_properties(properties, ANY_CLIENT)
    protocol = properties.get("security.protocol", PLAINTEXT)
    if security is None and protocol.strip().upper() != PLAINTEXT:
        raise ConfigError("security.protocol", protocol, "must not be ignored")
    servers = bootstrap_servers or properties.get("bootstrap.servers") or default_servers
    timeout = timeout_ms or parse_milliseconds(properties, "default.api.timeout.ms", default_timeout_ms)
    return ClientSettings(
        bootstrap=parse_servers(servers),
        client_id=properties.get("client.id", "kctl"),
        timeout_ms=timeout,
        connect_timeout_ms=min(timeout, CONNECT_TIMEOUT_MS_MAX),
        rack=properties.get("client.rack", ""),
        security=security,
        metadata_max_age_ms=parse_milliseconds(properties, "metadata.max.age.ms", METADATA_MAX_AGE_MS, low=0),
        resolved=tuple((resolved or parse_resolved(properties.get("kctl.resolve", ""), "kctl.resolve")).items()),
    )


def parse_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Parses `host:port,[::1]:9092,host`; the port defaults to 9092.  Raises UsageError."""
    return parse_addresses(text, default_port=DEFAULT_PORT)


def parse_resolved(text: str, source: str) -> dict[str, str]:
    """Parses `name=address,name=address`; names are in lower case.  Raises UsageError, which names the source."""
    resolved: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, separator, address = (word.strip() for word in pair.partition("="))
        address = address.removeprefix("[").removesuffix("]")
        if not (name and separator and address) or "/" in pair or ":" in name:
            raise UsageError(f"{source} takes NAME=ADDRESS, without ports, not '{pair}'")
        resolved[name.lower()] = address
    return resolved


def parse_milliseconds(properties: Mapping[str, str], name: str, default: int, *, low: int = 1) -> int:
    """Parses a property in milliseconds.  Raises ConfigError."""
    text = properties.get(name)
    if text is None:
        return default
    try:
        return parse_integer(text, "a number of milliseconds", low=low)
    except UsageError as error:
        raise ConfigError(name, text, str(error)) from None

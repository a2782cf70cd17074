"""Client settings from options and Kafka's client properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kctl.client.connections.transport import Security
from kctl.config.addresses import parse_addresses, without_user
from kctl.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from kctl.client.connections.guard import Guard

DEFAULT_PORT = 9092
CONNECT_TIMEOUT_MS_MAX = 5_000
PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
RETRY_BACKOFF_MS = 50
RETRY_BACKOFF_MS_MAX = 1_000
RECONNECT_BACKOFF_MS = 50
RECONNECT_BACKOFF_MS_MAX = 1_000
METADATA_MAX_AGE_MS = 300_000

_SCHEME = re.compile(r"\s*([A-Za-z0-9._-]*)://(.*)", re.DOTALL)
_OTHER_SCHEMES = {"http", "https", "ftp", "file", "zookeeper"}


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
    request_timeout_ms: int | None = None
    """request.timeout.ms: timeout of one request; None for that of the operation."""
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    """The pause before the second attempt of an operation; it doubles with each further one."""
    retry_backoff_ms_max: int = RETRY_BACKOFF_MS_MAX
    reconnect_backoff_ms: int = RECONNECT_BACKOFF_MS
    """reconnect.backoff.ms: the pause of a producer before it connects again to a broker; it doubles, as above."""
    reconnect_backoff_ms_max: int = RECONNECT_BACKOFF_MS_MAX
    are_controllers: bool = False
    """Whether `bootstrap` are controllers of a KRaft cluster, which take the place of its brokers (KIP-919)."""

    @property
    def response_timeout_ms(self) -> int:
        """How long one response may take."""
        return self.timeout_ms if self.request_timeout_ms is None else min(self.request_timeout_ms, self.timeout_ms)


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
    """Return the settings from explicit values, else from Kafka's client properties, else the defaults.

    `security` is made of the same properties; see kctl.client.connections.security.

    Raises UsageError and ConfigError.  kctl.client.properties.table has all properties.
    """
    values: dict[str, Any] = {}
    if properties:
        from kctl.client.properties.table import Client, check_properties  # noqa: PLC0415 - most commands have none

        values = check_properties(properties, Client.ADMIN)
    protocol = values.get("security.protocol", PLAINTEXT)
    if security is None and protocol != PLAINTEXT:
        raise ConfigError("security.protocol", protocol, "must not be ignored")
    servers = bootstrap_servers or properties.get("bootstrap.servers") or default_servers
    timeout = timeout_ms or max(1, values.get("default.api.timeout.ms", default_timeout_ms))
    return with_properties(
        ClientSettings(
            bootstrap=parse_servers(servers, protocol),
            client_id=properties.get("client.id") or "kctl",
            timeout_ms=timeout,
            connect_timeout_ms=min(timeout, CONNECT_TIMEOUT_MS_MAX),
            rack=properties.get("client.rack", ""),
            security=security,
            resolved=tuple((resolved or parse_resolved(properties.get("kctl.resolve", ""), "kctl.resolve")).items()),
        ),
        values,
    )


def with_properties(settings: ClientSettings, values: Mapping[str, Any]) -> ClientSettings:
    """Return the settings with the times that the properties of any client set."""
    backoff_ms = max(1, values.get("retry.backoff.ms", settings.retry_backoff_ms))
    connect_ms = values.get("socket.connection.setup.timeout.ms")
    request_ms = values.get("request.timeout.ms")
    return settings._replace(
        connect_timeout_ms=settings.connect_timeout_ms
        if connect_ms is None
        else min(settings.timeout_ms, max(1, connect_ms)),
        request_timeout_ms=settings.request_timeout_ms if request_ms is None else max(1, request_ms),
        retry_backoff_ms=backoff_ms,
        retry_backoff_ms_max=max(backoff_ms, values.get("retry.backoff.max.ms", settings.retry_backoff_ms_max)),
        metadata_max_age_ms=values.get("metadata.max.age.ms", settings.metadata_max_age_ms),
        reconnect_backoff_ms=values.get("reconnect.backoff.ms", settings.reconnect_backoff_ms),
        reconnect_backoff_ms_max=values.get("reconnect.backoff.max.ms", settings.reconnect_backoff_ms_max),
    )


def parse_servers(
    text: str, protocol: str | None = None, *, default_port: int = DEFAULT_PORT
) -> tuple[tuple[str, int], ...]:
    """Parse `host:port,[::1]:9092,host`.

    As for Kafka's clients, a part may begin with the protocol or the name of a listener, `SASL_SSL://host:9093`; kcat
    accepts a / after the port.  Raises UsageError, also for a part that names another protocol than `protocol`, the
    security protocol that will be used; None accepts all.
    """
    if "://" not in text:
        return parse_addresses(text, default_port=default_port)
    addresses = ",".join(_without_scheme(part, protocol) for part in text.split(","))
    return parse_addresses(addresses, default_port=default_port)


def _without_scheme(part: str, protocol: str | None) -> str:
    found = _SCHEME.fullmatch(part)
    if found is None:
        return part
    scheme, address = found[1].upper(), found[2].strip()
    shown = f"{found[1]}://{without_user(address)}"
    if found[1].lower() in _OTHER_SCHEMES:
        raise UsageError(f"'{shown}' is not the address of a broker; write HOST:PORT")
    if scheme in PROTOCOLS and protocol is not None and scheme != protocol.strip().upper():
        raise UsageError(
            f"'{shown}' names {scheme}, but security.protocol is {protocol}: set security.protocol={scheme} in the"
            f" client properties (--command-config), or leave {scheme}:// out"
        )
    return address.removesuffix("/")


def parse_resolved(text: str, source: str) -> dict[str, str]:
    """Parse `name=address,name=address`; names are in lower case.  Raises UsageError, which names the source."""
    resolved: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, separator, address = (word.strip() for word in pair.partition("="))
        address = address.removeprefix("[").removesuffix("]")
        if not (name and separator and address) or "/" in pair or ":" in name:
            raise UsageError(f"{source} takes NAME=ADDRESS, without ports, not '{pair}'")
        resolved[name.lower()] = address
    return resolved

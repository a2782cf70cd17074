"""Settings of the administration client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from kctl.admin.client.arguments import check_number
from kctl.client.connections.transport import Security
from kctl.client.settings import PLAINTEXT, RETRY_BACKOFF_MS, RETRY_BACKOFF_MS_MAX, ClientSettings, parse_servers
from kctl.errors import UsageError
from kctl.model import INT32_MAX


@dataclass(frozen=True, kw_only=True)
class AdminConfig:
    """Settings of an administration client, with the meanings of Kafka's properties; times in ms."""

    bootstrap_servers: str | Sequence[str]
    """host:port, several separated by commas or as a list."""
    client_id: str = "kctl"
    security: Security | None = None
    """TLS and SASL, which `from_properties` sets; None for PLAINTEXT."""
    request_timeout_ms: int = 30_000
    """The time for one response."""
    default_api_timeout_ms: int = 60_000
    """The deadline of a call with its retries, if the call does not set its own."""
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    retry_backoff_max_ms: int = RETRY_BACKOFF_MS_MAX
    socket_connection_setup_timeout_ms: int = 5_000
    enable_metrics_push: bool = False
    """Whether metrics are sent to brokers that have a receiver of client metrics and subscribe to them (KIP-714)."""

    def __post_init__(self) -> None:
        """Raise UsageError, which names the setting."""
        for name in (
            *("request_timeout_ms", "default_api_timeout_ms", "retry_backoff_ms"),
            *("retry_backoff_max_ms", "socket_connection_setup_timeout_ms"),
        ):
            check_number(name, getattr(self, name), low=1, high=INT32_MAX)
        if not isinstance(self.enable_metrics_push, bool):
            raise UsageError(f"enable_metrics_push must be True or False, not {self.enable_metrics_push!r}")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **overrides: Any) -> Self:
        """Return the settings of Kafka's client properties; `overrides` are fields, and replace them.

        Properties of other clients of Kafka are ignored (kctl.client.properties.table).  Raises ConfigError and
        UsageError, also for a name that no client has.
        """
        from kctl.client.properties.settings import admin_fields  # noqa: PLC0415 - it also parses security

        known = frozenset(field.name for field in fields(cls))
        return cls(**(admin_fields(properties, known - overrides.keys()) | overrides))

    def client_settings(self) -> ClientSettings:
        """Return the settings of the connections."""
        servers = self.bootstrap_servers
        protocol = PLAINTEXT if self.security is None else self.security.protocol
        return ClientSettings(
            bootstrap=parse_servers(servers if isinstance(servers, str) else ",".join(servers), protocol),
            client_id=self.client_id,
            timeout_ms=self.default_api_timeout_ms,
            connect_timeout_ms=min(self.default_api_timeout_ms, self.socket_connection_setup_timeout_ms),
            security=self.security,
            request_timeout_ms=self.request_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_ms_max=max(self.retry_backoff_ms, self.retry_backoff_max_ms),
        )

"""Settings of the public share consumer, as keyword arguments or from Kafka's client properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, get_args

from kctl.client.application.settings import Deserializer, as_is, connection_settings, require_positive, require_types
from kctl.client.connections.transport import Security
from kctl.client.consuming.membership.member import MembershipSettings
from kctl.client.consuming.sharing.session import ShareLimits
from kctl.client.settings import (
    CONNECT_TIMEOUT_MS_MAX,
    METADATA_MAX_AGE_MS,
    RETRY_BACKOFF_MS,
    RETRY_BACKOFF_MS_MAX,
    ClientSettings,
)
from kctl.errors import UsageError

AcknowledgementMode = Literal["implicit", "explicit"]
AcquireMode = Literal["batch_optimized", "record_limit"]


@dataclass(frozen=True, kw_only=True)
class ShareConsumerConfig:
    """Settings of a share consumer, with the meanings of Kafka's properties; sizes in bytes, times in ms.

    What Kafka has as settings of the group is set there: share.auto.offset.reset, share.isolation.level,
    share.record.lock.duration.ms, share.session.timeout.ms.
    """

    bootstrap_servers: str | Sequence[str]
    """host:port, several separated by commas or as a list."""
    group_id: str
    client_id: str = "kctl"
    security: Security | None = None
    """TLS and SASL, which `from_properties` sets; None for PLAINTEXT."""
    client_rack: str = ""
    share_acknowledgement_mode: AcknowledgementMode = "implicit"
    """implicit: the next `poll`, `commit` or the end of the block accepts the records; explicit: `acknowledge`."""
    share_acquire_mode: AcquireMode = "batch_optimized"
    """record_limit: at most `max_poll_records` are acquired at once, instead of whole batches (Kafka 4.2)."""
    max_poll_records: int = 500
    max_poll_interval_ms: int = 300_000
    """The most time between two calls of `poll`: the consumer leaves the group then."""
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 << 20
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int | None = None
    """The time of one operation with its retries; None for `request_timeout_ms`."""
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    retry_backoff_max_ms: int = RETRY_BACKOFF_MS_MAX
    socket_connection_setup_timeout_ms: int = CONNECT_TIMEOUT_MS_MAX
    metadata_max_age_ms: int = METADATA_MAX_AGE_MS
    enable_metrics_push: bool = True
    """Whether metrics are sent to brokers that have a receiver of client metrics and subscribe to them (KIP-714)."""
    key_deserializer: Deserializer = as_is
    value_deserializer: Deserializer = as_is

    def __post_init__(self) -> None:
        """Raise UsageError for settings of a wrong type or value."""
        require_types(self)
        require_positive(self, "request_timeout_ms", "retry_backoff_ms", "max_poll_records", "max_poll_interval_ms")
        if min(self.fetch_max_bytes, self.fetch_min_bytes, self.fetch_max_wait_ms) < 0:
            raise UsageError("fetch_max_bytes, fetch_min_bytes and fetch_max_wait_ms must not be negative")
        if not self.group_id:
            raise UsageError("a share consumer requires group_id")
        for name, words in (
            ("share_acknowledgement_mode", get_args(AcknowledgementMode)),
            ("share_acquire_mode", get_args(AcquireMode)),
        ):
            if getattr(self, name) not in words:
                raise UsageError(f"{name} is '{getattr(self, name)}'; use {' or '.join(words)}")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **overrides: Any) -> Self:
        """Return the settings of Kafka's client properties; `overrides` are fields, and replace them.

        Properties of other clients of Kafka are ignored (kctl.client.properties.table).  Raises ConfigError and
        UsageError, also for a name that no client has, and for one that share consumers do not have.
        """
        from kctl.client.properties.settings import consumer_fields  # noqa: PLC0415 - it also parses security

        for name in _REFUSED:
            if name in properties:
                raise UsageError(f"{name} cannot be set for a share consumer; remove it")
        known = frozenset(field.name for field in fields(cls))
        found = consumer_fields(properties, known - overrides.keys())
        return cls(**({name: value for name, value in found.items() if name in known} | overrides))

    def client_settings(self) -> ClientSettings:
        """Return the settings of the connections."""
        timeout_ms = self.request_timeout_ms if self.default_api_timeout_ms is None else self.default_api_timeout_ms
        return connection_settings(self)._replace(timeout_ms=timeout_ms, rack=self.client_rack)

    def limits(self) -> ShareLimits:
        """Return the limits of fetches."""
        return ShareLimits(
            self.fetch_max_wait_ms,
            self.fetch_min_bytes,
            self.fetch_max_bytes,
            self.max_poll_records,
            self.share_acquire_mode == "record_limit",
        )

    def membership(self, topics: Sequence[str]) -> MembershipSettings:
        """Return the settings of the group member."""
        return MembershipSettings(
            self.group_id,
            tuple(dict.fromkeys(topics)),
            rebalance_timeout_ms=self.max_poll_interval_ms,
            rack=self.client_rack,
            protocol="share",
        )


_REFUSED = (
    "auto.offset.reset",
    "enable.auto.commit",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "isolation.level",
    "partition.assignment.strategy",
    "interceptor.classes",
    "session.timeout.ms",
    "heartbeat.interval.ms",
)
"""As in Java's ShareConsumerConfig."""

"""Settings of the public producer and consumer, as keyword arguments or from Kafka's client properties."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, get_args

from kctl.client.connections.transport import Security
from kctl.client.consuming.fetching.batches import FetchLimits
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.consuming.membership.assignors import ASSIGNORS
from kctl.client.consuming.membership.member import GroupProtocol, MembershipSettings, SubscriptionPattern
from kctl.client.producing.interceptors import RecordRules, Serializer, as_bytes
from kctl.client.producing.partitioners import Partitioner
from kctl.client.producing.producer import ACKS_ALL, ProducerSettings
from kctl.client.producing.transaction import TRANSACTION_TIMEOUT_MS
from kctl.client.properties.values import offset_reset
from kctl.client.settings import (
    CONNECT_TIMEOUT_MS_MAX,
    METADATA_MAX_AGE_MS,
    PLAINTEXT,
    RECONNECT_BACKOFF_MS,
    RECONNECT_BACKOFF_MS_MAX,
    RETRY_BACKOFF_MS,
    RETRY_BACKOFF_MS_MAX,
    ClientSettings,
    parse_servers,
)
from kctl.errors import UsageError
from kctl.model import INT32_MAX
from kctl.records.compression import LEVELS, Codec

if TYPE_CHECKING:
    from kctl.client.application.consumer_records import ConsumerInterceptor
    from kctl.client.producing.interceptors import ProducerInterceptor

Deserializer = Callable[[bytes | None], Any]
Acks = Literal["all", "1", "0"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Subscription = Sequence[str] | re.Pattern[str] | SubscriptionPattern
"""Topics, or those whose whole names match."""
OffsetReset = str
"""earliest, latest, none, or by_duration:DURATION with a duration such as PT1H (KIP-1106)."""


def as_is(data: bytes | None) -> bytes | None:
    """Return the default deserializer: the bytes of the record."""
    return data


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """Settings of a producer, with the meanings of Kafka's properties; sizes in bytes, times in ms."""

    bootstrap_servers: str | Sequence[str]
    """host:port, several separated by commas or as a list."""
    client_id: str = "kctl"
    security: Security | None = None
    """TLS and SASL, which `from_properties` sets; None for PLAINTEXT."""
    acks: Acks = "all"
    enable_idempotence: bool = True
    """A batch that is retried is stored once; requires acks=all."""
    compression_type: Compression = "none"
    compression_gzip_level: int | None = None
    """1 to 9; None for the level that Kafka's broker uses, as for the other codecs."""
    compression_lz4_level: int | None = None
    """1 to 17."""
    compression_zstd_level: int | None = None
    """-131072 to 22."""
    linger_ms: int = 5
    batch_size: int = 64 << 10
    buffer_memory: int = 32 << 20
    max_block_ms: int = 60_000
    """How long `send` waits while the buffer is full, and for the metadata of the topic."""
    max_request_size: int = 1 << 20
    """The largest record."""
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    """How long a record is retried after it has been added to a batch."""
    retries: int | None = None
    """How often a batch is sent again; None for as long as `delivery_timeout_ms` permits."""
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    retry_backoff_max_ms: int = RETRY_BACKOFF_MS_MAX
    socket_connection_setup_timeout_ms: int = CONNECT_TIMEOUT_MS_MAX
    reconnect_backoff_ms: int = RECONNECT_BACKOFF_MS
    """The pause before a broker that was not reached is connected to again; it doubles up to the next one."""
    reconnect_backoff_max_ms: int = RECONNECT_BACKOFF_MS_MAX
    metadata_max_age_ms: int = METADATA_MAX_AGE_MS
    """How long the partitions of a topic are cached; added ones are used afterwards."""
    max_in_flight_requests_per_connection: int = 5
    """At most 5 with idempotence.  Without it, one batch of a partition is in flight, which keeps the order."""
    allow_auto_create_topics: bool = True
    """Whether `send` lets brokers with auto.create.topics.enable create a topic that does not exist."""
    enable_metrics_push: bool = True
    """Whether metrics are sent to brokers that have a receiver of client metrics and subscribe to them (KIP-714)."""
    transactional_id: str | None = None
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    partitioner: Partitioner | None = None
    """None for DefaultPartitioner."""
    key_serializer: Serializer = as_bytes
    """A callable, or a serializer of kctl.client.registry."""
    value_serializer: Serializer = as_bytes
    interceptors: Sequence[ProducerInterceptor] = ()

    def __post_init__(self) -> None:
        """Raise UsageError for settings of a wrong type or value, and for those that contradict each other."""
        require_types(self)
        require_positive(self, "buffer_memory", "max_request_size", "request_timeout_ms", "retry_backoff_ms")
        require_positive(self, "max_block_ms", "delivery_timeout_ms", "transaction_timeout_ms")
        if self.acks not in _ACKS:
            raise UsageError(f"acks is '{self.acks}'; it must be one of {', '.join(_ACKS)}")
        if self.compression_type not in _COMPRESSIONS:
            raise UsageError(
                f"compression_type is '{self.compression_type}'; it must be one of {', '.join(_COMPRESSIONS)}"
            )
        for codec, (lowest, highest) in LEVELS.items():
            level = self._level(codec)
            if level is not None and not lowest <= level <= highest:
                raise UsageError(
                    f"compression_{codec.name.lower()}_level is {level}; it must be from {lowest} to {highest}"
                )
        if self.linger_ms < 0 or self.batch_size < 0:
            raise UsageError("linger_ms and batch_size must not be negative")
        if self.acks != "all" and (self.enable_idempotence or self.transactional_id is not None):
            raise UsageError("idempotence and transactions require acks='all'; else set enable_idempotence=False")
        if self.transactional_id is not None and not self.enable_idempotence:
            raise UsageError("a transactional_id requires enable_idempotence")
        require_positive(self, "max_in_flight_requests_per_connection", "reconnect_backoff_ms")
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > IN_FLIGHT_MAX:
            raise UsageError(
                f"max_in_flight_requests_per_connection must be at most {IN_FLIGHT_MAX} with idempotence,"
                f" not {self.max_in_flight_requests_per_connection}"
            )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **overrides: Any) -> Self:
        """Return the settings of Kafka's client properties; `overrides` are fields, and replace them.

        Properties of other clients of Kafka are ignored (kctl.client.properties.table).  Raises ConfigError and
        UsageError, also for a name that no client has.
        """
        from kctl.client.properties.settings import producer_fields  # noqa: PLC0415 - it also parses security

        known = frozenset(field.name for field in fields(cls))
        return cls(**(producer_fields(properties, known - overrides.keys()) | overrides))

    def client_settings(self) -> ClientSettings:
        """Return the settings of the connections."""
        return _producer_client_settings(self)

    def producer_settings(self) -> ProducerSettings:
        """Return the settings of the accumulator and the sender."""
        return ProducerSettings(
            acks=_ACKS[self.acks],
            codec=Codec.named(self.compression_type),
            codec_level=self._level(Codec.named(self.compression_type)),
            idempotent=self.enable_idempotence,
            linger_ms=self.linger_ms,
            batch_bytes=self.batch_size,
            buffered_records_max=BUFFERED_RECORDS_MAX,
            buffered_bytes_max=self.buffer_memory,
            max_block_ms=self.max_block_ms,
            delivery_timeout_ms=self.delivery_timeout_ms,
            retries=self.retries,
            in_flight_max=self.max_in_flight_requests_per_connection,
            request_bytes_max=self.max_request_size,
            creates_topics=self.allow_auto_create_topics,
        )

    def _level(self, codec: Codec) -> int | None:
        level: int | None = getattr(self, f"compression_{codec.name.lower()}_level", None)
        return level

    def record_rules(self) -> RecordRules:
        """Return how records are serialized, and what is refused."""
        return RecordRules(self.key_serializer, self.value_serializer, self.interceptors, self.max_request_size)


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """Settings of a consumer, with the meanings of Kafka's properties; sizes in bytes, times in ms."""

    bootstrap_servers: str | Sequence[str]
    """host:port, several separated by commas or as a list."""
    client_id: str = "kctl"
    security: Security | None = None
    """TLS and SASL, which `from_properties` sets; None for PLAINTEXT."""
    group_id: str | None = None
    group_protocol: GroupProtocol = "classic"
    """"consumer" for the protocol of KIP-848, in which the broker assigns; it needs Kafka 4.0 or newer."""
    group_remote_assignor: str | None = None
    """The assignor of the broker, such as uniform or range, with group_protocol="consumer"; None for its default."""
    group_instance_id: str | None = None
    """Makes the consumer a static member: its partitions wait for it until the session times out (KIP-345)."""
    client_rack: str = ""
    auto_offset_reset: OffsetReset = "latest"
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    assignors: tuple[str, ...] | None = None
    """Names: range, roundrobin, sticky, cooperative-sticky; the preferred one first.  None for range and
    cooperative-sticky.  This and the next two are settings of the broker with group_protocol="consumer"."""
    session_timeout_ms: int | None = None
    """None for 10,000."""
    heartbeat_interval_ms: int | None = None
    """None for 3,000."""
    max_poll_interval_ms: int = 300_000
    """The most time between two calls of `poll`: the consumer leaves the group then; a rebalance waits as long."""
    max_poll_records: int = 500
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 << 20
    """The most that one broker returns to a fetch."""
    max_partition_fetch_bytes: int = 1 << 20
    fetch_buffer_bytes: int = 64 << 20
    """How many bytes are fetched in advance, together with the responses that are expected; at least one batch."""
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int | None = None
    """The time of one operation with its retries; None for `request_timeout_ms`."""
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    retry_backoff_max_ms: int = RETRY_BACKOFF_MS_MAX
    socket_connection_setup_timeout_ms: int = CONNECT_TIMEOUT_MS_MAX
    metadata_max_age_ms: int = METADATA_MAX_AGE_MS
    """How soon added partitions, and new topics that match a pattern, are read."""
    enable_metrics_push: bool = True
    """Whether metrics are sent to brokers that have a receiver of client metrics and subscribe to them (KIP-714)."""
    key_deserializer: Deserializer = as_is
    value_deserializer: Deserializer = as_is
    interceptors: Sequence[ConsumerInterceptor] = ()

    def __post_init__(self) -> None:
        """Raise UsageError for settings of a wrong type or value, and for those that contradict each other."""
        require_types(self)
        require_positive(self, "request_timeout_ms", "retry_backoff_ms", "max_poll_records")
        require_positive(self, "fetch_buffer_bytes", "max_poll_interval_ms")
        if min(self.fetch_max_bytes, self.max_partition_fetch_bytes, self.auto_commit_interval_ms) < 0:
            raise UsageError(
                "fetch_max_bytes, max_partition_fetch_bytes and auto_commit_interval_ms must not be negative"
            )
        try:
            offset_reset(self.auto_offset_reset)
        except UsageError as error:
            raise UsageError(f"auto_offset_reset is '{self.auto_offset_reset}'; {error}") from None
        if self.isolation_level.upper() not in IsolationLevel.__members__:
            raise UsageError(f"isolation_level is '{self.isolation_level}'; use read_committed or read_uncommitted")
        self._check_group_protocol()
        assignors, session_timeout_ms, heartbeat_interval_ms = self._classic_settings()
        if wrong := [name for name in assignors if name not in ASSIGNORS]:
            raise UsageError(f"'{wrong[0]}' is not an assignor; supported: {', '.join(ASSIGNORS)}")
        if not assignors:
            raise UsageError("at least one assignor is needed")
        if min(session_timeout_ms, heartbeat_interval_ms) <= 0:
            raise UsageError("session_timeout_ms and heartbeat_interval_ms must be positive")
        if heartbeat_interval_ms >= session_timeout_ms:
            raise UsageError("heartbeat_interval_ms must be less than session_timeout_ms")

    def _check_group_protocol(self) -> None:
        """Raise UsageError for settings of the other protocol, as Java's ConsumerConfig."""
        if self.group_protocol not in get_args(GroupProtocol):
            raise UsageError(f"group_protocol is '{self.group_protocol}'; use classic or consumer")
        if self.group_protocol == "classic":
            if self.group_remote_assignor is not None:
                raise UsageError("group_remote_assignor requires group_protocol='consumer'; else use assignors")
            return
        for name, remedy in _OF_CLASSIC_PROTOCOL.items():
            if getattr(self, name) is not None:
                raise UsageError(f"{name} cannot be set with group_protocol='consumer': {remedy}")
        if self.group_remote_assignor == "":
            raise UsageError("group_remote_assignor is empty; leave it out for the default of the broker")

    def _classic_settings(self) -> tuple[tuple[str, ...], int, int]:
        """Assignors, session time-out and heartbeat interval."""
        default = MembershipSettings("", ())
        return (
            default.assignors if self.assignors is None else self.assignors,
            default.session_timeout_ms if self.session_timeout_ms is None else self.session_timeout_ms,
            default.heartbeat_interval_ms if self.heartbeat_interval_ms is None else self.heartbeat_interval_ms,
        )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **overrides: Any) -> Self:
        """Return the settings of Kafka's client properties; `overrides` are fields, and replace them.

        Properties of other clients of Kafka are ignored (kctl.client.properties.table).  Raises ConfigError and
        UsageError, also for a name that no client has.
        """
        from kctl.client.properties.settings import consumer_fields  # noqa: PLC0415 - it also parses security

        known = frozenset(field.name for field in fields(cls))
        return cls(**(consumer_fields(properties, known - overrides.keys()) | overrides))

    @property
    def isolation(self) -> IsolationLevel:
        """The isolation level of requests."""
        return IsolationLevel[self.isolation_level.upper()]

    def client_settings(self) -> ClientSettings:
        """Return the settings of the connections."""
        settings = connection_settings(self)
        timeout_ms = self.request_timeout_ms if self.default_api_timeout_ms is None else self.default_api_timeout_ms
        return settings._replace(timeout_ms=timeout_ms, rack=self.client_rack)

    def fetch_limits(self) -> FetchLimits:
        """Return the limits of Fetch requests."""
        return FetchLimits(
            self.fetch_max_wait_ms, self.fetch_min_bytes, self.fetch_max_bytes, self.max_partition_fetch_bytes
        )

    def membership(self, topics: Subscription) -> MembershipSettings:
        """Return the settings of the group member, for topics or for those that match.

        Raises UsageError without a group.
        """
        if not self.group_id:
            raise UsageError("subscribe requires group_id; without a group, assign partitions")
        if isinstance(topics, SubscriptionPattern):
            if self.group_protocol == "classic":
                raise UsageError(
                    "a SubscriptionPattern requires group_protocol='consumer'; with 'classic' use re.compile"
                )
            if not topics.pattern:
                raise UsageError("the SubscriptionPattern is empty")
        assignors, session_timeout_ms, heartbeat_interval_ms = self._classic_settings()
        return MembershipSettings(
            self.group_id,
            () if isinstance(topics, (re.Pattern, SubscriptionPattern)) else tuple(dict.fromkeys(topics)),
            self.group_instance_id,
            session_timeout_ms,
            self.max_poll_interval_ms,
            heartbeat_interval_ms,
            assignors,
            self.client_rack,
            topics if isinstance(topics, re.Pattern) else None,
            self.group_protocol,
            self.group_remote_assignor,
            topics.pattern if isinstance(topics, SubscriptionPattern) else None,
        )


BUFFERED_RECORDS_MAX = 2_000_000
"""Records in the buffer beside buffer_memory, which counts their bytes and not the memory of Python's objects."""
IN_FLIGHT_MAX = 5
"""Of an idempotent producer: brokers remember so many batches of each producer in a partition."""
_ACKS: Mapping[str, int] = {"all": ACKS_ALL, "1": 1, "0": 0}
_OF_CLASSIC_PROTOCOL: Mapping[str, str] = {
    "assignors": "the broker assigns; group_remote_assignor names its assignor",
    "session_timeout_ms": "the broker has it, as consumer.session.timeout.ms of the group",
    "heartbeat_interval_ms": "the broker has it, as consumer.heartbeat.interval.ms of the group",
}
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "an int"),
    "int | None": ((int, NoneType), "an int or None"),
    "bool": ((bool,), "True or False"),
    "str": ((str,), "a str"),
    "str | None": ((str, NoneType), "a str or None"),
    "GroupProtocol": ((str,), "a str"),
    "Acks": ((str,), "'all', '1' or '0'"),
    "Compression": ((str,), "a str"),
    "OffsetReset": ((str,), "a str"),
    "tuple[str, ...] | None": ((tuple, list, NoneType), "a tuple of names, or None"),
}
"""The types of the settings by their annotations, and the words for them."""
_CALLABLES = frozenset({"Serializer", "Deserializer", "Partitioner | None"})
_RANGES = {
    "buffer_memory": (0, (1 << 63) - 1),
    "fetch_buffer_bytes": (0, (1 << 63) - 1),
    "compression_zstd_level": LEVELS[Codec.ZSTD],
}
"""Of numbers that have not the range of Kafka's others: 31 bits."""


def require_types(config: Any) -> None:
    """Check the types and ranges of all fields; raise UsageError, which names the first that is wrong."""
    for field in fields(config):
        kind, setting = str(field.type), getattr(config, field.name)
        types, words = _TYPES.get("str" if kind.startswith("Literal[") else kind, ((object,), ""))
        if not isinstance(setting, types) or (isinstance(setting, bool) and int in types):
            raise UsageError(f"{field.name} must be {words}, not {setting!r}")
        if kind in _CALLABLES and setting is not None and not callable(setting):
            raise UsageError(f"{field.name} must be callable, not {setting!r}")
        if kind.startswith("Sequence[") and (isinstance(setting, str) or not isinstance(setting, Sequence)):
            raise UsageError(f"{field.name} must be a list, not {setting!r}")
        if kind == "Security | None" and setting is not None and not hasattr(setting, "protocol"):
            raise UsageError(f"{field.name} must be None: TLS and SASL are set by from_properties")
        lowest, highest = _RANGES.get(field.name, (0, INT32_MAX))
        if isinstance(setting, int) and not lowest <= setting <= highest:
            raise UsageError(f"{field.name} must be from {lowest} to {highest}, not {setting}")
    try:
        _servers(config)
    except UsageError as error:
        raise UsageError(f"bootstrap_servers: {error}") from None


def _servers(config: ConnectionFields) -> tuple[tuple[str, int], ...]:
    """Raise UsageError."""
    servers = config.bootstrap_servers
    if not isinstance(servers, str):
        if not isinstance(servers, Sequence) or not all(isinstance(server, str) for server in servers):
            raise UsageError(f"must be host:port, or several in a list, not {servers!r}")
        servers = ",".join(servers)
    return parse_servers(servers, PLAINTEXT if config.security is None else config.security.protocol)


def require_positive(config: object, *names: str) -> None:
    """Raise UsageError for the first of these fields that is not positive."""
    for name in names:
        if getattr(config, name) <= 0:
            raise UsageError(f"{name} must be positive")


class ConnectionFields(Protocol):
    """The fields that all clients have, and that are about their connections."""

    @property
    def bootstrap_servers(self) -> str | Sequence[str]: ...
    @property
    def client_id(self) -> str: ...
    @property
    def security(self) -> Security | None: ...
    @property
    def request_timeout_ms(self) -> int: ...
    @property
    def retry_backoff_ms(self) -> int: ...
    @property
    def retry_backoff_max_ms(self) -> int: ...
    @property
    def socket_connection_setup_timeout_ms(self) -> int: ...
    @property
    def metadata_max_age_ms(self) -> int: ...


def connection_settings(config: ConnectionFields) -> ClientSettings:
    """Return the settings of the connections of any client.  Raises UsageError for an address that is none."""
    return ClientSettings(
        bootstrap=_servers(config),
        client_id=config.client_id,
        timeout_ms=config.request_timeout_ms,
        connect_timeout_ms=min(config.request_timeout_ms, config.socket_connection_setup_timeout_ms),
        security=config.security,
        request_timeout_ms=config.request_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_ms_max=max(config.retry_backoff_ms, config.retry_backoff_max_ms),
        metadata_max_age_ms=config.metadata_max_age_ms,
    )


def _producer_client_settings(config: ProducerConfig) -> ClientSettings:
    return connection_settings(config)._replace(
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_ms_max=max(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
    )

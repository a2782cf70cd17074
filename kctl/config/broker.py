"""The properties of a broker as an immutable snapshot, and validation across several properties.

Kafka's KafkaConfig (2.8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kctl.config.definition import Problem, Property, properties_of
from kctl.config.subjects.authorization import AuthorizationProperties
from kctl.config.subjects.coordination import CoordinationProperties
from kctl.config.subjects.groups import GroupProperties, ShareGroupProperties, StreamsGroupProperties
from kctl.config.subjects.logs import LogProperties
from kctl.config.subjects.monitoring import MetricsProperties, RequestLogProperties
from kctl.config.subjects.network import NetworkProperties
from kctl.config.subjects.quotas import QuotaProperties
from kctl.config.subjects.replication import ReplicationProperties
from kctl.config.subjects.sasl import SaslProperties
from kctl.config.subjects.tls import TlsProperties
from kctl.config.subjects.transactions import TransactionProperties
from kctl.config.subjects.versions import version_rank

_MS_PER_MINUTE = 60_000
_MS_PER_HOUR = 3_600_000
_CLEANER_BUFFER_PER_THREAD_MIN = 1 << 20
_STORED_FORMAT = 2
_ZSTD = 4
_COUNT = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(
    CoordinationProperties,
    NetworkProperties,
    LogProperties,
    ReplicationProperties,
    GroupProperties,
    ShareGroupProperties,
    StreamsGroupProperties,
    TransactionProperties,
    QuotaProperties,
    MetricsProperties,
    RequestLogProperties,
    AuthorizationProperties,
    TlsProperties,
    SaslProperties,
):
    """Configuration of a broker.  Immutable: a dynamic change creates a new snapshot."""

    @property
    def log_directories(self) -> tuple[str, ...]:
        """log.dirs, or log.dir."""
        listed = self.log_dirs if self.log_dirs is not None else self.log_dir
        return tuple(entry.strip() for entry in listed.split(",") if entry.strip())

    @property
    def retention_ms(self) -> int:
        """log.retention.ms, .minutes or .hours; -1 keeps everything."""
        if self.log_retention_ms is not None:
            value = self.log_retention_ms
        elif self.log_retention_minutes is not None:
            value = self.log_retention_minutes * _MS_PER_MINUTE
        else:
            value = self.log_retention_hours * _MS_PER_HOUR
        return max(value, -1)

    @property
    def roll_ms(self) -> int:
        """log.roll.ms or log.roll.hours."""
        return self.log_roll_ms if self.log_roll_ms is not None else self.log_roll_hours * _MS_PER_HOUR

    @property
    def roll_jitter_ms(self) -> int:
        """log.roll.jitter.ms or log.roll.jitter.hours."""
        return (
            self.log_roll_jitter_ms
            if self.log_roll_jitter_ms is not None
            else self.log_roll_jitter_hours * _MS_PER_HOUR
        )

    @property
    def flush_interval_ms(self) -> int:
        """log.flush.interval.ms or log.flush.scheduler.interval.ms."""
        return (
            self.log_flush_interval_ms
            if self.log_flush_interval_ms is not None
            else self.log_flush_scheduler_interval_ms
        )

    @property
    def zookeeper_connection_timeout(self) -> int:
        """zookeeper.connection.timeout.ms or zookeeper.session.timeout.ms, in milliseconds."""
        return self.zookeeper_connection_timeout_ms or self.zookeeper_session_timeout_ms


BROKER_PROPERTIES: Mapping[str, Property] = properties_of(BrokerConfig)

SINGLE_BROKER_PROPERTIES: Mapping[str, str] = {
    "broker.id": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "200",
}
"""Defaults of a single development broker, as in Kafka's sample server.properties.

The sample sets group.initial.rebalance.delay.ms to 0. Some clients (kafka-python 3.0) never recover if they become
group leader before their first Metadata response, so the delay here is long enough for that; members that start
together also join the same generation.  It is short enough for tests.
"""


def contradictions(config: BrokerConfig) -> Iterator[Problem]:
    """Problems across several properties, and bounds that depend on the version.  Listeners are checked separately."""
    yield from _identity(config)
    yield from _logs(config)
    yield from _replication(config)
    yield from _groups(config)
    yield from _network(config)
    yield from _versions(config)


def _problem(config: BrokerConfig, name: str, reason: str, remedy: str) -> Problem:
    described = BROKER_PROPERTIES[name]
    value: Any = getattr(config, described.attribute)
    return Problem(name, "[hidden]" if described.sensitive else described.format(value), reason, remedy)


def _identity(config: BrokerConfig) -> Iterator[Problem]:
    if not config.broker_id_generation_enable:
        if config.broker_id < 0:
            yield _problem(
                config, "broker.id", "is not an id, and broker.id.generation.enable is false", "set it to 0 or more"
            )
    elif config.broker_id < -1:
        yield _problem(config, "broker.id", "is below -1", "set it to 0 or more, or to -1 for a generated id")
    elif config.broker_id > config.reserved_broker_max_id:
        yield _problem(
            config,
            "broker.id",
            f"is above reserved.broker.max.id ({config.reserved_broker_max_id})",
            "choose a smaller id, raise reserved.broker.max.id or set broker.id.generation.enable=false",
        )


def _logs(config: BrokerConfig) -> Iterator[Problem]:
    if not config.log_directories:
        yield _problem(config, "log.dirs", "names no directory", "name at least one")
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = getattr(config, name.replace(".", "_"))
        if value is not None and (value == 0 or value < -1):
            yield _problem(config, name, "is neither -1 nor at least 1", "use -1 for no limit")
    if config.log_cleaner_enable and config.log_cleaner_threads > 0:
        share = config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads
        if share <= _CLEANER_BUFFER_PER_THREAD_MIN:
            yield _problem(
                config,
                "log.cleaner.dedupe.buffer.size",
                "gives each cleaner thread no more than 1 MiB",
                "raise it or lower log.cleaner.threads",
            )
    if config.log_cleaner_min_compaction_lag_ms > config.log_cleaner_max_compaction_lag_ms:
        yield _problem(
            config,
            "log.cleaner.min.compaction.lag.ms",
            "is greater than log.cleaner.max.compaction.lag.ms",
            "swap or change the two",
        )


def _replication(config: BrokerConfig) -> Iterator[Problem]:
    wait = "replica.fetch.wait.max.ms"
    if config.replica_fetch_wait_max_ms > config.replica_socket_timeout_ms:
        yield _problem(
            config, wait, "is greater than replica.socket.timeout.ms, so every idle fetch would time out", "lower it"
        )
    if config.replica_fetch_wait_max_ms > config.replica_lag_time_max_ms:
        yield _problem(
            config, wait, "is greater than replica.lag.time.max.ms, so idle followers would leave the ISR", "lower it"
        )


def _groups(config: BrokerConfig) -> Iterator[Problem]:
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        yield _problem(
            config,
            "group.min.session.timeout.ms",
            "is above group.max.session.timeout.ms, so no member could join",
            "lower it or raise the other",
        )
    if not -1 <= config.offsets_commit_required_acks <= config.offsets_topic_replication_factor:
        yield _problem(
            config,
            "offsets.commit.required.acks",
            "is neither -1 nor a number of replicas of the offsets topic",
            "leave it at -1",
        )


def _network(config: BrokerConfig) -> Iterator[Problem]:
    queued = config.queued_max_request_bytes
    if 0 < queued < config.socket_request_max_bytes:
        yield _problem(
            config,
            "queued.max.request.bytes",
            "has no room for one request of socket.request.max.bytes",
            "raise it or use -1",
        )
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        yield _problem(
            config,
            "max.connections.per.ip",
            "allows no connections",
            "name who may connect in max.connections.per.ip.overrides",
        )
    for part in filter(None, (entry.strip() for entry in config.max_connections_per_ip_overrides.split(","))):
        host, _, count = part.rpartition(":")
        if not host or not _COUNT.fullmatch(count.strip()):
            yield _problem(
                config,
                "max.connections.per.ip.overrides",
                f"'{part}' is not a pair of host and count",
                "write it as host:count,host:count",
            )


def _versions(config: BrokerConfig) -> Iterator[Problem]:
    protocol_version = config.inter_broker_protocol_version
    if not stores_in_format_of(config.log_message_format_version) and stores_in_format_of(protocol_version):
        yield _problem(
            config,
            "log.message.format.version",
            "batches are stored in message format 2 (0.11.0), not in an older one",
            "remove it; older consumers get older formats by conversion",
        )
    if _record_format(config.log_message_format_version) > _record_format(protocol_version):
        yield _problem(
            config,
            "log.message.format.version",
            f"is newer than inter.broker.protocol.version {protocol_version}",
            "raise inter.broker.protocol.version first",
        )
    if version_rank(protocol_version) < version_rank("2.1-IV0"):
        if config.compression_type == "zstd":
            yield _problem(
                config, "compression.type", "needs inter.broker.protocol.version 2.1 or later", "choose another codec"
            )
        if config.offsets_topic_compression_codec == _ZSTD:
            yield _problem(
                config,
                "offsets.topic.compression.codec",
                "needs inter.broker.protocol.version 2.1 or later",
                "choose another codec",
            )


def stores_in_format_of(version: str) -> bool:
    """Return whether batches are stored in the message format of a message.format.version."""
    return _record_format(version) == _STORED_FORMAT


def _record_format(version: str) -> int:
    """Return the magic of the batches that this version introduced or kept."""
    rank = version_rank(version)
    return (rank >= version_rank("0.10.0-IV0")) + (rank >= version_rank("0.11.0-IV0"))

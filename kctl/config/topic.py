"""The properties of a topic, their defaults from the broker, and the validation of overrides.

Kafka's LogConfig (2.8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kctl.config.broker import BrokerConfig, stores_in_format_of
from kctl.config.definition import (
    THROTTLED_REPLICAS,
    Property,
    at_least,
    between,
    each_of,
    known_version,
    one_of,
    prop,
    properties_of,
)
from kctl.config.kinds import BOOLEAN, DOUBLE, INT, LIST, LONG, LONG_MAX, STRING
from kctl.config.subjects.logs import COMPRESSION_TYPES, SEGMENT_BYTES_MIN
from kctl.config.subjects.versions import LATEST_VERSION, VERSION_NAMES
from kctl.errors import ApiError, ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Every property of a topic with the value in force.  The defaults are those of an unconfigured broker."""

    cleanup_policy: tuple[str, ...] = prop(
        "cleanup.policy",
        LIST,
        each_of("compact", "delete"),
        default=("delete",),
        server="log.cleanup.policy",
        doc="Cleanup of old segments: delete, compact (keep the last record of each key), both, or neither.",
    )
    compression_type: str = prop(
        "compression.type",
        STRING,
        one_of(*COMPRESSION_TYPES),
        default="producer",
        server="compression.type",
        doc="Compression codec of stored batches; producer keeps the producer's codec.",
    )
    delete_retention_ms: int = prop(
        "delete.retention.ms",
        LONG,
        at_least(0),
        default=86400000,
        server="log.cleaner.delete.retention.ms",
        doc="How long tombstones are kept in a compacted log.",
    )
    file_delete_delay_ms: int = prop(
        "file.delete.delay.ms",
        LONG,
        at_least(0),
        default=60000,
        server="log.segment.delete.delay.ms",
        doc="Delay before deleted files are removed.",
    )
    flush_messages: int = prop(
        "flush.messages",
        LONG,
        at_least(0),
        default=LONG_MAX,
        server="log.flush.interval.messages",
        doc="Number of records after which the log is flushed to disk.",
    )
    flush_ms: int = prop(
        "flush.ms",
        LONG,
        at_least(0),
        default=LONG_MAX,
        server="log.flush.interval.ms",
        doc="Time after which the log is flushed to disk.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = prop(
        "follower.replication.throttled.replicas",
        LIST,
        THROTTLED_REPLICAS,
        default=(),
        doc="Replicas throttled on the follower, as partition:broker pairs, or * for all.",
    )
    index_interval_bytes: int = prop(
        "index.interval.bytes",
        INT,
        at_least(0),
        default=4096,
        server="log.index.interval.bytes",
        doc="Bytes between two entries of the offset index.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = prop(
        "leader.replication.throttled.replicas",
        LIST,
        THROTTLED_REPLICAS,
        default=(),
        doc="Replicas throttled on the leader, as partition:broker pairs, or * for all.",
    )
    max_compaction_lag_ms: int = prop(
        "max.compaction.lag.ms",
        LONG,
        at_least(1),
        default=LONG_MAX,
        server="log.cleaner.max.compaction.lag.ms",
        doc="Age of a record at which the log is compacted regardless of the dirty ratio.",
    )
    max_message_bytes: int = prop(
        "max.message.bytes",
        INT,
        at_least(0),
        default=1048588,
        server="message.max.bytes",
        doc="Maximum size of a record batch.",
    )
    message_downconversion_enable: bool = prop(
        "message.downconversion.enable",
        BOOLEAN,
        default=True,
        server="log.message.downconversion.enable",
        doc="Whether batches are converted to an older message format for old consumers.",
    )
    message_format_version: str = prop(
        "message.format.version",
        STRING,
        known_version(VERSION_NAMES),
        default=LATEST_VERSION,
        server="log.message.format.version",
        doc="Accepted and described; batches are always stored in the format of 0.11, as in Kafka 3; "
        "an older version is logged as a warning.",
    )
    message_timestamp_difference_max_ms: int = prop(
        "message.timestamp.difference.max.ms",
        LONG,
        at_least(0),
        default=LONG_MAX,
        server="log.message.timestamp.difference.max.ms",
        doc="Maximum difference between the timestamp of a record and the broker's time.",
    )
    message_timestamp_type: str = prop(
        "message.timestamp.type",
        STRING,
        one_of("CreateTime", "LogAppendTime"),
        default="CreateTime",
        server="log.message.timestamp.type",
        doc="Whether timestamps are set by the producer (CreateTime) or at the append (LogAppendTime).",
    )
    min_cleanable_dirty_ratio: float = prop(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        between(0, 1),
        default=0.5,
        server="log.cleaner.min.cleanable.ratio",
        doc="Minimum ratio of uncompacted bytes to all bytes of the log for compaction.",
    )
    min_compaction_lag_ms: int = prop(
        "min.compaction.lag.ms",
        LONG,
        at_least(0),
        default=0,
        server="log.cleaner.min.compaction.lag.ms",
        doc="Minimum age of a record before it can be removed by compaction.",
    )
    min_insync_replicas: int = prop(
        "min.insync.replicas",
        INT,
        at_least(1),
        default=1,
        server="min.insync.replicas",
        doc="Minimum number of in-sync replicas for a write with acks=all.",
    )
    preallocate: bool = prop(
        "preallocate",
        BOOLEAN,
        default=False,
        server="log.preallocate",
        doc="Whether the file of a new segment is allocated at its full size.",
    )
    retention_bytes: int = prop(
        "retention.bytes",
        LONG,
        default=-1,
        server="log.retention.bytes",
        doc="Size of a partition above which its oldest segments are deleted; -1 for no limit.",
    )
    retention_ms: int = prop(
        "retention.ms",
        LONG,
        at_least(-1),
        default=604800000,
        server="log.retention.ms",
        doc="Age at which closed segments are deleted; -1 for no limit.",
    )
    segment_bytes: int = prop(
        "segment.bytes",
        INT,
        at_least(SEGMENT_BYTES_MIN),
        default=1 << 30,
        server="log.segment.bytes",
        doc="Size at which a segment is closed and a new one is created.",
    )
    segment_index_bytes: int = prop(
        "segment.index.bytes",
        INT,
        at_least(0),
        default=10 << 20,
        server="log.index.size.max.bytes",
        doc="Maximum size of a segment's offset index; the segment is closed when it is full.",
    )
    segment_jitter_ms: int = prop(
        "segment.jitter.ms",
        LONG,
        at_least(0),
        default=0,
        server="log.roll.jitter.ms",
        doc="Maximum random reduction of segment.ms.",
    )
    segment_ms: int = prop(
        "segment.ms",
        LONG,
        at_least(1),
        default=604800000,
        server="log.roll.ms",
        doc="Age at which a segment is closed even if it is not full.",
    )
    unclean_leader_election_enable: bool = prop(
        "unclean.leader.election.enable",
        BOOLEAN,
        default=False,
        server="unclean.leader.election.enable",
        doc="Whether an out-of-sync replica may become leader if no in-sync replica is alive; this loses records.",
    )

    @property
    def compacts(self) -> bool:
        """True if cleanup.policy contains compact."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """True if cleanup.policy contains delete; it may contain both."""
        return "delete" in self.cleanup_policy


TOPIC_PROPERTIES: Mapping[str, Property] = properties_of(TopicConfig)


def validate_topic_overrides(overrides: Mapping[str, str | None]) -> None:
    """Raise ApiError(INVALID_CONFIG) for a null, an unknown name, or invalid or inconsistent values."""
    _parse_overrides(overrides)


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str | None] | None = None) -> TopicConfig:
    """Return the values in force for a topic with these overrides.  Raises ApiError(INVALID_CONFIG)."""
    values: dict[str, Any] = topic_defaults(broker)
    values.update(_parse_overrides(overrides or {}))
    return TopicConfig(**values)


def topic_config_ignoring_errors(broker: BrokerConfig, overrides: Mapping[str, str]) -> tuple[TopicConfig, list[str]]:
    """As `topic_config`, for stored overrides: invalid ones are skipped and returned in the list.

    They may have been written by a newer broker, and must not prevent this broker from serving the topic.
    """
    values: dict[str, Any] = topic_defaults(broker)
    ignored = []
    for name, text in overrides.items():
        try:
            values.update(_parse_overrides({name: text}))
        except ApiError as error:
            ignored.append(str(error))
    version = values["message_format_version"]
    if "message.format.version" in overrides and not stores_in_format_of(version):
        ignored.append(f"message.format.version={version} has no effect: batches are stored in the format of 0.11.0")
    return TopicConfig(**values), ignored


def topic_defaults(broker: BrokerConfig) -> dict[str, Any]:
    """Return the attributes of a TopicConfig without overrides: the broker's values with fallbacks resolved."""
    resolved = {
        "log.retention.ms": broker.retention_ms,
        "log.roll.ms": broker.roll_ms,
        "log.roll.jitter.ms": broker.roll_jitter_ms,
        "log.flush.interval.ms": broker.flush_interval_ms,
    }
    return {
        described.attribute: resolved[described.server]
        if described.server in resolved
        else getattr(broker, described.server.replace(".", "_"))
        for described in TOPIC_PROPERTIES.values()
        if described.server is not None
    }


def _parse_overrides(overrides: Mapping[str, str | None]) -> dict[str, object]:
    """Return parsed values by attribute."""
    nulls = sorted(name for name, text in overrides.items() if text is None)
    if nulls:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"No value given for topic configs: {', '.join(nulls)}")
    values = {
        described.attribute: _parse_one(described, text)
        for described, text in _described(overrides.items())
        if text is not None
    }
    shortest, longest = values.get("min_compaction_lag_ms"), values.get("max_compaction_lag_ms")
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms ({shortest}) is greater than max.compaction.lag.ms ({longest})",
        )
    return values


def _described(overrides: Iterable[tuple[str, str | None]]) -> Iterable[tuple[Property, str | None]]:
    for name, text in overrides:
        described = TOPIC_PROPERTIES.get(name)
        if described is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        yield described, text


def _parse_one(described: Property, text: str) -> object:
    try:
        return described.parse(text)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Invalid value {text} for {described.name}: it {error}") from None

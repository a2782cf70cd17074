"""The settings of one log: an immutable copy of its topic's configuration in the types that storage uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple, Protocol

from kctl.records.compression import Codec
from kctl.records.header import NO_TIMESTAMP, TimestampType
from kctl.records.validate import TIMESTAMP_DIFFERENCE_UNLIMITED, AppendRules
from kctl.system.environment import Random

UNLIMITED = -1
FOREVER = (1 << 63) - 1


@dataclass(frozen=True)
class LogConfig:
    """One attribute per topic property, with underscores for dots; the defaults are those of Kafka 2.8.

    Replaced as a whole when the topic's configuration changes.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    preallocate: bool = False
    flush_messages: int = FOREVER
    flush_ms: int = FOREVER
    retention_bytes: int = UNLIMITED
    retention_ms: int = 604_800_000
    file_delete_delay_ms: int = 60_000
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER
    min_cleanable_dirty_ratio: float = 0.5
    compression_type: str = "producer"
    max_message_bytes: int = 1_048_588
    message_downconversion_enable: bool = True
    message_timestamp_type: str = "CreateTime"
    message_timestamp_difference_max_ms: int = TIMESTAMP_DIFFERENCE_UNLIMITED
    allows_zstd: bool = True
    """Not a topic property: true from inter.broker.protocol.version 2.1 on (KIP-110)."""

    @classmethod
    def of(cls, topic_config: object) -> LogConfig:
        """Return the settings from an object with these attributes, such as a TopicConfig; missing ones get the
        default.

        `cleanup_policy` may be a comma-separated string or a collection of strings.
        """
        values = {
            field.name: getattr(topic_config, field.name) for field in fields(cls) if hasattr(topic_config, field.name)
        }
        if "cleanup_policy" in values:
            values["cleanup_policy"] = _policies(values["cleanup_policy"])
        return cls(**values)

    @property
    def is_compacted(self) -> bool:
        """True if `cleanup.policy` contains `compact`."""
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        """True if `cleanup.policy` contains `delete`."""
        return "delete" in self.cleanup_policy

    @cached_property
    def roll_ms(self) -> int:
        """The maximum age of an active segment in ms; for a compacted log at most `max.compaction.lag.ms` (KIP-354)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    def random_jitter_ms(self, random: Random) -> int:
        """Return how much earlier than `roll_ms` a segment is rolled, so that those of many logs are not at the same
        time.
        """
        bound_ms = min(self.segment_jitter_ms, self.segment_ms)
        return random.randrange(0, bound_ms) if bound_ms > 0 else 0

    @cached_property
    def append_rules(self) -> AppendRules:
        """The rules that a produced batch is validated against."""
        codec = None if self.compression_type == "producer" else Codec.named(self.compression_type)
        append_time = self.message_timestamp_type == "LogAppendTime"
        return AppendRules(
            max_message_bytes=self.max_message_bytes,
            segment_bytes=self.segment_bytes,
            is_compacted=self.is_compacted,
            timestamp_type=TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME,
            timestamp_difference_max_ms=self.message_timestamp_difference_max_ms,
            codec=codec,
            allows_zstd=self.allows_zstd,
        )


def _policies(value: str | Iterable[str]) -> frozenset[str]:
    parts = value.split(",") if isinstance(value, str) else value
    return frozenset(part.strip() for part in parts)


RELATIVE_OFFSET_MAX = (1 << 31) - 1
"""Indexes and batches store offsets relative to the base offset of their segment, in 31 bits."""


# When to roll the active segment. Pure. Kafka's LogSegment.shouldRoll.


class ActiveSegment(Protocol):
    """The properties of the active segment that the rule needs."""

    base_offset: int
    size: int
    created_ms: int
    roll_jitter_ms: int

    @property
    def has_full_index(self) -> bool:
        """True if no more index entries fit."""

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch in ms, or -1."""


def should_roll(
    segment: ActiveSegment, config: LogConfig, *, append_size: int, max_timestamp: int, last_offset: int, now_ms: int
) -> bool:
    """Return whether `append_size` more bytes, up to `last_offset` and `max_timestamp`, must go to a new segment."""
    if segment.size > config.segment_bytes - append_size:
        return segment.size > 0
    if segment.has_full_index or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return True
    return segment.size > 0 and age_ms(segment, max_timestamp, now_ms) > config.roll_ms - segment.roll_jitter_ms


class Room(NamedTuple):
    """How far appends to a segment stay within it, whatever the time is: each value is the largest possible one."""

    config: LogConfig
    size: int
    last_offset: int
    max_timestamp: int


def room_in(segment: ActiveSegment, config: LogConfig) -> Room:
    """Return values up to which `should_roll` is False for a batch with a timestamp, until the index has grown.

    The rule is that of `should_roll`; what does not fit has to be passed to it.
    """
    first_timestamp = segment.first_timestamp
    if segment.has_full_index or first_timestamp <= NO_TIMESTAMP:
        return Room(config, 0, -1, NO_TIMESTAMP)
    return Room(
        config,
        config.segment_bytes,
        segment.base_offset + RELATIVE_OFFSET_MAX,
        first_timestamp + config.roll_ms - segment.roll_jitter_ms,
    )


def age_ms(segment: ActiveSegment, max_timestamp: int, now_ms: int) -> int:
    """Return the age in ms by record time, so that a replica rolls where the leader did; by the clock without
    timestamps.
    """
    first_timestamp = segment.first_timestamp
    if first_timestamp > NO_TIMESTAMP and max_timestamp > NO_TIMESTAMP:
        return max_timestamp - first_timestamp
    return now_ms - segment.created_ms

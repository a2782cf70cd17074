"""The settings of one log: a frozen picture of its topic's configuration, in types that storage works with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property

from kctl.records.compression import Codec
from kctl.records.header import TimestampType
from kctl.records.validate import TIMESTAMP_DIFFERENCE_UNLIMITED, AppendRules

UNLIMITED = -1
FOREVER = (1 << 63) - 1


@dataclass(frozen=True)
class LogConfig:
    """One attribute per topic property, named like it with dots as underscores; the defaults are Kafka 2.8's.

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
    """No topic property: inter.broker.protocol.version decides."""

    @classmethod
    def of(cls, topic_config: object) -> LogConfig:
        """From anything that has these attributes, such as a TopicConfig; what it lacks keeps its default.

        A cleanup policy may be text with commas, or any collection of words.
        """
        values = {
            field.name: getattr(topic_config, field.name) for field in fields(cls) if hasattr(topic_config, field.name)
        }
        if "cleanup_policy" in values:
            values["cleanup_policy"] = _policies(values["cleanup_policy"])
        return cls(**values)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """How old an active segment gets; a compacted log closes it in time for the compaction it has promised."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @cached_property
    def append_rules(self) -> AppendRules:
        """What a produced batch is checked against."""
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
    words = value.split(",") if isinstance(value, str) else value
    return frozenset(word.strip() for word in words)

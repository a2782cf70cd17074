"""Log directories, segments, retention, flushing and compaction.

Most of these are defaults of topic properties; `kctl.config.topic` names them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Dynamic, Importance, at_least, between, each_of, known_version, one_of, prop
from kctl.config.kinds import BOOLEAN, DOUBLE, DOUBLE_MAX, INT, LIST, LONG, LONG_MAX, STRING
from kctl.config.subjects.versions import LATEST_VERSION, VERSION_NAMES

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
SEGMENT_BYTES_MIN = 14
"""Overhead of one record in the oldest message format; a segment must be able to contain at least one."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class LogProperties:
    """Log directories, creation of topics, and segments."""

    __slots__ = ()

    log_dir: str = prop(
        "log.dir",
        STRING,
        default="/tmp/kafka-logs",  # noqa: S108 - Kafka's default; `kctl broker start` sets log.dirs
        importance=Importance.HIGH,
        doc="Log directory, if log.dirs is not set.",
    )
    log_dirs: str | None = prop(
        "log.dirs",
        STRING,
        default=None,
        importance=Importance.HIGH,
        doc="Log directories, separated by commas; a new partition goes to the one with the fewest. "
        "log.dir when not set.",
    )
    num_partitions: int = prop(
        "num.partitions",
        INT,
        at_least(1),
        default=1,
        doc="Default number of partitions of new topics.",
    )
    default_replication_factor: int = prop(
        "default.replication.factor",
        INT,
        at_least(1),
        default=1,
        doc="Default replication factor of new topics.",
    )
    auto_create_topics_enable: bool = prop(
        "auto.create.topics.enable",
        BOOLEAN,
        default=True,
        importance=Importance.HIGH,
        doc="Whether a Metadata request for a topic that does not exist creates it.",
    )
    delete_topic_enable: bool = prop(
        "delete.topic.enable",
        BOOLEAN,
        default=True,
        importance=Importance.HIGH,
        doc="Whether topics can be deleted.",
    )

    log_segment_bytes: int = prop(
        "log.segment.bytes",
        INT,
        at_least(SEGMENT_BYTES_MIN),
        default=1 << 30,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        doc="Size at which a segment is closed and a new one is created.",
    )
    log_roll_ms: int | None = prop(
        "log.roll.ms",
        LONG,
        at_least(1),
        default=None,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        falls_back_to=("log.roll.hours",),
        doc="Age at which a segment is closed even if it is not full.",
    )
    log_roll_hours: int = prop(
        "log.roll.hours", INT, at_least(1), default=168, importance=Importance.HIGH, doc="log.roll.ms in hours."
    )
    log_roll_jitter_ms: int | None = prop(
        "log.roll.jitter.ms",
        LONG,
        at_least(0),
        default=None,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        falls_back_to=("log.roll.jitter.hours",),
        doc="Maximum random reduction of log.roll.ms, so that segments do not roll at the same time.",
    )
    log_roll_jitter_hours: int = prop(
        "log.roll.jitter.hours",
        INT,
        at_least(0),
        default=0,
        importance=Importance.HIGH,
        doc="log.roll.jitter.ms in hours.",
    )
    log_index_size_max_bytes: int = prop(
        "log.index.size.max.bytes",
        INT,
        at_least(4),
        default=10 << 20,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Maximum size of a segment's offset index; the segment is closed when it is full.",
    )
    log_index_interval_bytes: int = prop(
        "log.index.interval.bytes",
        INT,
        at_least(0),
        default=4096,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Bytes between two entries of an offset index.",
    )
    log_preallocate: bool = prop(
        "log.preallocate",
        BOOLEAN,
        default=False,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Whether the file of a new segment is allocated at its full size.",
    )

    log_retention_ms: int | None = prop(
        "log.retention.ms",
        LONG,
        default=None,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        falls_back_to=("log.retention.minutes", "log.retention.hours"),
        doc="Age at which closed segments are deleted; -1 for no limit.",
    )
    log_retention_minutes: int | None = prop(
        "log.retention.minutes",
        INT,
        default=None,
        importance=Importance.HIGH,
        falls_back_to=("log.retention.hours",),
        doc="log.retention.ms in minutes.",
    )
    log_retention_hours: int = prop(
        "log.retention.hours", INT, default=168, importance=Importance.HIGH, doc="log.retention.ms in hours."
    )
    log_retention_bytes: int = prop(
        "log.retention.bytes",
        LONG,
        at_least(-1),
        default=-1,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        doc="Size of a partition above which its oldest segments are deleted; -1 for no limit.",
    )
    log_retention_check_interval_ms: int = prop(
        "log.retention.check.interval.ms",
        LONG,
        at_least(1),
        default=300000,
        doc="Interval of the checks for segments to delete.",
    )
    log_segment_delete_delay_ms: int = prop(
        "log.segment.delete.delay.ms",
        LONG,
        at_least(0),
        default=60000,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        doc="Delay before deleted files are removed, for reads in progress.",
    )
    log_cleanup_policy: tuple[str, ...] = prop(
        "log.cleanup.policy",
        LIST,
        each_of("compact", "delete"),
        default=("delete",),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Cleanup of old segments: delete, compact (keep the last record of each key), both, or neither.",
    )

    log_cleaner_enable: bool = prop(
        "log.cleaner.enable", BOOLEAN, default=True, doc="Whether topics with cleanup.policy=compact are compacted."
    )
    log_cleaner_threads: int = prop(
        "log.cleaner.threads",
        INT,
        at_least(0),
        default=1,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Number of cleaner threads; 0 disables compaction.",
    )
    log_cleaner_io_max_bytes_per_second: float = prop(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        default=DOUBLE_MAX,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Maximum bytes per second that compaction reads and writes.",
    )
    log_cleaner_dedupe_buffer_size: int = prop(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        default=128 << 20,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Memory for keys during compaction, over all threads.",
    )
    log_cleaner_io_buffer_size: int = prop(
        "log.cleaner.io.buffer.size",
        INT,
        at_least(0),
        default=512 << 10,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Memory for reading and writing during compaction, over all threads.",
    )
    log_cleaner_io_buffer_load_factor: float = prop(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        default=0.9,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Fraction of the memory for keys that one compaction may fill, from 0 to 1.",
    )
    log_cleaner_backoff_ms: int = prop(
        "log.cleaner.backoff.ms",
        LONG,
        at_least(0),
        default=15000,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Pause of a cleaner thread when no log needs compaction.",
    )
    log_cleaner_min_cleanable_ratio: float = prop(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        between(0, 1),
        default=0.5,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Minimum ratio of uncompacted bytes to all bytes of a log for compaction.",
    )
    log_cleaner_delete_retention_ms: int = prop(
        "log.cleaner.delete.retention.ms",
        LONG,
        at_least(0),
        default=86400000,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="How long tombstones are kept in a compacted log, for consumers that read from its start.",
    )
    log_cleaner_min_compaction_lag_ms: int = prop(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        at_least(0),
        default=0,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Minimum age of a record before it can be removed by compaction.",
    )
    log_cleaner_max_compaction_lag_ms: int = prop(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        at_least(1),
        default=LONG_MAX,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Age of a record at which its log is compacted regardless of the dirty ratio.",
    )

    log_flush_interval_messages: int = prop(
        "log.flush.interval.messages",
        LONG,
        at_least(1),
        default=LONG_MAX,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        doc="Number of records after which a log is flushed to disk.",
    )
    log_flush_interval_ms: int | None = prop(
        "log.flush.interval.ms",
        LONG,
        default=None,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        falls_back_to=("log.flush.scheduler.interval.ms",),
        doc="Time after which a log is flushed to disk.",
    )
    log_flush_scheduler_interval_ms: int = prop(
        "log.flush.scheduler.interval.ms",
        LONG,
        default=LONG_MAX,
        importance=Importance.HIGH,
        doc="Time after which a log is flushed to disk, if log.flush.interval.ms is not set. Kafka also checks at this "
        "interval; here the check runs every second.",
    )
    log_flush_offset_checkpoint_interval_ms: int = prop(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        at_least(0),
        default=60000,
        importance=Importance.HIGH,
        doc="Interval of the recovery point checkpoints.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = prop(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        at_least(0),
        default=60000,
        importance=Importance.HIGH,
        doc="Interval of the log start offset checkpoints.",
    )
    num_recovery_threads_per_data_dir: int = prop(
        "num.recovery.threads.per.data.dir",
        INT,
        at_least(1),
        default=1,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        doc="Threads per directory that recover logs at start and flush them at shutdown.",
    )

    message_max_bytes: int = prop(
        "message.max.bytes",
        INT,
        at_least(0),
        default=1048588,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        doc="Maximum size of a record batch.",
    )
    compression_type: str = prop(
        "compression.type",
        STRING,
        one_of(*COMPRESSION_TYPES),
        default="producer",
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        doc="Compression codec of stored batches; producer keeps the producer's codec.",
    )
    log_message_format_version: str = prop(
        "log.message.format.version",
        STRING,
        known_version(VERSION_NAMES),
        default=LATEST_VERSION,
        doc="Accepted and described; batches are stored in the format of 0.11. An older version is refused at start.",
    )
    log_message_timestamp_type: str = prop(
        "log.message.timestamp.type",
        STRING,
        one_of("CreateTime", "LogAppendTime"),
        default="CreateTime",
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Whether timestamps are set by the producer (CreateTime) or at the append (LogAppendTime).",
    )
    log_message_timestamp_difference_max_ms: int = prop(
        "log.message.timestamp.difference.max.ms",
        LONG,
        at_least(0),
        default=LONG_MAX,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Maximum difference between the timestamp of a record and the broker's time.",
    )
    log_message_downconversion_enable: bool = prop(
        "log.message.downconversion.enable",
        BOOLEAN,
        default=True,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.LOW,
        doc="Whether batches are converted to an older message format for old consumers.",
    )

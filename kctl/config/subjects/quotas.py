"""Windows of quotas and metrics."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Importance, at_least, one_of, prop
from kctl.config.kinds import INT, LIST, LONG, LONG_MAX, STRING


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class QuotaProperties:
    """Sampling windows of quotas, replication throttles and metrics."""

    __slots__ = ()

    quota_window_num: int = prop(
        "quota.window.num",
        INT,
        at_least(1),
        default=11,
        importance=Importance.LOW,
        doc="Samples kept for client quotas.",
    )
    quota_window_size_seconds: int = prop(
        "quota.window.size.seconds",
        INT,
        at_least(1),
        default=1,
        importance=Importance.LOW,
        doc="Length of a sample for client quotas.",
    )
    quota_producer_default: int = prop(
        "quota.producer.default",
        LONG,
        at_least(1),
        default=LONG_MAX,
        importance=Importance.HIGH,
        doc="Bytes per second that a client may produce; superseded by default client quotas.",
    )
    quota_consumer_default: int = prop(
        "quota.consumer.default",
        LONG,
        at_least(1),
        default=LONG_MAX,
        importance=Importance.HIGH,
        doc="Bytes per second that a client may fetch; superseded by default client quotas.",
    )
    replication_quota_window_num: int = prop(
        "replication.quota.window.num",
        INT,
        at_least(1),
        default=11,
        importance=Importance.LOW,
        doc="Samples kept for replication throttles.",
    )
    replication_quota_window_size_seconds: int = prop(
        "replication.quota.window.size.seconds",
        INT,
        at_least(1),
        default=1,
        importance=Importance.LOW,
        doc="Length of a sample for replication throttles.",
    )
    alter_log_dirs_replication_quota_window_num: int = prop(
        "alter.log.dirs.replication.quota.window.num",
        INT,
        at_least(1),
        default=11,
        importance=Importance.LOW,
        unused="moves are paced piece by piece, without samples",
        doc="Samples kept for moves between log directories.",
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = prop(
        "alter.log.dirs.replication.quota.window.size.seconds",
        INT,
        at_least(1),
        default=1,
        importance=Importance.LOW,
        unused="moves are paced piece by piece, without samples",
        doc="Length of a sample for moves between log directories.",
    )
    controller_quota_window_num: int = prop(
        "controller.quota.window.num",
        INT,
        at_least(1),
        default=11,
        importance=Importance.LOW,
        doc="Samples kept for quotas on changes of topics.",
    )
    controller_quota_window_size_seconds: int = prop(
        "controller.quota.window.size.seconds",
        INT,
        at_least(1),
        default=1,
        importance=Importance.LOW,
        doc="Length of a sample for quotas on changes of topics.",
    )
    client_quota_callback_class: str | None = prop(
        "client.quota.callback.class",
        STRING,
        default=None,
        importance=Importance.LOW,
        unused="kctl loads no Java classes; quotas are those that are stored in ZooKeeper",
        doc="Java class of the quota callback.",
    )
    metrics_num_samples: int = prop(
        "metrics.num.samples",
        INT,
        at_least(1),
        default=2,
        importance=Importance.LOW,
        unused="the endpoint of metrics.port has counters, from which Prometheus computes rates",
        doc="Samples kept for rates.",
    )
    metrics_sample_window_ms: int = prop(
        "metrics.sample.window.ms",
        LONG,
        at_least(1),
        default=30000,
        importance=Importance.LOW,
        unused="the endpoint of metrics.port has counters, from which Prometheus computes rates",
        doc="Length of a sample for rates.",
    )
    metrics_recording_level: str = prop(
        "metrics.recording.level",
        STRING,
        one_of("INFO", "DEBUG", "TRACE"),
        default="INFO",
        importance=Importance.LOW,
        unused="the endpoint of metrics.port has all metrics",
        doc="Level of detail of metrics.",
    )
    kafka_metrics_polling_interval_secs: int = prop(
        "kafka.metrics.polling.interval.secs",
        INT,
        at_least(1),
        default=10,
        importance=Importance.LOW,
        unused="kctl loads no Java classes, and Prometheus determines when it reads the endpoint of metrics.port",
        doc="Polling interval of metrics reporters.",
    )
    kafka_metrics_reporters: tuple[str, ...] = prop(
        "kafka.metrics.reporters",
        LIST,
        default=(),
        importance=Importance.LOW,
        unused="kctl loads no Java classes; see metrics.port",
        doc="Java classes that publish the broker's older metrics.",
    )

"""The HTTP endpoint for metrics, and the request log; these properties are kctl's own."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Dynamic, Importance, at_least, in_range, one_of, prop
from kctl.config.kinds import BOOLEAN, INT, STRING


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class MetricsProperties:
    """The endpoint for Prometheus."""

    __slots__ = ()

    metrics_port: int = prop(
        "metrics.port",
        INT,
        in_range(-1, 65_535),
        default=-1,
        importance=Importance.MEDIUM,
        doc="Port of the HTTP endpoint for Prometheus, 0 for a free one; -1 for no endpoint. Not a property of Kafka.",
    )
    metrics_host: str = prop(
        "metrics.host",
        STRING,
        default="127.0.0.1",
        importance=Importance.MEDIUM,
        doc="Address on which the HTTP endpoint for Prometheus listens, without authentication; empty for every "
        "interface. Not a property of Kafka.",
    )
    metrics_naming: str = prop(
        "metrics.naming",
        STRING,
        one_of("jmx", "confluent", "strimzi"),
        default="jmx",
        importance=Importance.LOW,
        doc="Whose names the metrics have: those of the example rules of Prometheus's JMX exporter, of Confluent's "
        "rules, or of Strimzi's metrics reporter. Not a property of Kafka.",
    )
    metrics_consumer_lag: bool = prop(
        "metrics.consumer.lag",
        BOOLEAN,
        default=True,
        importance=Importance.LOW,
        doc="Whether scrapes contain the lag of consumer groups and the state of partitions under the names of "
        "kafka_exporter. Not a property of Kafka.",
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RequestLogProperties:
    """Which requests the broker logs."""

    __slots__ = ()

    request_log_mode: str = prop(
        "request.log.mode",
        STRING,
        one_of("off", "slow", "sampled", "all"),
        default="off",
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.LOW,
        doc="Which requests get a line in the log, with client, sizes and the time of each stage, as Kafka's "
        "kafka.request.logger: none, those that take request.log.slow.ms, one of request.log.sample.requests, or all. "
        "The level DEBUG of the logger kafka.request.logger has the effect of all. Not a property of Kafka.",
    )
    request_log_slow_ms: int = prop(
        "request.log.slow.ms",
        INT,
        at_least(0),
        default=1_000,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.LOW,
        doc="With request.log.mode=slow: a request is logged if it takes this time from its arrival until its response "
        "is sent. The time for which a fetch waits for records counts. Not a property of Kafka.",
    )
    request_log_sample_requests: int = prop(
        "request.log.sample.requests",
        INT,
        at_least(1),
        default=1_000,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.LOW,
        doc="With request.log.mode=sampled: one request of this number is logged. Not a property of Kafka.",
    )

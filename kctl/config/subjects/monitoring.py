"""The HTTP endpoint for metrics; these properties are kctl's own."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Importance, in_range, one_of, prop
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

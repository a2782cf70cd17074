"""The names of series in three dialects, from the names of MBeans.  Pure.

jmx        the example rules of Prometheus's JMX exporter for Kafka: kafka_server_brokertopicmetrics_bytesin_total
confluent  Confluent's rules, which keep the names: kafka_server_brokertopicmetrics_bytesinpersec
strimzi    Strimzi's metrics reporter: kafka_server_brokertopicmetrics_bytesinpersec_total
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from kctl.server.metrics.definitions import Definition, Kind

_PER_SECOND = re.compile(r"PerSec$")
_PERCENT = "Percent"
_HANDLERS = "KafkaRequestHandlerPool"
"""A percentage that is a meter in Kafka: the meter's count has the plain name, so the gauge gets another one."""
_JOINED_BY_CONFLUENT = "socket-server-metrics"
"""The only MBean whose dashes Confluent's rules remove; in others they become underscores."""


class Dialect(StrEnum):
    """Values of metrics.naming."""

    JMX = "jmx"
    CONFLUENT = "confluent"
    STRIMZI = "strimzi"


class SeriesName(NamedTuple):
    """The name of a family, and its type in the exposition: gauge, counter, summary or unknown.

    The samples of a counter have the suffix _total.
    """

    name: str
    type: str


def series_names(definition: Definition, dialect: Dialect) -> tuple[SeriesName, ...]:
    """The families of a metric; more than one where dashboards of the same dialect use two names."""
    prefix = definition.domain.replace(".", "_")
    if definition.is_attribute:
        return (SeriesName(_attribute_name(prefix, definition, dialect), "gauge"),)
    base = f"{prefix}_{definition.type}_".lower() if definition.type else f"{prefix}_"
    name = definition.name
    if definition.kind is Kind.HISTOGRAM:
        return (SeriesName(base + name.lower(), "summary"),)
    if definition.kind is Kind.METER:
        match dialect:
            case Dialect.JMX:
                return (SeriesName(base + _PER_SECOND.sub("", name).lower(), "counter"),)
            case Dialect.CONFLUENT:
                is_rate = _PER_SECOND.search(name) is not None
                return (SeriesName(base + name.lower(), "unknown" if is_rate else "counter"),)
            case Dialect.STRIMZI:
                return (SeriesName(base + name.lower(), "counter"),)
    if definition.type == _HANDLERS and name.endswith(_PERCENT) and dialect is not Dialect.JMX:
        return ()
    plain = SeriesName(base + re.sub(r"\W", "_", name).lower(), "gauge")
    if name.endswith(_PERCENT) and dialect is Dialect.JMX:
        # The example rules rename percentages, but dashboards for them query both names.
        renamed = SeriesName(base + name.removesuffix(_PERCENT).lower() + "_percent", "gauge")
        return (renamed,) if definition.type == _HANDLERS else (renamed, plain)
    return (plain,)


def _attribute_name(prefix: str, definition: Definition, dialect: Dialect) -> str:
    mbean = definition.type.lower()
    if dialect is Dialect.CONFLUENT and mbean == _JOINED_BY_CONFLUENT:
        mbean = mbean.replace("-", "")
    return f"{prefix}_{mbean}_{definition.name}".replace("-", "_").lower()

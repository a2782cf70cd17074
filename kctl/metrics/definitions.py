"""The definition of a metric, the names of its series in three dialects, and quantiles of durations."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple

# The definition of a metric: the name of Kafka's MBean, its kind and its documentation. Pure.
#
# A subject yields families: a definition with the rows of a scrape. A row is the text of its labels and its value.


class Kind(Enum):
    """The kinds of metrics, by the attributes of their MBeans."""

    GAUGE = "gauge"
    """Value: a number that goes up and down."""
    METER = "meter"
    """Count: a number of events since the start.  The names of Kafka's meters end in PerSec."""
    HISTOGRAM = "histogram"
    """Count, and percentiles of the latest values."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric; `domain`, `type` and `name` are those of the MBean, for example kafka.server, ReplicaManager,
    LeaderCount.  Kafka's newer metrics are attributes of an MBean: their names are written with dashes.
    """

    domain: str
    type: str
    name: str
    kind: Kind
    unit: str
    """The unit: "bytes", "ms", "partitions"."""
    doc: str
    labels: tuple[str, ...] = ()

    @property
    def is_attribute(self) -> bool:
        """Whether it is an attribute of an MBean that has several."""
        return "-" in self.type or self.type in {"Produce", "Fetch", "Request"}


Row = tuple[str, float]
"""The text of the labels, made by `label_text`, and the value.  An int is written in full."""


class Family(NamedTuple):
    """The values of one metric.  `rows` may be read in pieces, with pauses in between."""

    definition: Definition
    rows: Iterable[Row]


class HistogramValue(NamedTuple):
    """The value of a histogram: number of observations, and quantiles by the text of their label."""

    observations: int
    quantiles: tuple[tuple[str, float], ...]


class HistogramFamily(NamedTuple):
    """The values of one histogram metric."""

    definition: Definition
    rows: Iterable[tuple[str, HistogramValue]]


AnyFamily = Family | HistogramFamily


def label_text(**labels: str) -> str:
    """`name="value",...`, with the values escaped as the formats of Prometheus and OpenMetrics require."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())


def escaped(value: str) -> str:
    """Return a label's value, escaped.  Characters that cannot be encoded in UTF-8 become question marks."""
    if not value.isprintable() or "\\" in value or '"' in value:
        value = value.encode("utf-8", "replace").decode()
        value = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


NO_LABELS = ""


def single(definition: Definition, value: float) -> Family:
    """Return a family with one value and without labels."""
    return Family(definition, ((NO_LABELS, value),))


# The names of series in three dialects, from the names of MBeans. Pure.
#
# jmx the example rules of Prometheus's JMX exporter for Kafka: kafka_server_brokertopicmetrics_bytesin_total
# confluent Confluent's rules, which keep the names: kafka_server_brokertopicmetrics_bytesinpersec strimzi Strimzi's
# metrics reporter: kafka_server_brokertopicmetrics_bytesinpersec_total


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
    """Return the families of a metric; more than one where dashboards of the same dialect use two names."""
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


# Quantiles of the latest values of a metric. Pure.
#
# Kafka keeps a sample that decays over five minutes; here it is the latest SAMPLES_MAX values, which costs one
# append.


SAMPLES_MAX = 1028
"""As many as Kafka keeps."""
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""The percentiles of Kafka's MBeans, as the rules of the JMX exporter write them."""


def summarize(values: Iterable[float], count: int) -> HistogramValue:
    """Return the quantiles of the values, by linear interpolation as in Kafka; zeros if there are none."""
    ordered = sorted(values)
    return HistogramValue(count, tuple((text, _quantile(ordered, float(text))) for text in QUANTILES))


def _quantile(ordered: list[float], share: float) -> float:
    if not ordered:
        return 0.0
    position = share * (len(ordered) + 1)
    if position < 1:
        return ordered[0]
    if position >= len(ordered):
        return ordered[-1]
    below = int(position)
    low, high = ordered[below - 1], ordered[below]
    return low + (position - below) * (high - low)


# How often something was done, and how long it took the latest times. Pure.


class Durations:
    """The values of a histogram metric."""

    __slots__ = ("count", "latest_ms")

    def __init__(self) -> None:
        self.count = 0
        self.latest_ms: deque[float] = deque(maxlen=SAMPLES_MAX)

    def record(self, took_ms: float) -> None:
        """Add one operation and its duration."""
        self.count += 1
        self.latest_ms.append(took_ms)

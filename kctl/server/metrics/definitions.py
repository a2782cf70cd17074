"""The definition of a metric: the name of Kafka's MBean, its kind and its documentation.  Pure.

A subject yields families: a definition with the rows of a scrape.  A row is the text of its labels and its value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


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
    """A label's value, escaped.  Characters that cannot be encoded in UTF-8 become question marks."""
    if not value.isprintable() or "\\" in value or '"' in value:
        value = value.encode("utf-8", "replace").decode()
        value = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


NO_LABELS = ""


def single(definition: Definition, value: float) -> Family:
    """A family with one value and without labels."""
    return Family(definition, ((NO_LABELS, value),))

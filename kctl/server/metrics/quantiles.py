"""Quantiles of the latest values of a metric.  Pure.

Kafka keeps a sample that decays over five minutes; here it is the latest SAMPLES_MAX values, which costs one append.
"""

from __future__ import annotations

from collections.abc import Iterable

from kctl.server.metrics.definitions import HistogramValue

SAMPLES_MAX = 1028
"""As many as Kafka keeps."""
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""The percentiles of Kafka's MBeans, as the rules of the JMX exporter write them."""


def summarize(values: Iterable[float], count: int) -> HistogramValue:
    """The quantiles of the values, by linear interpolation as in Kafka; zeros if there are none."""
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

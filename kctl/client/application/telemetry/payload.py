"""The metrics of a push as MetricsData, version 1, of the protocol buffers of OpenTelemetry.  Pure.

The messages, the numbers of whose fields are below, have been stable since version 1.0 of opentelemetry-proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kctl.protocol.varint import uvarint
from kctl.records.compression import Codec, compress

DELTA, CUMULATIVE = 1, 2
"""AggregationTemporality."""
ALL_METRICS = "*"
_VARINT, _FIXED64, _BYTES = 0, 1, 2
_FIXED = struct.Struct("<Q")
_DOUBLE = struct.Struct("<d")

Labels = tuple[tuple[str, str], ...]


class Metric(NamedTuple):
    """One value; its name and labels identify it."""

    name: str
    value: float
    is_total: bool = False
    """Whether it is a total since the start of the client; otherwise it is a present value."""
    labels: Labels = ()


class Totals:
    """The totals of the last push, for subscriptions to differences."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = self._pushed_ns = start_ns
        self._values: dict[tuple[str, Labels], float] = {}
        self._taken: tuple[int, dict[tuple[str, Labels], float]] | None = None

    def points(self, metrics: Iterable[Metric], now_ns: int, *, is_delta: bool) -> list[Point]:
        """Return what a push at this time has."""
        taken: dict[tuple[str, Labels], float] = {}
        points = []
        for metric in metrics:
            start_ns, value = 0, metric.value
            if metric.is_total:
                key = metric.name, metric.labels
                taken[key] = value
                start_ns = self._pushed_ns if is_delta else self._start_ns
                before = self._values.get(key, 0)
                if is_delta and value >= before:  # else the total has begun again, as after another subscription
                    value -= before
            points.append(Point(metric.name, value, metric.labels, start_ns))
        self._taken = now_ns, taken
        return points

    def confirm(self) -> None:
        """Note that the points were pushed: the next differences begin there."""
        if self._taken is not None:
            self._pushed_ns, self._values = self._taken
            self._taken = None


class Point(NamedTuple):
    """A value as it is sent."""

    name: str
    value: float
    labels: Labels
    start_ns: int
    """When the sum began; 0 for a present value."""


def selected(metrics: Iterable[Metric], prefixes: Sequence[str]) -> list[Metric]:
    """Return the metrics whose names begin with one of the prefixes; all with "*", which brokers of Apache send."""
    beginnings = ("",) if ALL_METRICS in prefixes else tuple(prefixes)
    return [metric for metric in metrics if metric.name.startswith(beginnings)]


def packed(
    points: Sequence[Point],
    resource: Mapping[str, str],
    now_ns: int,
    *,
    is_delta: bool,
    codec: Codec,
    bytes_max: int,
) -> bytes | None:
    """Return the compressed metrics, without those at the end that do not fit; None if none fits."""
    count = len(points)
    while count:
        data = compress(codec, encoded(points[:count], resource, now_ns, is_delta=is_delta))
        if len(data) <= bytes_max:
            return data
        count //= 2
    return None


def encoded(points: Iterable[Point], resource: Mapping[str, str], now_ns: int, *, is_delta: bool) -> bytes:
    """Return MetricsData with the metrics of one resource and scope."""
    metrics = [_metric(point, now_ns, DELTA if is_delta else CUMULATIVE) for point in points]
    scope_metrics = b"".join(_message(2, metric) for metric in metrics)  # ScopeMetrics.metrics
    attributes = b"".join(_message(1, _key_value(*pair)) for pair in resource.items())  # Resource.attributes
    resource_metrics = _message(1, attributes) + _message(2, scope_metrics)  # resource, scope_metrics
    return _message(1, resource_metrics)  # MetricsData.resource_metrics


def _metric(point: Point, now_ns: int, temporality: int) -> bytes:
    data_point = b"".join(_message(7, _key_value(*label)) for label in point.labels)  # attributes
    if point.start_ns:
        data_point += _tag(2, _FIXED64) + _FIXED.pack(point.start_ns)  # start_time_unix_nano
    data_point += _tag(3, _FIXED64) + _FIXED.pack(now_ns)  # time_unix_nano
    data_point += _tag(4, _FIXED64) + _DOUBLE.pack(point.value)  # as_double
    data = _message(1, data_point)  # data_points
    if point.start_ns:
        data += _tag(2, _VARINT) + uvarint(temporality) + _tag(3, _VARINT) + uvarint(1)  # is_monotonic
    return _message(1, point.name.encode()) + _message(7 if point.start_ns else 5, data)  # sum or gauge


def _key_value(key: str, value: str) -> bytes:
    return _message(1, key.encode()) + _message(2, _message(1, value.encode()))  # AnyValue.string_value


def _message(number: int, data: bytes) -> bytes:
    """Return a field with a length: a message or a string."""
    return _tag(number, _BYTES) + uvarint(len(data)) + data


def _tag(number: int, wire_type: int) -> bytes:
    return bytes((number << 3 | wire_type,))

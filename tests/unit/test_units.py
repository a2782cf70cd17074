"""Durations and sizes as values of properties."""

from __future__ import annotations

from kctl.output.quantities import property_value
from tests.rows import for_rows


@for_rows(
    "name, text, value",
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "1h30m", "5400000"),
        ("retention.ms", "86400000", "86400000"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "soon", "soon"),
        ("retention.ms", "0.5ms", "0.5ms"),  # refused by the broker, and not rounded
        ("segment.bytes", "1GiB", "1073741824"),
        ("segment.bytes", "1 GiB", "1073741824"),
        ("segment.bytes", "64k", "65536"),
        ("segment.bytes", "7d", "7d"),
        ("producer_byte_rate", "5 MB/s", "5242880"),
        ("leader.replication.throttled.rate", "10m", "10485760"),
        ("log.retention.hours", "7d", "168"),
        ("log.retention.minutes", "90s", "90s"),
        ("cleanup.policy", "7d", "7d"),
        ("min.insync.replicas", "2k", "2k"),
    ],
)
def test_value_with_a_unit_is_converted_by_the_name_of_the_property(name: str, text: str, value: str) -> None:
    assert property_value(name, text) == value

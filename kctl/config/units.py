"""Durations and sizes with units, such as `7d` and `1 GiB`, in command lines and as values of properties.  Pure."""

from __future__ import annotations

import re

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_SIZE = re.compile(r"([0-9]+)\s*(?:([kmgt])(?:i?b)?|b)?\Z", re.ASCII | re.IGNORECASE)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DURATIONS = {".ms": 1, "_ms": 1, ".seconds": 1000, ".minutes": 60_000, ".hours": 3_600_000}
"""The unit, in ms, by the end of the names of properties."""
_SIZES = (".bytes", "_bytes", ".bytes.per.second", ".throttled.rate", "byte_rate", ".batch.size", ".buffer.size")
"""The ends of the names of properties whose values are bytes, or bytes per second."""


def duration_ms_of(text: str) -> float | None:
    """Return the milliseconds of `1h30m` or `500ms`; None for another text."""
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS_MS[unit] for number, unit in parts)


def size_bytes_of(text: str) -> int | None:
    """Return the bytes of `100`, `64k`, `10MB` or `1 GiB`, which are powers of 1024; None for another text."""
    match = _SIZE.match(text)
    return None if match is None else int(match[1]) << _SHIFTS[(match[2] or "").lower()]


def property_value(name: str, text: str) -> str:
    """Return the value of a property as brokers take it: `7d` of retention.ms and `1 GiB` of segment.bytes as numbers.

    The unit follows from the name.  A text that is no number with a unit, or no whole number in the unit of the
    property, is returned unchanged, so that the broker says what is wrong with it.
    """
    if text.isdecimal():
        return text
    for end, unit_ms in _DURATIONS.items():
        if name.endswith(end):
            duration_ms = duration_ms_of(text.replace(" ", ""))
            return text if duration_ms is None or duration_ms % unit_ms else f"{duration_ms / unit_ms:.0f}"
    if name.endswith(_SIZES):
        size_bytes = size_bytes_of(text.removesuffix("/s"))
        return text if size_bytes is None else str(size_bytes)
    return text

"""Sizes, lengths of time and counts as short text for people, and integers in the ranges of the protocol.  Pure."""

from __future__ import annotations

import itertools
import re

from kctl.errors import UsageError

# Sizes, lengths of time and counts as short text for people. Pure.


NOTHING = "-"
"""The text of a missing value."""
_UNITS = ("", "k", "M", "G", "T", "P", "E")
_UNITS_S = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_SIZE = re.compile(r"(?:.*_)?bytes(?:_.*)?")
_DURATION = re.compile(r"(?!(?:.*_)?(?:timestamp|[cm]?time)_ms).*_ms")
_COUNTS = frozenset({"lag", "total_lag", "records", "offsets"})


def readable(name: str, value: object) -> object:
    """Return the value of a field as --human shows it; other values than sizes, durations and counts are returned
    unchanged.

    The name of the field has its unit: `bytes_to_move`, `duration_ms`, `lag`.
    """
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return value
    if name in _COUNTS:
        return compact(value)
    if _SIZE.fullmatch(name):
        return format_size(value)
    if _DURATION.fullmatch(name) and value >= 0:
        return format_duration(round(value))
    return value


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number and its noun: 0 records, 1 record, 2,000 records; without `plural` that is the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def compact(value: float | None) -> str:
    """Return at most six characters: 999, 12.3k, 4.5M; a dash for None.  Units are powers of 1,000."""
    if value is None:
        return NOTHING
    sign, size = ("-" if value < 0 else ""), abs(float(value))
    if size < 999.5:
        text = f"{size:.0f}" if size >= 9.95 or size == int(size) else f"{size:.1f}"
        return text if text in {"0", "0.0"} else sign + text
    unit = 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size /= 1000
        unit += 1
    return f"{sign}{size:.{0 if size >= 99.95 else 1}f}{_UNITS[unit]}"


def format_size(size_bytes: float) -> str:
    """Return a number of bytes in powers of 1,024: 999 B, 1.5 KiB, 20 GiB."""
    sign, size, unit = ("-" if size_bytes < 0 else ""), abs(float(size_bytes)), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    if unit == 0:
        return f"{sign}{size:.0f} B"
    return f"{sign}{size:.{0 if size >= 9.95 else 1}f} {_UNITS[unit].upper()}iB"


def format_duration(duration_ms: int) -> str:
    """Return the two largest units of a length of time: `350ms`, `12s`, `3m5s`, `2d4h`."""
    if duration_ms < 1000:
        return f"{duration_ms}ms"
    seconds = duration_ms // 1000
    for (large, large_s), (small, small_s) in itertools.pairwise(_UNITS_S):
        if seconds >= large_s:
            rest = seconds % large_s // small_s
            return f"{seconds // large_s}{large}" + (f"{rest}{small}" if rest else "")
    return f"{seconds}s"


# Parses integers within the ranges of the protocol's fields. Pure.


INT16_MAX = (1 << 15) - 1
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
PORT_MAX = (1 << 16) - 1

_DIGITS = re.compile(r"([+-]?)0*([0-9]{1,19})")
"""`int` also accepts underscores, blanks and digits of other scripts, and raises for more than 4,300 digits."""
_SHOWN_MAX = 40


def parse_integer(text: str, what: str, *, low: int = 0, high: int = INT32_MAX) -> int:
    """Return the integer in `text`.  `what` names it in the error.  Raises UsageError with the valid range."""
    match = _DIGITS.fullmatch(text)
    number = int(match[1] + match[2]) if match else None
    if number is None or not low <= number <= high:
        shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
        raise UsageError(f"{what} is a whole number from {low} to {high}, not '{shown}'")
    return number


def is_integer(value: object, *, low: int = 0, high: int = INT32_MAX) -> bool:
    """Return whether a JSON value is an integer in the range."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


# Durations and sizes with units, such as `7d` and `1 GiB`, in command lines and as values of properties.


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_SIZE_WITH_UNIT = re.compile(r"([0-9]+)\s*(?:([kmgt])(?:i?b)?|b)?\Z", re.ASCII | re.IGNORECASE)
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
    match = _SIZE_WITH_UNIT.match(text)
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

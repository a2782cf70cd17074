"""The grammar of offsets, times, durations and sizes: one parser for every command.

    offset   start  end  N  +N (after the start)  -N (before the end)  @TIME (first record at or after TIME)
    range    A:B  A:  :B  A     numbers; the upper side is exclusive
    TIME     RFC 3339 (2026-11-21T09:30:00Z), a date, a date with a time (zone-less means UTC), `now`, epoch seconds or
             milliseconds, or a duration back from now (-1h30m, -PT90M)
    duration 500ms  10s  5m  1h30m  2d  PT1H30M; a bare number is seconds
    size     100  64k  10m  1g (powers of 1024)

Pure: callers pass now_ms.
"""

from __future__ import annotations

import functools
import re

from kctl.admin.offset_spec import END, START, Anchor, OffsetSpec
from kctl.errors import UsageError

_EPOCH_MS_MIN = 100_000_000_000
"""Numbers from here on count as milliseconds (this one is March 1973), smaller ones as seconds."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_ISO_DURATION = re.compile(
    r"([+-]?)P(?:([+-]?\d+)D)?(?:T(?=.)(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+(?:[.,]\d*)?)S)?)?\Z", re.IGNORECASE
)
"""As java.time.Duration.parse takes it, signs included."""
_PARTITIONS_MAX = 10_000_000
"""More than any topic can have: a slip in a range must not eat the machine's memory."""

_SIZE = re.compile(r"(\d+)([kmg]?)b?\Z", re.IGNORECASE)


def parse_offset(text: str, *, now_ms: int) -> OffsetSpec:
    """Read one offset.  Raises UsageError."""
    match text:
        case "start" | "earliest" | "beginning":
            return START
        case "end" | "latest":
            return END
    if text.startswith("@"):
        return OffsetSpec(Anchor.TIME, parse_time_ms(text[1:], now_ms=now_ms))
    if not re.fullmatch(r"[+-]?\d+", text):
        raise UsageError(f"'{text}' is no offset; write start, end, N, +N, -N or @TIME")
    if text[0] == "+":
        return OffsetSpec(Anchor.START, int(text))
    if text[0] == "-":
        return OffsetSpec(Anchor.END, int(text))
    return OffsetSpec(Anchor.ZERO, int(text))


def parse_number_range(text: str | None, option: str) -> range | None:
    """Read `A:B`, where a side may be missing, or a single number; None stays None.  Raises UsageError."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d*)(:?)(\d*)", text)
    if not found or not (found[1] or found[3]):
        raise UsageError(f"{option} takes A:B, A:, :B or A, not '{text}'")
    first = int(found[1] or 0)
    if not found[2]:
        return range(first, first + 1)
    return range(first, int(found[3]) if found[3] else 1 << 63)


def parse_time_ms(text: str, *, now_ms: int) -> int:
    """Read a point in time as milliseconds since the epoch.  Raises UsageError."""
    if text == "now":
        return now_ms
    if text.startswith("-"):
        return now_ms - parse_duration_ms(text[1:])
    if re.fullmatch(r"\d{5,}", text):
        number = int(text)
        return number if number >= _EPOCH_MS_MIN else number * 1000
    from datetime import UTC, datetime  # noqa: PLC0415 - not needed by most commands

    # Kafka's tools take 2026-1-9T9:5:0.0, too.
    text = re.sub(r"(?<=[-T:])(\d)(?!\d)", r"0\1", text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"'{text}' is no time; write 2026-11-21T09:30:00Z, 2026-11-21, epoch seconds or milliseconds, now or -1h"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration_ms(text: str, *, may_be_negative: bool = False) -> int:
    """Read a length of time in milliseconds; one in ISO 8601 may have signs, as in Java.  Raises UsageError."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return round(float(text) * 1000)
    iso = _ISO_DURATION.match(text)
    if iso and any(iso.groups()[1:]):
        days, hours, minutes, seconds = (float((group or "0").replace(",", ".")) for group in iso.groups()[1:])
        duration_ms = round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
        duration_ms = -duration_ms if iso[1] == "-" else duration_ms
        if duration_ms < 0 and not may_be_negative:
            raise UsageError(f"'{text}' is less than no time")
        return duration_ms
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(f"'{text}' is no duration; write 500ms, 10s, 5m, 1h30m, 2d or PT1H30M")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))


def parse_size(text: str) -> int:
    """Read a number of bytes.  Raises UsageError."""
    found = _SIZE.match(text)
    if not found:
        raise UsageError(f"'{text}' is no size; write 100, 64k, 10m or 1g")
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2].lower()]


def parse_pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Read repeated `name=value`; the value may hold `=`.  Raises UsageError."""
    pairs: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{option} takes NAME=VALUE, not '{text}'")
        pairs[name] = value
    return pairs


def parse_partitions(text: str | None) -> list[int] | None:
    """Read `0,3,5-7`; None stays None.  Raises UsageError."""
    if text is None:
        return None
    partitions: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not found:
            raise UsageError(f"'{text}' is no list of partitions; write 0,3,5-7")
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < _PARTITIONS_MAX:
            raise UsageError(f"'{text}': no topic has partitions {part}")
        partitions.update(range(first, last + 1))
    return sorted(partitions)


def format_time(timestamp_ms: int) -> str | None:
    """RFC 3339 in UTC with milliseconds; None for the timestamps that mean none."""
    if timestamp_ms < 0:
        return None
    seconds = _format_seconds(timestamp_ms // 1000)
    return None if seconds is None else f"{seconds}.{timestamp_ms % 1000:03}Z"


@functools.lru_cache
def _format_seconds(timestamp_s: int) -> str | None:
    """Kept for a while, because neighbouring records mostly have the same second."""
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415 - not needed by most commands

    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=timestamp_s)).isoformat()[:19]
    except OverflowError:
        return None

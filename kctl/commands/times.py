"""Syntax of times and durations, which is the same for all options.  Pure: callers pass now_ms.

    TIME      2026-11-21T09:30:00Z    RFC 3339; without a zone it is UTC, and without a time of day midnight
              20261121, 20261121T0930Z    ISO 8601 without separators
              09:30, 09:30:15         a time of the current day in UTC
    1795253400, 1795253400000   epoch seconds, which have 10 digits, or milliseconds, which have 13
              now, -1h30m, -PT90M     now, and a duration back from now
    DURATION  500ms  10s  5m  1h30m  2d  1w  PT1H30M; a bare number is seconds

A TIME may begin with @, which is required where an offset is also allowed.  Numbers of another length are refused,
because they are ambiguous: 20261123 as epoch seconds would be in August 1970.  Times before 1970 are refused, because
brokers use negative timestamps for special offsets.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from kctl.errors import UsageError

TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""

GREGORIAN_PERIOD_S = 12_622_780_800
"""400 years, after which the calendar repeats."""

_ANY_YEAR = re.compile(
    r"([+-]?[0-9]{4,9})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{3}))?Z", re.ASCII
)
_EPOCH_SECONDS = re.compile(r"[0-9]{10}")
_EPOCH_MS = re.compile(r"[0-9]{13}")
_TIME_OF_DAY = re.compile(r"([0-9]{1,2}):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,3}))?)?Z?", re.ASCII)
_COMPACT_DATE = re.compile(r"[0-9]{8}")
_DAY_MS = 86_400_000
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_ISO_DURATION = re.compile(
    r"([+-]?)P(?:([+-]?[0-9]+)D)?(?:T(?=.)(?:([+-]?[0-9]+)H)?(?:([+-]?[0-9]+)M)?(?:([+-]?[0-9]+(?:[.,][0-9]*)?)S)?)?\Z",
    re.ASCII | re.IGNORECASE,
)
"""The syntax of java.time.Duration.parse, including signs."""


def parse_time_ms(text: str, *, now_ms: int) -> int:
    """Read a point in time as milliseconds since the epoch, from 0 to TIME_MS_MAX.  Raises UsageError."""
    value = text.removeprefix("@")
    if value == "now":
        return now_ms
    if value.startswith("-"):
        return check_time_ms(now_ms - parse_duration_ms(value[1:]), text)
    if _EPOCH_SECONDS.fullmatch(value):
        return int(value) * 1000
    if _EPOCH_MS.fullmatch(value):
        return int(value)
    if of_day := _TIME_OF_DAY.fullmatch(value):
        hours, minutes, seconds, fraction = of_day.groups()
        if int(hours) < 24:
            of_day_ms = (int(hours) * 60 + int(minutes)) * 60_000 + int(seconds or 0) * 1000
            return now_ms - now_ms % _DAY_MS + of_day_ms + int((fraction or "0").ljust(3, "0"))
    if value.isdecimal() and not _COMPACT_DATE.fullmatch(value):
        raise UsageError(
            f"'{text}' is not a valid time: epoch seconds have 10 digits, milliseconds 13,"
            " and a date has 8, such as 20261121"
        )
    return check_time_ms(_iso_time_ms(value, text), text)


def parse_any_year_ms(text: str) -> int | None:
    """The time that `values.format_time` has written, also of a year before 1970 or after 9999; None for other text."""
    found = _ANY_YEAR.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    periods, year_of_period = divmod(year - 1970, 400)
    try:
        moment = datetime(1970 + year_of_period, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return (round(moment.timestamp()) + periods * GREGORIAN_PERIOD_S) * 1000 + int(found[7] or 0)


def check_time_ms(time_ms: int, text: str) -> int:
    """The time if it is within the range; `text` is the value of the option.  Raises UsageError."""
    if time_ms < 0:
        raise UsageError(
            f"'{text}' is before 1970, where no record can be looked up; the first record is at 'earliest'"
        )
    if time_ms > TIME_MS_MAX:
        raise UsageError(f"'{text}' is after the year 9999")
    return time_ms


def _iso_time_ms(value: str, text: str) -> int:
    # Kafka's tools also accept 2026-1-9T9:5:0.0.
    padded = re.sub(r"(?<=[-T:])([0-9])(?![0-9])", r"0\1", value)
    try:
        if not padded.isascii():
            raise ValueError
        moment = datetime.fromisoformat(padded)
    except ValueError:
        raise UsageError(
            f"'{text}' is not a valid time; use 2026-11-21T09:30:00Z, 2026-11-21, 10:05, epoch seconds or"
            " milliseconds, now or -1h"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration_ms(text: str, *, may_be_negative: bool = False) -> int:
    """Read a length of time in milliseconds, at most TIME_MS_MAX; one in ISO 8601 may have signs, as in Java.

    Raises UsageError.
    """
    duration_ms = _duration_ms(text)
    if not abs(duration_ms) <= TIME_MS_MAX:  # also refuses NaN, the difference of two infinities
        raise UsageError(f"'{text}' is longer than 8,000 years")
    if duration_ms < 0 and not may_be_negative:
        raise UsageError(f"'{text}' is negative")
    return round(duration_ms)


def _duration_ms(text: str) -> float:
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text) * 1000
    iso = _ISO_DURATION.match(text)
    if iso and any(iso.groups()[1:]):
        days, hours, minutes, seconds = (float((group or "0").replace(",", ".")) for group in iso.groups()[1:])
        duration_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
        return -duration_ms if iso[1] == "-" else duration_ms
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(f"'{text}' is not a valid duration; use 500ms, 10s, 5m, 1h30m, 2d or PT1H30M")
    return sum(float(number) * _UNITS_MS[unit] for number, unit in parts)

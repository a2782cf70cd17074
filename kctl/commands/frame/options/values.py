"""The grammars of the values of options: offsets, sizes, lists, times, durations, lags, numbers of rows.  Pure."""

from __future__ import annotations

import contextlib
import functools
import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from kctl.admin.topics.offsets import END, START, Anchor, OffsetSpec
from kctl.errors import UsageError
from kctl.output.quantities import INT64_MAX, duration_ms_of, parse_integer, size_bytes_of

# Syntax of times and durations, which is the same for all options. Pure: callers pass now_ms.
#
#     TIME      2026-11-21T09:30:00Z    RFC 3339; without a zone it is UTC, and without a time of day midnight
#               20261121, 20261121T0930Z    ISO 8601 without separators
#               09:30, 09:30:15         a time of the current day in UTC
#     1795253400, 1795253400000   epoch seconds, which have 10 digits, or milliseconds, which have 13
#               now, -1h30m, -PT90M     now, and a duration back from now
#     DURATION  500ms  10s  5m  1h30m  2d  1w  PT1H30M; a bare number is seconds
#
# A TIME may begin with @, which is required where an offset is also allowed. Numbers of another length are refused,
# because they are ambiguous: 20261123 as epoch seconds would be in August 1970. Times before 1970 are refused,
# because brokers use negative timestamps for special offsets.


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
    """Return the time that `values.format_time` has written, also of a year before 1970 or after 9999; None for other
    text.
    """
    match = _ANY_YEAR.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    periods, year_of_period = divmod(year - 1970, 400)
    try:
        moment = datetime(1970 + year_of_period, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return (round(moment.timestamp()) + periods * GREGORIAN_PERIOD_S) * 1000 + int(match[7] or 0)


def check_time_ms(time_ms: int, text: str) -> int:
    """Return the time if it is within the range; `text` is the value of the option.  Raises UsageError."""
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
    with_units_ms = duration_ms_of(text)
    if with_units_ms is None:
        raise UsageError(f"'{text}' is not a valid duration; use 500ms, 10s, 5m, 1h30m, 2d or PT1H30M")
    return with_units_ms


# The grammar of offsets, sizes and lists: one parser for every command. `times` has that of times and durations.
#
#     offset   start  end  N  +N (after the start)  -N (before the end)  @TIME (first record at or after TIME)
#     range    A:B  A:  :B  A     numbers; the upper side is exclusive
#     size     100  64k  10m  1g (powers of 1024)
#     rate     a size, or a size with /s
#
# Pure: callers pass now_ms.


NO_TIMESTAMP = -1
_PARTITION_MAX = 999_999
"""More than any topic can have; limits the memory that a range can take."""


def parse_ip_address(text: str, option: str) -> str:
    """Read an IPv4 or IPv6 address; the result is its usual form.  Raises UsageError, also for the name of a host."""
    import ipaddress  # noqa: PLC0415 - few commands take addresses

    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise UsageError(f"{option} takes an IP address, such as 192.0.2.4, not '{text}'") from None


def parse_offset(text: str, *, now_ms: int) -> OffsetSpec:
    """Read one offset.  Raises UsageError."""
    match text:
        case "start" | "earliest" | "beginning":
            return START
        case "end" | "latest":
            return END
    if text.startswith("@"):
        return OffsetSpec(Anchor.TIME, parse_time_ms(text, now_ms=now_ms))
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        hint = "use start, end, N, +N, -N or @TIME"
        with contextlib.suppress(UsageError):
            parse_time_ms(text, now_ms=now_ms)
            hint = f"for the time, use @{text}"
        raise UsageError(f"'{text}' is not a valid offset; {hint}")
    anchor = {"+": Anchor.START, "-": Anchor.END}.get(text[0], Anchor.ZERO)
    return OffsetSpec(anchor, parse_integer(text, "an offset", low=-INT64_MAX, high=INT64_MAX))


def check_offset_range(lower: OffsetSpec, upper: OffsetSpec | None) -> None:
    """Raise UsageError if --until is before --from wherever the logs begin and end."""
    if upper is None:
        return
    is_before = upper.anchor is lower.anchor and upper.value < lower.value
    if is_before or tuple(upper) == START != tuple(lower):
        raise UsageError(f"--until {upper} is before --from {lower}: there is nothing between them")


def parse_number_range(text: str | None, option: str) -> range | None:
    """Read `A:B`, where one side may be empty, or a single number; None stays None.  Raises UsageError."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]*)(:?)([0-9]*)", text)
    if not match or not (match[1] or match[3]):
        raise UsageError(f"{option} takes A:B, A:, :B or A, not '{text}'")
    first = parse_integer(match[1] or "0", f"A of {option} A:B", high=INT64_MAX)
    if not match[2]:
        return range(first, first + 1)
    end = parse_integer(match[3], f"B of {option} A:B", high=INT64_MAX) if match[3] else INT64_MAX + 1
    if end < first:
        raise UsageError(f"B of {option} A:B is below A: '{text}'")
    return range(first, end)


def parse_size(text: str) -> int:
    """Read a number of bytes.  Raises UsageError."""
    size_bytes = size_bytes_of(text)
    if size_bytes is None:
        raise UsageError(f"'{text}' is not a valid size; use 100, 64k, 10m or 1 GiB")
    if size_bytes > INT64_MAX:
        raise UsageError(f"'{text}' is larger than {INT64_MAX} bytes")
    return size_bytes


def parse_rate(text: str) -> int:
    """Read a number of bytes per second, such as 5m or 5m/s.  Raises UsageError."""
    return parse_size(text.removesuffix("/s"))


def parse_pair(text: str) -> tuple[str, str]:
    """Read one `name=value`; the value may contain `=`.  Raises UsageError."""
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise UsageError(f"'{text}' is not NAME=VALUE")
    return name, value


def parse_partitions(text: str | None) -> list[int] | None:
    """Read `0,3,5-7`; None stays None.  Raises UsageError."""
    if text is None:
        return None
    partitions: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
        if not match:
            raise UsageError(f"'{text}' is not a list of partitions; use 0,3,5-7")
        first = parse_integer(match[1], "a partition", high=_PARTITION_MAX)
        last = parse_integer(match[2] or match[1], "a partition", high=_PARTITION_MAX)
        if first > last:
            raise UsageError(f"'{text}': no topic has partitions {part}")
        partitions.update(range(first, last + 1))
    return sorted(partitions)


def format_time(timestamp_ms: int) -> str | None:
    """RFC 3339 in UTC with milliseconds; None for -1, which means none.

    Years after 9999 and before 0 have a sign, as in ISO 8601 and Java's Instant: +10000-01-01T00:00:00.000Z.
    """
    if timestamp_ms == NO_TIMESTAMP:
        return None
    return f"{_format_seconds(timestamp_ms // 1000)}.{timestamp_ms % 1000:03}Z"


def known_time(timestamp_ms: int) -> int | None:
    """Return the timestamp of a record; None for -1, which means none.  Others below 0 are times before 1970."""
    return None if timestamp_ms == NO_TIMESTAMP else timestamp_ms


@functools.lru_cache
def _format_seconds(timestamp_s: int) -> str:
    """Format seconds; cached, because consecutive records mostly have the same second."""
    # The calendar repeats after 400 years; those from 1970 to 2369 can be formatted.
    periods, seconds = divmod(timestamp_s, GREGORIAN_PERIOD_S)
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()[:19]
    year = int(text[:4]) + 400 * periods
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}{text[4:]}"


# The value of --lag: a condition on the lag of rows.


class HasLag(Protocol):
    """A row with a lag in records and in time; None if unknown."""

    @property
    def lag(self) -> int | None: ...

    @property
    def time_lag_ms(self) -> int | None: ...


class Condition(NamedTuple):
    """The value of --lag: `>1000` compares records, `>5m` compares time."""

    compare: Callable[[float, float], bool]
    records: int | None
    time_ms: int | None

    def holds(self, item: HasLag) -> bool:
        """Return whether the lag of the item is known and satisfies the condition."""
        value, bound = (item.lag, self.records) if self.records is not None else (item.time_lag_ms, self.time_ms)
        return value is not None and bound is not None and self.compare(value, bound)


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
}


def parse_condition(text: str) -> Condition:
    """Read `>1000`, `>=5m` or `=0`, the value of --lag.  Raises UsageError."""
    match = re.fullmatch(r"\s*(>=|<=|>|<|=)\s*(\S+)\s*", text)
    if match is None:
        raise UsageError(f"'{text}' is not a condition such as '>1000' (records) or '>5m' (time)")
    compare = _COMPARISONS[match[1]]
    if match[2].isdecimal():
        return Condition(compare, parse_integer(match[2], "the number", high=INT64_MAX), None)
    try:
        return Condition(compare, None, parse_duration_ms(match[2]))
    except UsageError as error:
        raise UsageError(f"'{text}' compares with neither a number nor a time: {error}") from None


# The value of `--expect`: how many rows there should be. Pure.


_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "": operator.eq,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_EXPECTATION = re.compile(r"([<>=!]*)\s*([0-9]+)")


class Expectation(NamedTuple):
    """A condition on a number of rows."""

    text: str
    compare: Callable[[int, int], bool]
    limit: int

    def holds(self, rows: int) -> bool:
        """Return whether this number of rows is as expected."""
        return self.compare(rows, self.limit)


def parse_expectation(text: str) -> Expectation:
    """Read `3`, `>=1`, `<10` or `!=0`.  Raises UsageError."""
    match = _EXPECTATION.fullmatch(text.strip())
    if not match or match[1] not in _OPERATORS:
        raise UsageError(f"'{text}' is not a number of rows, such as 3, '>=1' or '!=0'")
    return Expectation(text.strip(), _OPERATORS[match[1]], parse_integer(match[2], "the number", high=INT64_MAX))

"""The grammar of offsets, sizes and lists: one parser for every command.  `times` has that of times and durations.

    offset   start  end  N  +N (after the start)  -N (before the end)  @TIME (first record at or after TIME)
    range    A:B  A:  :B  A     numbers; the upper side is exclusive
    size     100  64k  10m  1g (powers of 1024)
    rate     a size, or a size with /s

Pure: callers pass now_ms.
"""

from __future__ import annotations

import contextlib
import functools
import re
from datetime import UTC, datetime, timedelta
from typing import overload

from kctl.admin.offset_spec import END, START, Anchor, OffsetSpec
from kctl.commands.times import GREGORIAN_PERIOD_S, parse_time_ms
from kctl.errors import UsageError
from kctl.integers import INT64_MAX, parse_integer

NO_TIMESTAMP = -1
_PARTITION_MAX = 999_999
"""More than any topic can have; limits the memory that a range can take."""

_SIZE = re.compile(r"([0-9]+)([kmg]?)b?\Z", re.ASCII | re.IGNORECASE)


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


@overload
def parse_offset_range(lower: str, upper: str, *, now_ms: int) -> tuple[OffsetSpec, OffsetSpec]: ...
@overload
def parse_offset_range(lower: str, upper: str | None, *, now_ms: int) -> tuple[OffsetSpec, OffsetSpec | None]: ...
def parse_offset_range(lower: str, upper: str | None, *, now_ms: int) -> tuple[OffsetSpec, OffsetSpec | None]:
    """Read --from and --until.  Raises UsageError, also if --until is before --from wherever the logs begin and end."""
    first = parse_offset(lower, now_ms=now_ms)
    end = None if upper is None else parse_offset(upper, now_ms=now_ms)
    is_before = end is not None and first.anchor is end.anchor and end.value < first.value
    if is_before or end == START != first:
        raise UsageError(f"--until {upper} is before --from {lower}: there is nothing between them")
    return first, end


def parse_number_range(text: str | None, option: str) -> range | None:
    """Read `A:B`, where one side may be empty, or a single number; None stays None.  Raises UsageError."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]*)(:?)([0-9]*)", text)
    if not found or not (found[1] or found[3]):
        raise UsageError(f"{option} takes A:B, A:, :B or A, not '{text}'")
    first = parse_integer(found[1] or "0", f"A of {option} A:B", high=INT64_MAX)
    if not found[2]:
        return range(first, first + 1)
    end = parse_integer(found[3], f"B of {option} A:B", high=INT64_MAX) if found[3] else INT64_MAX + 1
    if end < first:
        raise UsageError(f"B of {option} A:B is below A: '{text}'")
    return range(first, end)


def parse_size(text: str) -> int:
    """Read a number of bytes.  Raises UsageError."""
    found = _SIZE.match(text)
    if not found:
        raise UsageError(f"'{text}' is not a valid size; use 100, 64k, 10m or 1g")
    shift = {"": 0, "k": 10, "m": 20, "g": 30}[found[2].lower()]
    return parse_integer(found[1], f"the number of '{text}'", high=INT64_MAX >> shift) << shift


def parse_rate(text: str) -> int:
    """Read a number of bytes per second, such as 5m or 5m/s.  Raises UsageError."""
    return parse_size(text.removesuffix("/s"))


def parse_pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Read repeated `name=value`; the last value of a name applies, and values may contain `=`.  Raises UsageError."""
    return dict(parse_pair(text, option) for text in texts or [])


def parse_pair(text: str, option: str) -> tuple[str, str]:
    """Read one `name=value`.  Raises UsageError."""
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise UsageError(f"{option} takes NAME=VALUE, not '{text}'")
    return name, value


def parse_partitions(text: str | None) -> list[int] | None:
    """Read `0,3,5-7`; None stays None.  Raises UsageError."""
    if text is None:
        return None
    partitions: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
        if not found:
            raise UsageError(f"'{text}' is not a list of partitions; use 0,3,5-7")
        first = parse_integer(found[1], "a partition", high=_PARTITION_MAX)
        last = parse_integer(found[2] or found[1], "a partition", high=_PARTITION_MAX)
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
    """The timestamp of a record; None for -1, which means none.  Others below 0 are times before 1970."""
    return None if timestamp_ms == NO_TIMESTAMP else timestamp_ms


@functools.lru_cache
def _format_seconds(timestamp_s: int) -> str:
    """Cached, because consecutive records mostly have the same second."""
    # The calendar repeats after 400 years; those from 1970 to 2369 can be formatted.
    periods, seconds = divmod(timestamp_s, GREGORIAN_PERIOD_S)
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()[:19]
    year = int(text[:4]) + 400 * periods
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}{text[4:]}"

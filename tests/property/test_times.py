"""The grammar of times: unambiguous texts are parsed exactly, all others are refused by name."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from datetime import time as datetime_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.topics.offsets import Anchor, OffsetSpec
from kctl.commands.frame.options.values import (
    TIME_MS_MAX,
    check_time_ms,
    parse_duration_ms,
    parse_offset,
    parse_time_ms,
)
from kctl.errors import UsageError
from tests.rows import for_rows

NOW_MS = 1_795_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = (
    time.replace(tzinfo=None) for time in (datetime(1970, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC))
)
MOMENTS = st.datetimes(FIRST, LAST, timezones=st.just(UTC))
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def since_epoch_ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def whole_ms(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@given(MOMENTS.map(whole_ms), ZONES)
def test_a_date_and_time_is_read_in_its_zone_and_as_utc_without_one(moment: datetime, zone: timezone) -> None:
    expected = since_epoch_ms(moment)
    for text in (
        moment.isoformat(),
        moment.astimezone(zone).isoformat(),
        moment.replace(tzinfo=None).isoformat(),
        moment.replace(tzinfo=None).isoformat(" "),
        moment.isoformat().replace("+00:00", "Z"),
    ):
        assert parse_time_ms(text, now_ms=NOW_MS) == expected


@given(MOMENTS)
def test_a_compact_date_is_a_date_and_never_a_number_of_seconds(moment: datetime) -> None:
    text = moment.strftime("%4Y%m%d")
    if len(text) == 8:
        midnight = since_epoch_ms(moment.replace(hour=0, minute=0, second=0, microsecond=0))
        assert parse_time_ms(text, now_ms=NOW_MS) == midnight


@given(st.integers(0, 10**20))
def test_only_10_and_13_digits_are_numbers_since_the_epoch(number: int) -> None:
    text = str(number)
    try:
        found = parse_time_ms(text, now_ms=NOW_MS)
    except UsageError:
        assert len(text) not in {10, 13}
    else:
        assert found == {10: number * 1000, 13: number}.get(len(text)) or len(text) == 8


@given(st.times(), st.integers(0, 4_000_000_000_000))
def test_a_time_without_a_date_is_of_the_current_day(time: datetime_time, now_ms: int) -> None:
    time = time.replace(microsecond=time.microsecond // 1_000 * 1_000)
    found_ms = parse_time_ms("@" + time.isoformat("milliseconds"), now_ms=now_ms)
    found, now = (EPOCH + timedelta(milliseconds=time_ms) for time_ms in (found_ms, now_ms))
    assert (found.date(), found.time()) == (now.date(), time)
    shorter = parse_time_ms(f"{time.hour}:{time.minute:02}", now_ms=now_ms)
    assert shorter == found_ms - found_ms % 60_000


@for_rows("text", ["24:00", "10:60", "10:5", "10:00:60", "10", ":05", "10:05+01"])
def test_invalid_times_of_day_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_time_ms(text, now_ms=NOW_MS)


@given(st.text() | st.from_regex(r"@?[-+]?[0-9PTHMSDhmsdw:.,Z-]{1,25}", fullmatch=True))
def test_any_text_is_a_valid_timestamp_or_a_usage_error(text: str) -> None:
    """Never a negative timestamp, which stands for a special offset: -1 is the end."""
    with suppress(UsageError):
        assert 0 <= parse_time_ms(text, now_ms=NOW_MS) <= TIME_MS_MAX


@given(st.text() | st.from_regex(r"[-+]?[0-9PTHMSDhmsdw.,-]{1,400}", fullmatch=True), st.booleans())
def test_any_text_is_a_bounded_duration_or_a_usage_error(text: str, may_be_negative: bool) -> None:
    try:
        duration_ms = parse_duration_ms(text, may_be_negative=may_be_negative)
    except UsageError:
        return
    assert abs(duration_ms) <= TIME_MS_MAX
    assert duration_ms >= 0 or may_be_negative


@given(st.from_regex(r"-?[0-9TZ:-]{4,20}|now|-[0-9]{1,3}[smhd]", fullmatch=True))
def test_a_leading_at_sign_is_ignored(text: str) -> None:
    try:
        expected = parse_time_ms(text, now_ms=NOW_MS)
    except UsageError:
        with pytest.raises(UsageError):
            parse_time_ms(f"@{text}", now_ms=NOW_MS)
        return
    assert parse_time_ms(f"@{text}", now_ms=NOW_MS) == expected
    assert parse_offset(f"@{text}", now_ms=NOW_MS) == OffsetSpec(Anchor.TIME, expected)


@for_rows(
    "text, words",
    [
        ("1969-12-31T23:59:59.999Z", "before 1970"),
        ("-P99999D", "before 1970"),
        ("0001-01-01", "before 1970"),
        ("99999999", "'99999999' is not a valid time"),
        ("12345", "epoch seconds have 10 digits, milliseconds 13"),
        ("179500000000", "epoch seconds have 10 digits"),
        ("１７９５００００００", "is not a valid time"),
        ("@@now", "is not a valid time"),
        ("-" + "9" * 400 + "d", "longer than 8,000 years"),
        ("-P" + "9" * 400 + "DT-" + "9" * 400 + "H", "longer than 8,000 years"),
    ],
)
def test_refused_times_have_an_error_message(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_time_ms(text, now_ms=NOW_MS)


def test_a_time_after_the_year_9999_is_refused() -> None:
    with pytest.raises(UsageError, match="after the year 9999"):
        check_time_ms(TIME_MS_MAX + 1, "P-9999999D")

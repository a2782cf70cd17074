"""The syntax of offsets, times, durations and sizes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kctl.admin.topics.offsets import END, START, Anchor, OffsetSpec
from kctl.commands.dump_log.selection import parse_time_range
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.options.option_types import (
    Duration,
    Offset,
    Partitions,
    Rate,
    SignedDuration,
    Size,
    Time,
    set_moment,
)
from kctl.commands.frame.options.parameters import shown_value
from kctl.commands.frame.options.values import (
    check_offset_range,
    format_time,
    parse_any_year_ms,
    parse_duration_ms,
    parse_number_range,
    parse_offset,
    parse_pair,
    parse_partitions,
    parse_size,
    parse_time_ms,
)
from kctl.errors import UsageError
from tests.rows import for_rows
from tests.unit.commands.conftest import Kctl

NOW_MS = 1_795_000_000_000


@for_rows(
    "text, expected",
    [
        ("start", START),
        ("earliest", START),
        ("end", END),
        ("latest", END),
        ("0", OffsetSpec(Anchor.ZERO, 0)),
        ("12", OffsetSpec(Anchor.ZERO, 12)),
        ("+5", OffsetSpec(Anchor.START, 5)),
        ("-5", OffsetSpec(Anchor.END, -5)),
        ("@2026-11-21", OffsetSpec(Anchor.TIME, 1_795_219_200_000)),
        ("@-1h", OffsetSpec(Anchor.TIME, NOW_MS - 3_600_000)),
        ("@now", OffsetSpec(Anchor.TIME, NOW_MS)),
    ],
)
def test_offset_is_read(text: str, expected: OffsetSpec) -> None:
    assert parse_offset(text, now_ms=NOW_MS) == expected


@for_rows("text", ["", "begin", "1.5", "--1", "@", "@yesterday", "1:2"])
def test_anything_else_is_no_offset(text: str) -> None:
    with pytest.raises(UsageError):
        parse_offset(text, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5:10", range(5, 10)),
        (":10", range(10)),
        ("5:", range(5, 1 << 63)),
        ("5", range(5, 6)),
    ],
)
def test_range_of_numbers_is_read(text: str, expected: range) -> None:
    assert parse_number_range(text, "--offset") == expected
    assert parse_number_range(None, "--offset") is None


def test_range_of_numbers_that_ends_before_it_begins_is_refused() -> None:
    assert not parse_number_range("5:5", "--offset")
    with pytest.raises(UsageError, match="B of --offset A:B is below A: '5:3'"):
        parse_number_range("5:3", "--offset")
    with pytest.raises(UsageError, match="B of --time A:B is before A: '10:05:10:00'"):
        parse_time_range("10:05:10:00", now_ms=NOW_MS)


@pytest.mark.parametrize("text", ["", ":", "a:b", "-1:3", "1:2:3"])
def test_anything_else_is_no_range(text: str) -> None:
    with pytest.raises(UsageError, match="--offset takes A:B"):
        parse_number_range(text, "--offset")


@for_rows(
    "text, expected_ms",
    [
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.250", 250),
        ("1970-01-02", 86_400_000),
        ("1970-1-2T0:0:1.0", 86_401_000),
        ("1700000000", 1_700_000_000_000),
        ("1700000000123", 1_700_000_000_123),
        ("now", NOW_MS),
        ("-1h30m", NOW_MS - 5_400_000),
        ("-PT90M", NOW_MS - 5_400_000),
    ],
)
def test_time_without_zone_is_utc(text: str, expected_ms: int) -> None:
    assert parse_time_ms(text, now_ms=NOW_MS) == expected_ms


@for_rows(
    "text, expected_ms",
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("1.5", 1500),
        ("0.5s", 500),
        ("pt1h", 3_600_000),
        ("P1DT-1H", 82_800_000),
        ("-PT-1,5S", 1500),
    ],
)
def test_duration_is_read(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@for_rows("text", ["", "P", "PT", "P1DT", "P2W", "PT-1H", "-PT1H", "ten", "10x", "-5s", "5 s"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration_ms(text)


def test_sizes_count_in_powers_of_1024() -> None:
    assert [parse_size(text) for text in ("100", "64k", "10M", "1g", "2kb")] == [100, 65536, 10 << 20, 1 << 30, 2048]


def test_a_pair_splits_at_its_first_equals_sign() -> None:
    assert [parse_pair(text) for text in ("a=b=c", "d=")] == [("a", "b=c"), ("d", "")]


def test_a_pair_needs_a_name_and_an_equals_sign() -> None:
    with pytest.raises(UsageError, match=r"'retention\.ms' is not NAME=VALUE"):
        parse_pair("retention.ms")


def test_partitions_are_sorted_and_unique() -> None:
    assert parse_partitions("5-7,0,3,6") == [0, 3, 5, 6, 7]
    assert parse_partitions(None) is None


def test_time_is_shown_in_utc_with_milliseconds() -> None:
    assert format_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert format_time(-1) is None
    for timestamp_ms, text in (  # as java.time.Instant
        (-2, "1969-12-31T23:59:59.998Z"),
        (-62_167_219_200_001, "-0001-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
        ((1 << 63) - 1, "+292278994-08-17T07:12:55.807Z"),
        (-(1 << 63), "-292275055-05-16T16:47:04.192Z"),
    ):
        assert (format_time(timestamp_ms), parse_any_year_ms(text)) == (text, timestamp_ms)


@for_rows(
    "lower, upper",
    [("5", "3"), ("-1", "-3"), ("+9", "+8"), ("@-1h", "@-2h"), ("@10:00", "@09:59:59"), ("end", "start")],
)
def test_range_that_ends_before_it_begins_is_refused(lower: str, upper: str) -> None:
    set_moment(NOW_MS)
    with pytest.raises(UsageError, match=f"--until {re.escape(upper)} is before --from {re.escape(lower)}"):
        check_offset_range(Offset(lower), Offset(upper))


@for_rows(
    "lower, upper", [("5", "5"), ("start", "0"), ("start", "start"), ("7", "+1"), ("@-1h", "5"), ("@-2h", "@-1h")]
)
def test_range_that_may_have_records_is_accepted(lower: str, upper: str) -> None:
    set_moment(NOW_MS)
    check_offset_range(Offset(lower), Offset(upper))
    check_offset_range(Offset(lower), None)


@pytest.mark.parametrize(
    "line", ["consume orders", "copy orders other", "export orders --to lake", "tables profile orders"]
)
def test_commands_refuse_a_range_that_ends_before_it_begins(kctl: Kctl, line: str) -> None:
    ran = kctl(f"{line} --from 5 --until 3")
    assert (ran.status, ran.out) == (ExitStatus.USAGE, "")
    assert "--until 3 is before --from 5" in ran.err


def test_values_of_options_keep_their_text_and_are_read_once() -> None:
    set_moment(NOW_MS)
    rows: list[tuple[Any, str, object, str]] = [
        (Duration, "1h30m", 5_400_000, "1h30m"),
        (SignedDuration, "-PT1S", -1000, "-PT1S"),
        (Size, "64k", 65_536, "64k"),
        (Rate, "5m/s", 5 << 20, "5m/s"),
        (Time, "2026-11-21", 1_795_219_200_000, "2026-11-21"),
        (Offset, "-3", OffsetSpec(Anchor.END, -3), "-3"),
        (Partitions, "0,3-4", (0, 3, 4), "0,3,4"),
    ]
    for kind, text, value, shown in rows:
        read = kind(text)
        assert (read, shown_value(read), kind(read) is read) == (value, shown, True), kind
        assert not isinstance(read, int) or f"{read}" == str(value), kind  # Requests to brokers have the number.


@pytest.mark.long
def test_times_of_one_command_line_have_the_same_moment(kctl: Kctl) -> None:
    """Otherwise the range from now until now would end before it begins, depending on the order of the options."""
    for line in ("--from @now --until @now", "--until @now --from @now"):
        for _ in range(50):
            assert "is before" not in kctl(f"consume orders {line}").err


def test_value_outside_of_the_range_is_refused(kctl: Kctl) -> None:
    for line, complaint in (
        ("perf consume x --duration 0s", "--duration: must be between 1ms and 7d, not '0s'"),
        ("perf consume x --duration 8d", "--duration: must be between 1ms and 7d, not '8d'"),
        ("perf consume x --interval 99ms", "--interval: must be between 100ms and 7d, not '99ms'"),
        ("cluster verify --interval 0", "--interval: must be between 1ms and 1d, not '0'"),
        ("top --interval 2h", "--interval: must be between 200ms and 1h, not '2h'"),
        ("groups lag --window 1ms", "--window: must be at least 1s, not '1ms'"),
        ("tokens renew x --period 0s", "--period: must be at least 1ms, not '0s'"),
        ("reassign execute x:0=1 --throttle 0", "--throttle: must be at least 1, not '0'"),
    ):
        ran = kctl(line)
        assert (ran.status, complaint in ran.err) == (ExitStatus.USAGE, True), (line, ran.err)

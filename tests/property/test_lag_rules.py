"""The rules of lag: each verdict by example, and what holds for all facts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.lag.facts import Facts, LogRange, Look, Position, Retention, Unread
from kctl.lag.rules import Verdict, judge
from tests.rows import for_rows

NOW = 10_000_000_000
WINDOW = 300_000
DAY = 86_400_000


def behind(**changes: object) -> Facts:
    """A group at offset 50 of 100, whose first unread record is a second old; a member reads and commits."""
    facts = Facts(
        now_ms=NOW,
        log=LogRange(0, 100, 100),
        committed=50,
        unread=Unread(NOW - 1000),
        is_assigned=True,
        commits=(Position(NOW - 100_000, 10), Position(NOW - 1000, 50)),
        commits_since_ms=NOW - WINDOW,
        end_before=Position(NOW - WINDOW, 60),
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def test_lag_rates_and_time_to_catch_up_of_a_group_that_catches_up() -> None:
    found = judge(behind())
    assert (found.lag, found.time_lag_ms, found.commit_age_ms, found.lost) == (50, 1000, 1000, 0)
    assert found.consumed_per_s == pytest.approx(0.4)
    assert found.produced_per_s == pytest.approx(40 / 300)
    assert found.catches_up is True
    assert found.catch_up_ms == pytest.approx(50 / (0.4 - 40 / 300) * 1000, abs=1)
    assert (found.verdict, found.reason) == (Verdict.OK, "")


VERDICTS = {
    "at the end": (behind(committed=100, unread=Unread()), Verdict.OK),
    "only control records are left": (behind(unread=Unread(None, 0)), Verdict.OK),
    "catching up, though old records wait": (behind(unread=Unread(NOW - WINDOW)), Verdict.OK),
    "not catching up": (behind(unread=Unread(NOW - 60_000), end_before=Position(NOW - WINDOW, 0),
                               commits=(Position(NOW - 290_000, 40), Position(NOW - 1000, 50))), Verdict.WARN),
    "not catching up, but within the patience": (behind(end_before=Position(NOW - WINDOW, -1000)), Verdict.OK),
    "slower than others, without timestamps": (
        behind(unread=Unread(), end_before=Position(NOW - WINDOW, -1000)), Verdict.WARN),
    "without a commit": (behind(committed=None, commits=()), Verdict.WARN),
    "without a commit or records": (behind(committed=None, commits=(), log=LogRange(7, 7, 7)), Verdict.OK),
    "set back": (behind(commits=(Position(NOW - 9000, 80), Position(NOW - 1000, 50))), Verdict.REWOUND),
    "set back and read again": (behind(commits=(Position(NOW - 9000, 40), Position(NOW - 8000, 10))), Verdict.OK),
    "commits the same offset again and again": (
        behind(unread=Unread(NOW - WINDOW), commits=(Position(NOW - WINDOW, 50), Position(NOW - 1000, 50))),
        Verdict.STALLED),
    "a member that does not commit": (behind(unread=Unread(NOW - WINDOW), commits=()), Verdict.STALLED),
    "a member that does not commit, without timestamps, seen before": (
        behind(unread=Unread(), commits=(), looks=(Look(NOW - WINDOW, 50, 0, 51),)), Verdict.STALLED),
    "a new record for a member that had nothing to do": (behind(commits=()), Verdict.OK),
    "no member reads": (behind(is_assigned=False, commits=(), unread=Unread(NOW - 60_000)), Verdict.STOPPED),
    "no member reads, without timestamps": (behind(is_assigned=False, commits=(), unread=Unread()), Verdict.STOPPED),
    "no member reads, and the history is unknown": (
        behind(is_assigned=False, commits=(), commits_since_ms=None, unread=Unread(NOW - 60_000)), Verdict.WARN),
    "no member reads, and the history is too short": (
        behind(is_assigned=False, commits=(), commits_since_ms=NOW - WINDOW + 1, unread=Unread()), Verdict.OK),
    "no member reads, and the history is unknown, but it was seen before": (
        behind(is_assigned=False, commits=(), commits_since_ms=None, unread=Unread(),
               looks=(Look(NOW - WINDOW, 50, 0, 51),)), Verdict.STOPPED),
    "a new record for a job that commits and had nothing to do": (
        behind(is_assigned=False, commits=(), unread=Unread(NOW - 59_999)), Verdict.OK),
    "no member, but commits, as with assign()": (behind(is_assigned=False), Verdict.OK),
    "no member reads, and no record is unread": (
        behind(is_assigned=False, commits=(), committed=100, unread=Unread()), Verdict.OK),
    "deleted before it was read": (behind(log=LogRange(51, 100, 100)), Verdict.LOSING),
    "everything deleted before it was read": (behind(log=LogRange(100, 100, 100), unread=Unread()), Verdict.LOSING),
    "topic created again": (behind(log=LogRange(0, 7, 7)), Verdict.LOSING),
    "between last stable offset and high watermark": (behind(log=LogRange(0, 40, 100)), Verdict.OK),
    "nine tenths of the retention are over": (
        behind(unread=Unread(NOW - 9 * DAY), retention=Retention(10 * DAY), commits=()), Verdict.LOSING),
    "nine tenths are not quite over": (
        behind(unread=Unread(NOW - 9 * DAY + 1), retention=Retention(10 * DAY), commits=()), Verdict.STALLED),
    "retention is near, but everything will have been read": (
        behind(unread=Unread(NOW - 9 * DAY), retention=Retention(10 * DAY)), Verdict.OK),
    "nine tenths of the size": (
        behind(committed=10, retention=Retention(None, 1000), size_bytes=1000, commits=()), Verdict.LOSING),
    "less than nine tenths of the size": (
        behind(committed=11, retention=Retention(None, 1000), size_bytes=1000, commits=()), Verdict.OK),
    "the start moves towards a commit that does not move": (
        behind(log=LogRange(40, 100, 100), commits=(), looks=(Look(NOW - 60_000, 50, 30, 100),)), Verdict.LOSING),
    "the start follows a commit that moves": (
        behind(log=LogRange(40, 100, 100), looks=(Look(NOW - 60_000, 20, 10, 100),)), Verdict.OK),
}  # fmt: skip


@for_rows("case", VERDICTS)
def test_facts_lead_to_the_expected_verdict(case: str) -> None:
    facts, verdict = VERDICTS[case]
    found = judge(facts)
    assert found.verdict is verdict, found
    assert bool(found.reason) is (verdict is not Verdict.OK)


def test_time_left_is_that_of_the_nearest_limit() -> None:
    by_time = judge(behind(retention=Retention(DAY)))
    assert by_time.time_left_ms == DAY - 1000
    # 50 unread records take 500 of 600 bytes; the other 100 bytes take 10 records, which come at 40 in 300 s.
    by_size = judge(behind(retention=Retention(DAY, 600), size_bytes=1000))
    assert by_size.time_left_ms == 75_000
    assert judge(behind()).time_left_ms is None


def test_age_of_a_commit_before_the_history_is_a_lower_bound() -> None:
    found = judge(behind(commits=()))
    assert (found.commit_age_ms, found.commit_age_ms_min) == (None, WINDOW)
    assert judge(behind(commits=(), commits_since_ms=None)).commit_age_ms_min is None


def test_nothing_is_claimed_without_evidence() -> None:
    found = judge(Facts(now_ms=NOW, log=LogRange(0, 100, 100), committed=50, is_assigned=True))
    assert found.lag == 50
    unknown = (found.time_lag_ms, found.consumed_per_s, found.produced_per_s, found.catches_up, found.commit_age_ms)
    assert unknown == (None,) * 5
    assert found.verdict is Verdict.OK


offsets = st.integers(0, 1000)
times = st.integers(NOW - 2 * WINDOW, NOW)


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    start, *_, end = sorted(draw(st.tuples(offsets, offsets)))
    stable = draw(st.integers(start, end))
    committed = draw(st.none() | offsets)
    unread = Unread()
    readable = stable - max(committed or 0, start)
    if committed is not None and committed < stable:
        unread = Unread(draw(st.none() | times), draw(st.none() | st.integers(0, readable)))
    positions = st.builds(Position, times, offsets)
    looks = st.builds(Look, times, st.none() | offsets, offsets, offsets)
    return Facts(
        now_ms=NOW,
        log=LogRange(start, stable, end),
        committed=committed,
        unread=unread,
        is_assigned=draw(st.booleans()),
        commits=tuple(sorted(draw(st.lists(positions, max_size=5)))),
        commits_since_ms=draw(st.none() | times),
        looks=tuple(sorted(draw(st.lists(looks, max_size=4)), key=lambda look: look.time_ms)),
        end_before=draw(st.none() | st.builds(Position, times, offsets)),
        retention=Retention(draw(st.none() | st.integers(0, 10 * WINDOW)), draw(st.none() | st.integers(0, 5000))),
        size_bytes=draw(st.none() | st.integers(0, 10_000)),
    )  # fmt: skip


@given(facts())
def test_numbers_are_never_negative_and_the_verdict_has_a_reason(one: Facts) -> None:
    found = judge(one)
    numbers = [value for value in found[:10] if value is not None and not isinstance(value, bool)]
    assert all(number >= 0 for number in numbers)
    assert bool(found.reason) is (found.verdict is not Verdict.OK)
    assert found.time_lag_ms != 0 or found.lag == 0 or one.unread.oldest_timestamp_ms == NOW


@given(facts())
def test_a_group_without_lag_is_neither_late_nor_stopped(one: Facts) -> None:
    found = judge(replace(one, committed=one.log.end, unread=Unread()))
    assert found.lag == 0
    assert (found.time_lag_ms, found.catches_up, found.catch_up_ms, found.time_left_ms) == (0, True, 0, None)
    assert found.verdict in {Verdict.OK, Verdict.REWOUND, Verdict.LOSING}


@given(facts())
def test_losing_is_the_verdict_for_exactly_the_deleted_endangered_and_vanished_records(one: Facts) -> None:
    found = judge(one)
    if found.lost or (one.committed is not None and one.committed > one.log.high_watermark):
        assert found.verdict is Verdict.LOSING
    elif found.verdict is Verdict.LOSING:
        assert found.lag
        assert found.time_left_ms is not None
        assert found.catch_up_ms is None or found.catch_up_ms >= found.time_left_ms


@given(facts())
def test_a_live_member_is_never_a_stopped_group(one: Facts) -> None:
    assert judge(replace(one, is_assigned=True)).verdict is not Verdict.STOPPED


@given(facts(), st.integers(0, 10 * WINDOW), st.none() | st.integers(1, 10 * WINDOW))
def test_more_retention_never_makes_the_verdict_worse(one: Facts, limit_ms: int, more_ms: int | None) -> None:
    limited = replace(one, retention=one.retention._replace(ms=limit_ms))
    relaxed = replace(one, retention=one.retention._replace(ms=None if more_ms is None else limit_ms + more_ms))
    assert judge(relaxed).verdict <= judge(limited).verdict


@given(facts())
def test_moving_all_times_changes_nothing(one: Facts) -> None:
    by = 12_345
    oldest, since, before = one.unread.oldest_timestamp_ms, one.commits_since_ms, one.end_before
    moved = replace(
        one,
        now_ms=one.now_ms + by,
        unread=one.unread._replace(oldest_timestamp_ms=None if oldest is None else oldest + by),
        commits=tuple(Position(time + by, offset) for time, offset in one.commits),
        commits_since_ms=None if since is None else since + by,
        looks=tuple(look._replace(time_ms=look.time_ms + by) for look in one.looks),
        end_before=before and Position(before.time_ms + by, before.offset),
    )
    assert judge(moved) == judge(one)


def test_commits_of_a_broker_whose_clock_is_ahead_count() -> None:
    found = judge(behind(commits=(Position(NOW - 10_000, 10), Position(NOW + 10_000, 50))))
    assert (found.commit_age_ms, found.consumed_per_s, found.verdict) == (0, 4.0, Verdict.OK)

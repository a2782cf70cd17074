"""The arithmetic of quotas beside naive models."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from kctl.security.quotas import QuotaEntity, QuotaGroup
from kctl.server.requests.quotas.limits import Limit
from kctl.server.requests.quotas.meters import (
    EXAMINED_MAX,
    INACTIVE_MS,
    THROTTLE_MS_MAX,
    LimitedClient,
    Meters,
    QuotaWindows,
    RateMeter,
    SampledRate,
    TokenBucket,
    bucket_throttle_ms,
    rate_throttle_ms,
)

SAMPLES, SAMPLE_MS = 11, 1000
WINDOWS = QuotaWindows(SAMPLES, SAMPLE_MS)

pauses_and_values = st.lists(st.tuples(st.integers(0, 15_000), st.integers(0, 10**9)), min_size=1, max_size=80)


@given(pauses_and_values)
def test_a_rate_counts_each_value_for_as_long_as_its_sample_is_in_the_window(history: list[tuple[int, int]]) -> None:
    """The model keeps every value; the samples must hold all of the last ten seconds and none older than eleven."""
    rate, now_ms = SampledRate(SAMPLES, SAMPLE_MS), 0
    all_values: list[tuple[int, int]] = []
    for pause_ms, value in history:
        now_ms += pause_ms
        rate.record(value, now_ms)
        all_values.append((now_ms, value))
        window_ms = rate.window_ms(now_ms)
        total = rate.per_second(now_ms) * window_ms / 1000
        certain = sum(value for at_ms, value in all_values if now_ms - at_ms < (SAMPLES - 1) * SAMPLE_MS)
        possible = sum(value for at_ms, value in all_values if now_ms - at_ms < SAMPLES * SAMPLE_MS)
        assert certain - 1e-6 * certain <= total <= possible + 1e-6 * possible
        assert (SAMPLES - 1) * SAMPLE_MS <= window_ms < SAMPLES * SAMPLE_MS


@given(pauses_and_values)
def test_a_value_that_is_taken_back_leaves_the_rate_unchanged(history: list[tuple[int, int]]) -> None:
    changed, unchanged = SampledRate(SAMPLES, SAMPLE_MS), SampledRate(SAMPLES, SAMPLE_MS)
    now_ms = 0
    for pause_ms, value in history:
        now_ms += pause_ms
        for rate in (changed, unchanged):
            rate.record(value, now_ms)
        changed.record(12_345, now_ms)
        changed.record(-12_345, now_ms)
        assert math.isclose(changed.per_second(now_ms), unchanged.per_second(now_ms), rel_tol=1e-9, abs_tol=1e-9)


@given(pauses_and_values, st.integers(1, 10**8))
def test_values_that_are_only_added_up_count_as_if_each_was_recorded(
    history: list[tuple[int, int]], limit: int
) -> None:
    meter, exact = RateMeter(limit, WINDOWS), RateMeter(limit, WINDOWS)
    client = LimitedClient(meter, None, None, None)
    now_ms = 0
    for pause_ms, value in history:
        now_ms += pause_ms
        throttle_ms = exact.record(value, now_ms)
        if client.take(meter, value, 0, now_ms / 1000):
            assert throttle_ms == 0
        else:
            assert meter.record(value, now_ms) == throttle_ms
    assert math.isclose(meter.usage(now_ms), exact.usage(now_ms), rel_tol=1e-9, abs_tol=1e-9)


def test_values_are_added_up_until_a_sample_ends_or_the_limit_is_near() -> None:
    meter = RateMeter(100, WINDOWS)
    client = LimitedClient(meter, None, None, None)
    assert not client.take(meter, 1, 0.0, 5.0), "the first begins a sample"
    meter.record(1, 5_000)
    room = 100 * (SAMPLES - 1) * SAMPLE_MS / 1000 - 1
    assert client.take(meter, room - 10, 0.0, 5.0 + SAMPLE_MS / 2000)
    assert not client.take(meter, 11, 0.0, 5.0 + SAMPLE_MS / 2000)
    assert client.take(meter, 10, 0.0, 5.0 + SAMPLE_MS / 2000)
    assert not client.take(meter, 0, 0.0, 5.0 + SAMPLE_MS / 1000), "the sample has ended"
    meter.change_limit(1)
    assert not client.take(meter, 0, 0.0, 5.0), "the limit has changed"


def test_the_time_of_the_last_use_is_known_although_values_are_only_added_up() -> None:
    """Also with samples of hours: the meters of groups without requests for an hour are removed."""
    meter = RateMeter(100, QuotaWindows(11, 24 * 3_600_000))
    client = LimitedClient(meter, None, None, None)
    meter.record(1, 0)
    for now_ms in range(0, 2 * INACTIVE_MS, 1_000):
        if not client.take(meter, 0, 0.0, now_ms / 1000):
            meter.record(0, now_ms)
        assert now_ms - meter.last_used_ms <= 10_000


@given(pauses_and_values, st.integers(1, 10**8))
def test_after_the_throttle_time_the_rate_is_back_at_the_limit(history: list[tuple[int, int]], limit: int) -> None:
    """Unless the samples leave the window before, which lowers the rate further."""
    rate, now_ms = SampledRate(SAMPLES, SAMPLE_MS), 0
    for pause_ms, value in history:
        now_ms += pause_ms
        rate.record(value, now_ms)
    throttle_ms = rate_throttle_ms(rate.per_second(now_ms), limit, rate.window_ms(now_ms))
    total = rate.per_second(now_ms) * rate.window_ms(now_ms) / 1000
    if throttle_ms < THROTTLE_MS_MAX:
        after_s = (rate.window_ms(now_ms) + throttle_ms) / 1000
        assert total / after_s <= limit * 1.001
    assert (throttle_ms > 0) is (total / (rate.window_ms(now_ms) / 1000) > limit * 1.0001) or throttle_ms <= 1


def test_a_writer_that_obeys_its_throttle_times_writes_the_limit_within_one_percent() -> None:
    rate, now_ms, written, limit = SampledRate(SAMPLES, SAMPLE_MS), 0, 0, 1_000_000
    while now_ms < 600_000:
        rate.record(64_000, now_ms)
        written += 64_000
        now_ms += max(1, rate_throttle_ms(rate.per_second(now_ms), limit, rate.window_ms(now_ms)))
    assert 0.99 * limit <= written / 600 <= 1.02 * limit  # The first ten seconds are a burst.


def test_throttle_times_at_the_edges() -> None:
    assert rate_throttle_ms(100, 100, 10_000) == 0
    assert rate_throttle_ms(200, 100, 10_000) == 10_000
    assert rate_throttle_ms(1, 0, 10_000) == 10_000
    assert rate_throttle_ms(1e30, 1, 10_000) == THROTTLE_MS_MAX
    assert rate_throttle_ms(math.inf, 1, 0) == THROTTLE_MS_MAX
    assert bucket_throttle_ms(0, 5, most_ms=7) == 0
    assert bucket_throttle_ms(-10, 5, most_ms=7) == 2_000
    assert bucket_throttle_ms(-10, 0, most_ms=7) == 7


@given(
    st.floats(0.1, 100),
    st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 500)), min_size=1, max_size=50),
)
def test_a_token_bucket_never_gives_more_than_its_burst_and_its_rate(
    quota: float, takes: list[tuple[int, int]]
) -> None:
    """A strict client takes only when the bucket is not overdrawn."""
    burst_s = 11.0
    bucket, now_ms, taken, largest = TokenBucket(burst_s), 0, 0, 0
    for pause_ms, tokens in takes:
        now_ms += pause_ms
        if bucket.tokens(quota, now_ms) >= 0:
            bucket.take(tokens, quota, now_ms)
            taken += tokens
            largest = max(largest, tokens)
    assert taken <= burst_s * quota + quota * now_ms / 1000 + largest + 1e-6


def test_a_token_bucket_starts_full_and_follows_a_changed_quota() -> None:
    bucket = TokenBucket(10.0)
    assert bucket.tokens(2.0, 5) == 20.0
    bucket.take(30, 2.0, 5)
    assert bucket.tokens(2.0, 5) == -10.0
    assert bucket.tokens(2.0, 5_005) == 0.0
    assert bucket.tokens(1.0, 1_000_000) == 10.0


def test_room_is_made_by_a_look_at_few_groups_and_those_in_use_stay() -> None:
    """A look at all of them delayed other clients by 20 ms."""
    meters = Meters(lambda limit: RateMeter(limit, WINDOWS), EXAMINED_MAX * 5)

    def meter(number: int, now_ms: int) -> RateMeter:
        client_id = str(number)
        return meters.meter(Limit(5, QuotaEntity(None, client_id), QuotaGroup("", client_id)), now_ms)

    for number in range(EXAMINED_MAX * 5):
        meter(number, 0)
    in_use = range(0, EXAMINED_MAX, 2)
    for number in in_use:
        meter(number, 0).add(1, 1_000)
    assert meters.make_room() == EXAMINED_MAX // 2
    assert meters.make_room() == 0
    left = meters.readings(1_000)
    assert {QuotaGroup("", str(number)) for number in in_use} <= left.keys()
    assert len(left) == EXAMINED_MAX * 5 - EXAMINED_MAX // 2


def test_room_is_made_although_all_groups_are_in_use() -> None:
    meters = Meters(lambda limit: RateMeter(limit, WINDOWS), 3)
    for client_id in "abc":
        meters.meter(Limit(5, QuotaEntity(None, client_id), QuotaGroup("", client_id)), 0).add(1, 1_000)
    assert meters.make_room() == 1
    assert len(meters) == 2

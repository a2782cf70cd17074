"""The arithmetic of quotas beside naive models."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from kctl.server.quotas.rates import (
    THROTTLE_MS_MAX,
    SampledRate,
    TokenBucket,
    bucket_throttle_ms,
    rate_throttle_ms,
)

SAMPLES, SAMPLE_MS = 11, 1000

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
def test_a_rate_that_is_surely_within_the_limit_is_not_above_it(history: list[tuple[int, int]], limit: int) -> None:
    quick, exact = SampledRate(SAMPLES, SAMPLE_MS), SampledRate(SAMPLES, SAMPLE_MS)
    now_ms = 0
    for pause_ms, value in history:
        now_ms += pause_ms
        exact.record(value, now_ms)
        is_within = quick.record_within(value, now_ms, limit)
        rate = exact.per_second(now_ms)
        assert quick.per_second(now_ms) == rate
        assert rate <= limit or not is_within


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

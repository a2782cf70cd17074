"""Load tests: the histogram, the schedule, the counts and the sizes of records."""

from __future__ import annotations

import sys
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.perf.client_choice import choose_client
from kctl.admin.perf.load_client import random_values, values_of_lines
from kctl.admin.perf.measurement import NS_PER_S, VALUE_MAX, LatencyHistogram, Load, Measurement, Schedule
from kctl.client.settings import ClientSettings
from kctl.commands.frame.options.option_types import Duration
from kctl.commands.perf.runs import parse_load, parse_sizes
from kctl.errors import UsageError
from tests.rows import for_rows

latencies = st.lists(st.one_of(st.integers(0, 300), st.integers(0, VALUE_MAX)), min_size=1, max_size=60)


def histogram(values: list[int]) -> LatencyHistogram:
    filled = LatencyHistogram()
    for value in values:
        filled.record(value)
    return filled


@given(latencies, st.sampled_from([0.0, 0.5, 0.95, 0.99, 0.999, 1.0]))
def test_quantiles_are_at_most_one_percent_too_large(values: list[int], share: float) -> None:
    found = histogram(values).quantile_us(share)
    ordered = sorted(values)
    exact = next(value for rank, value in enumerate(ordered, start=1) if rank >= share * len(ordered))
    assert found is not None
    assert exact <= found <= exact * 1.01


@given(latencies, latencies)
def test_sum_of_histograms_is_the_histogram_of_all_values(some: list[int], others: list[int]) -> None:
    added = histogram(some)
    added.add(histogram(others))
    both = histogram(some + others)
    assert (added.buckets(), added.count, added.max_us, added.mean_us) == (
        both.buckets(),
        both.count,
        both.max_us,
        both.mean_us,
    )


@given(latencies)
def test_shown_buckets_contain_all_values_once(values: list[int]) -> None:
    buckets = histogram(values).buckets()
    assert sum(count for *_, count in buckets) == len(values)
    for low, high, count in buckets:
        assert sum(low <= value <= high for value in values) == count
    assert [low for low, *_ in buckets] == sorted({low for low, *_ in buckets})
    assert len(buckets) <= 128


def test_memory_of_a_histogram_does_not_grow() -> None:
    filled = LatencyHistogram()
    before = sys.getsizeof(filled._counts)
    for exponent in range(60):
        filled.record(1 << exponent)
    filled.record(-5)
    assert sys.getsizeof(filled._counts) == before
    assert filled.count == 61
    assert LatencyHistogram().quantile_us(0.5) is LatencyHistogram().mean_us is None


def test_records_are_sent_at_the_rate_and_late_ones_at_once() -> None:
    schedule = Schedule(Load(records=None, duration_ns=10 * NS_PER_S, rate=10), 0)
    assert schedule.wait_ns(0) == 0
    schedule.sent(0)
    assert schedule.wait_ns(0) == NS_PER_S // 10
    for _ in range(5):
        assert schedule.wait_ns(NS_PER_S // 2) == 0
        schedule.sent(NS_PER_S // 2)
    assert schedule.wait_ns(NS_PER_S // 2) == NS_PER_S // 10
    assert schedule.wait_ns(10 * NS_PER_S) is None


def test_warmup_counts_towards_neither_limit() -> None:
    schedule = Schedule(Load(records=2, duration_ns=3, warmup_ns=10), 100)
    for now_ns in (100, 105, 109, 110):
        assert schedule.wait_ns(now_ns) == 0
        schedule.sent(now_ns)
    assert schedule.wait_ns(111) == 0
    schedule.sent(111)
    assert schedule.wait_ns(111) is None
    assert Schedule(Load(records=2, duration_ns=3, warmup_ns=10), 100).wait_ns(113) is None


def test_intervals_add_up_to_the_total() -> None:
    measured = Measurement(0, warmup_ns=NS_PER_S, interval_ns=NS_PER_S)
    measured.add(7, NS_PER_S + 1, sent_ns=NS_PER_S - 1)  # sent in the warm-up
    measured.add(10, NS_PER_S + 3_000, sent_ns=NS_PER_S)
    assert measured.interval(2 * NS_PER_S - 1) is None
    first = measured.interval(2 * NS_PER_S)
    assert first is not None
    assert (first.records, first.bytes, first.records_per_s, first.latencies.max_us) == (1, 10, 1.0, 3)
    measured.add(30, 3 * NS_PER_S, sent_ns=3 * NS_PER_S)
    measured.fail("no such topic")
    measured.fail("later")
    total = measured.total()
    assert (total.records, total.bytes, total.errors, total.elapsed_ns) == (2, 40, 2, 2 * NS_PER_S)
    assert (total.latencies.count, measured.first_error) == (2, "no such topic")
    assert (measured.total().records, Measurement(0).total().records_per_s) == (2, 0.0)


@given(st.sampled_from(["0", "1k", "10-20", "100:9,1k-2k:1", "5:0,7:3"]), st.integers())
def test_values_have_the_requested_sizes(text: str, seed: int) -> None:
    sizes = parse_sizes(text)
    allowed = [range_ for range_, weight in zip(sizes.ranges, sizes.weights, strict=True) if weight]
    for value in islice(random_values(sizes, Random(seed)), 20):
        assert any(range_.low <= len(value) <= range_.high for range_ in allowed)


def test_sizes_follow_their_weights() -> None:
    drawn = [len(value) for value in islice(random_values(parse_sizes("1:9,2:1"), Random(1)), 2000)]
    assert 100 < drawn.count(2) < 300
    assert parse_sizes("1:9,2:1").mean == pytest.approx(1.1)


def test_values_are_the_lines_of_a_file() -> None:
    assert set(islice(values_of_lines(b"a\n\nbc\n", Random(1)), 100)) == {b"a", b"", b"bc"}
    with pytest.raises(UsageError):
        values_of_lines(b"", Random(1))


@for_rows("text", ["", "x", "20-10", "1:x", "1:0", "1-2-3", "100m", "1,,2", ",".join(["1"] * 101)])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_sizes(text)


def test_load_has_an_end() -> None:
    assert parse_load(None, None, default_ms=10_000).duration_ns == 10 * NS_PER_S
    assert parse_load(5, None, default_ms=10_000).duration_ns is None
    assert parse_load(None, Duration("2s"), default_ms=None).duration_ns == 2 * NS_PER_S


def test_own_client_is_used_without_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ClientSettings((("127.0.0.1", 9092),))
    assert choose_client("auto", settings).name.startswith("librdkafka ")
    assert choose_client("kctl", settings).name.startswith("kctl ")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert choose_client("auto", settings).name.startswith("kctl ")
    with pytest.raises(UsageError, match="librdkafka is not installed"):
        choose_client("librdkafka", settings)

"""Rates and token buckets of quotas have the values of Kafka's own classes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.server.requests.quotas.meters import SampledRate, TokenBucket
from tests.peers.apache_kafka import OLDEST_JUDGE, run_java_tool, why_not

pytestmark = pytest.mark.jvm

PROGRAM = Path(__file__).with_name("KafkaRates.java")
START_MS = 1_600_000_000_000
SEQUENCES = 60


def test_rates_and_tokens_are_those_of_kafka() -> None:
    if reason := why_not():
        pytest.skip(reason)
    lines: list[str] = []
    expected: list[tuple[float, int, float]] = []
    for seed in range(SEQUENCES):
        chance = random.Random(seed)
        samples, sample_ms, quota = (
            chance.choice((2, 3, 11)),
            chance.choice((1, 250, 1000)),
            chance.choice((0.5, 7, 1e6)),
        )
        lines.append(f"new {samples} {sample_ms} {quota}")
        rate, bucket = SampledRate(samples, sample_ms), TokenBucket(samples * sample_ms / 1000)
        for value, now_ms in records(chance, samples * sample_ms, quota):
            lines.append(f"record {value} {now_ms}")
            rate.record(value, now_ms)
            bucket.take(value, quota, now_ms)
            expected.append((rate.per_second(now_ms), rate.window_ms(now_ms), bucket.tokens(quota, now_ms)))
    completed = run_java_tool(OLDEST_JUDGE, str(PROGRAM), [], stdin="\n".join(lines) + "\n", timeout_s=120)
    responses = [[float(word) for word in line.split()] for line in completed.stdout.splitlines()]
    assert len(responses) == len(expected), completed.stderr
    assert max(tokens for _, _, tokens in expected) > 0 > min(tokens for _, _, tokens in expected)
    for kafka, ours in zip(responses, expected, strict=True):
        assert ours == pytest.approx(kafka, rel=1e-9, abs=1e-9)


def records(chance: random.Random, whole_ms: int, quota: float) -> Iterator[tuple[float, int]]:
    """Values about the quota, some taken back, with pauses from none to longer than all samples."""
    now_ms = START_MS
    for _ in range(60):
        now_ms += chance.choice((0, 0, 1, chance.randrange(whole_ms // 8 + 1), chance.randrange(2 * whole_ms + 1)))
        value = chance.uniform(0, quota * whole_ms / 1000)
        yield (-value if chance.random() < 0.1 else value), now_ms

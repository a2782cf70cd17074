"""The arithmetic of quotas: rates over samples, token buckets and throttle times.

Kafka: org.apache.kafka.common.metrics.stats.Rate, SampledStat and TokenBucket, kafka.utils.QuotaUtils (2.8).

Pure: the caller passes the time.
"""

from __future__ import annotations

import math

THROTTLE_MS_MAX = (1 << 31) - 1
"""throttle_time_ms is an integer of 32 bits."""


class SampledRate:
    """A rate per second over the last `samples` samples of `sample_ms` each, the current one included.

    A sample starts with the first value after the one before has ended.  Time without values counts, and a rate is
    never taken over less than `samples` - 1 whole samples, so that the first values do not appear as a high rate.
    """

    __slots__ = ("_current", "_sample_ms", "_samples", "_shortest_ms", "_starts_ms", "_sums")

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._samples = samples
        self._sample_ms = sample_ms
        self._shortest_ms = (samples - 1) * sample_ms
        self._starts_ms: list[int] = []
        self._sums: list[float] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Adds a value; a negative one reverts an earlier one."""
        starts = self._starts_ms
        if not starts:
            starts.append(now_ms)
            self._sums.append(value)
        elif now_ms - starts[self._current] < self._sample_ms:
            self._sums[self._current] += value
        else:
            self._current = (self._current + 1) % self._samples
            if self._current == len(starts):
                starts.append(now_ms)
                self._sums.append(value)
            else:
                starts[self._current] = now_ms
                self._sums[self._current] = value

    def record_late(self, value: float) -> None:
        """Adds a value to the current sample, from the time before its end."""
        self._sums[self._current] += value

    @property
    def sample_end_ms(self) -> int:
        """The end of the current sample; there must have been a value."""
        return self._starts_ms[self._current] + self._sample_ms

    def room(self, limit: float) -> float:
        """What may be added until the end of the current sample before the rate can be above the limit.

        Negative if the rate may be above it already: the sums may include old samples.  The window is never shorter
        than `samples` - 1 samples.
        """
        return limit * self._shortest_ms / 1000 - sum(self._sums)

    def per_second(self, now_ms: int) -> float:
        """The current rate."""
        window_ms = self.window_ms(now_ms)
        # With one sample, the window has no length at its start.
        return sum(self._sums) / (window_ms / 1000) if window_ms else math.inf if any(self._sums) else 0.0

    def window_ms(self, now_ms: int) -> int:
        """The time over which the rate is taken."""
        starts = self._starts_ms
        if not starts:
            starts.append(now_ms)
            self._sums.append(0.0)
        oldest_ms = min(starts)
        if now_ms - oldest_ms >= self._samples * self._sample_ms:
            self._forget_old(now_ms)
            oldest_ms = min(starts)
        elapsed_ms = now_ms - oldest_ms
        missing = self._samples - 1 - elapsed_ms // self._sample_ms
        return elapsed_ms + missing * self._sample_ms if missing > 0 else elapsed_ms

    def _forget_old(self, now_ms: int) -> None:
        """Empties samples that have left the window.  They start again now, which `window_ms` counts, as in Kafka."""
        for index, start_ms in enumerate(self._starts_ms):
            if now_ms - start_ms >= self._samples * self._sample_ms:
                self._starts_ms[index] = now_ms
                self._sums[index] = 0.0


class TokenBucket:
    """Tokens that are added at the rate of the quota, up to `burst_s` seconds' worth of them.  KIP-599.

    It starts full, and may be overdrawn.  The quota is an argument, since it can change.
    """

    __slots__ = ("_burst_s", "_filled_ms", "_tokens")

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self._tokens = math.inf
        self._filled_ms = 0

    def take(self, tokens: float, quota: float, now_ms: int) -> None:
        """Takes tokens, also more than there are."""
        self._tokens = min(self._burst_s * quota, self.tokens(quota, now_ms) - tokens)

    def tokens(self, quota: float, now_ms: int) -> float:
        """The remaining tokens; negative if the bucket is overdrawn."""
        refilled = self._tokens + quota * (now_ms - self._filled_ms) / 1000
        self._tokens = min(self._burst_s * quota, refilled)
        self._filled_ms = now_ms
        return self._tokens


def rate_throttle_ms(rate: float, limit: float, window_ms: int) -> int:
    """The pause after which a rate above the limit falls to the limit; 0 for a rate up to the limit.

    If O is the rate over a window of W, and T the limit, the pause X follows from O * W / (W + X) = T, so
    X = (O - T) / T * W.  No pause brings a rate back to a limit of 0; clients then wait for one window at a time.
    """
    if rate <= limit:
        return 0
    if limit <= 0:
        return window_ms
    return _rounded((rate - limit) / limit * window_ms)


def bucket_throttle_ms(tokens: float, quota: float, *, most_ms: int) -> int:
    """The time until an overdrawn bucket is back at 0; `most_ms` with a quota of 0, which never refills the bucket."""
    if tokens >= 0:
        return 0
    return _rounded(-tokens / quota * 1000) if quota > 0 else most_ms


def _rounded(time_ms: float) -> int:
    """Math.round of Java, within the range of throttle_time_ms."""
    return int(min(math.floor(time_ms + 0.5), THROTTLE_MS_MAX)) if math.isfinite(time_ms) else THROTTLE_MS_MAX

"""The usage of the clients of one quota group, and their throttle times.

A rate is computed at the first value of a sample and near the limit.  Other values are only subtracted from `left`,
until nothing is left or the sample ends.

Pure: the caller passes the time.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from kctl.limits import QUOTA_NAME_CHARACTERS_MAX
from kctl.security.quotas import QuotaGroup
from kctl.server.requests.quotas.limits import Limit

# The arithmetic of quotas: rates over samples, token buckets and throttle times.
#
# Kafka: org.apache.kafka.common.metrics.stats.Rate, SampledStat and TokenBucket, kafka.utils.QuotaUtils (2.8).
#
# Pure: the caller passes the time.


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
        """Add a value; a negative one reverts an earlier one."""
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
        """Add a value to the current sample, from the time before its end."""
        self._sums[self._current] += value

    @property
    def sample_end_ms(self) -> int:
        """The end of the current sample; there must have been a value."""
        return self._starts_ms[self._current] + self._sample_ms

    def room(self, limit: float) -> float:
        """Return what may be added until the end of the current sample before the rate can be above the limit.

        Negative if the rate may be above it already: the sums may include old samples.  The window is never shorter
        than `samples` - 1 samples.
        """
        return limit * self._shortest_ms / 1000 - sum(self._sums)

    def per_second(self, now_ms: int) -> float:
        """Return the current rate."""
        window_ms = self.window_ms(now_ms)
        # With one sample, the window has no length at its start.
        return sum(self._sums) / (window_ms / 1000) if window_ms else math.inf if any(self._sums) else 0.0

    def window_ms(self, now_ms: int) -> int:
        """Return the time over which the rate is taken."""
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
        """Empty samples that have left the window.  They start again now, which `window_ms` counts, as in Kafka."""
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
        """Take tokens, also more than there are."""
        self._tokens = min(self._burst_s * quota, self.tokens(quota, now_ms) - tokens)

    def tokens(self, quota: float, now_ms: int) -> float:
        """Return the remaining tokens; negative if the bucket is overdrawn."""
        refilled = self._tokens + quota * (now_ms - self._filled_ms) / 1000
        self._tokens = min(self._burst_s * quota, refilled)
        self._filled_ms = now_ms
        return self._tokens


def rate_throttle_ms(rate: float, limit: float, window_ms: int) -> int:
    """Return the pause after which a rate above the limit falls to the limit; 0 for a rate up to the limit.

    If O is the rate over a window of W, and T the limit, the pause X follows from O * W / (W + X) = T, so
    X = (O - T) / T * W.  No pause brings a rate back to a limit of 0; clients then wait for one window at a time.
    """
    if rate <= limit:
        return 0
    if limit <= 0:
        return window_ms
    return _rounded((rate - limit) / limit * window_ms)


def bucket_throttle_ms(tokens: float, quota: float, *, most_ms: int) -> int:
    """Return the time until an overdrawn bucket is back at 0; `most_ms` with a quota of 0, which never refills the
    bucket.
    """
    if tokens >= 0:
        return 0
    return _rounded(-tokens / quota * 1000) if quota > 0 else most_ms


def _rounded(time_ms: float) -> int:
    """Math.round of Java, within the range of throttle_time_ms."""
    return int(min(math.floor(time_ms + 0.5), THROTTLE_MS_MAX)) if math.isfinite(time_ms) else THROTTLE_MS_MAX


PERCENT = 100.0
INACTIVE_MS = 3_600_000
"""The meter of a group without requests for this long is removed.  Kafka: InactiveSensorExpirationTimeSeconds."""
EXAMINED_MAX = 200
"""Groups that are examined to make room for another one."""


@dataclass(frozen=True, slots=True)
class QuotaWindows:
    """quota.window.num and quota.window.size.seconds, or those of the controller's quota."""

    samples: int
    sample_ms: int

    @property
    def whole_ms(self) -> int:
        """The length of all samples."""
        return self.samples * self.sample_ms


class MeterReading(NamedTuple):
    """The state of a meter, for metrics."""

    limit: float
    usage: float
    """The rate per second; for changes of topics the remaining tokens."""
    throttle_count: int
    """The number of throttled requests."""
    throttle_ms_total: int
    """The sum of their throttle times."""


class Meter(ABC):
    """The common part of all meters: the time of the last use, and counts of throttled requests."""

    __slots__ = ("examined_ms", "last_used_ms", "limit", "throttle_count", "throttle_ms_total")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.last_used_ms = 0
        self.examined_ms = 0
        """The last use when Meters.make_room last examined the meter."""
        self.throttle_count = 0
        self.throttle_ms_total = 0

    def change_limit(self, limit: float) -> None:
        """Set a new limit."""
        self.limit = limit

    def note_throttled(self, throttle_ms: int) -> None:
        """Count a request that was throttled because of this meter."""
        self.throttle_count += 1
        self.throttle_ms_total += throttle_ms

    @abstractmethod
    def usage(self, now_ms: int) -> float:
        """See MeterReading."""

    def reading(self, now_ms: int) -> MeterReading:
        """Return the state for metrics."""
        return MeterReading(self.limit, self.usage(now_ms), self.throttle_count, self.throttle_ms_total)


class RateMeter(Meter):
    """Bytes, or milliseconds of request time, per second.  `throttle_ms_max` bounds one throttle time."""

    __slots__ = ("_granted", "_rate", "_throttle_ms_max", "_windows", "exact_from_s", "left")

    def __init__(self, limit: float, windows: QuotaWindows, throttle_ms_max: int | None = None) -> None:
        super().__init__(limit)
        self._windows = windows
        self._rate = SampledRate(windows.samples, windows.sample_ms)
        self._throttle_ms_max = throttle_ms_max
        self._granted = -1.0
        """`left` after the last call of `record` or `add`."""
        self.left = -1.0
        """With further values of this sum the rate is surely not above the limit.  A request subtracts its own, see
        LimitedClient.take.
        """
        self.exact_from_s = 0.0
        """From this time on, in seconds, values have to be passed to `record`."""

    def change_limit(self, limit: float) -> None:
        """See Meter."""
        self._settle()
        self.limit = limit

    def record(self, value: float, now_ms: int) -> int:
        """Add a value and return the throttle time in ms, 0 within the limit."""
        self.add(value, now_ms)
        if self.left >= 0:
            return 0
        rate = self._rate.per_second(now_ms)
        if rate <= self.limit:
            return 0
        throttle_ms = rate_throttle_ms(rate, self.limit, self._rate.window_ms(now_ms))
        return throttle_ms if self._throttle_ms_max is None else min(throttle_ms, self._throttle_ms_max)

    def add(self, value: float, now_ms: int) -> None:
        """Add a value, which counts for the next request; a negative one reverts an earlier one."""
        self.last_used_ms = now_ms
        self._settle()
        self._rate.record(value, now_ms)
        self._granted = self.left = min(self._rate.room(self.limit), _GRANTED_MAX)
        self.exact_from_s = min(self._rate.sample_end_ms, now_ms + _ADDED_UP_MS_MAX) / 1000

    def _settle(self) -> None:
        """Record what was subtracted: the current sample had not ended then."""
        used, self._granted = self._granted - self.left, -1.0
        self.left = -1.0
        if used:
            self._rate.record_late(used)

    @property
    def value_max(self) -> float:
        """The largest single value that does not cause throttling if the windows contain no other."""
        return self.limit * (self._windows.samples - 1) * self._windows.sample_ms / 1000

    def usage(self, now_ms: int) -> float:
        """Return the rate per second over the windows."""
        self._settle()
        return self._rate.per_second(now_ms)


_GRANTED_MAX = float(1 << 40)
"""The largest sum that is granted: smaller values are subtracted from it without a loss of precision."""
_ADDED_UP_MS_MAX = 10_000
"""The longest time for which values are only added up: `last_used_ms` is that much too early at most."""


class BucketMeter(Meter):
    """Changes of topics, counted in partitions.  KIP-599."""

    __slots__ = ("_bucket", "_windows")

    def __init__(self, limit: float, windows: QuotaWindows) -> None:
        super().__init__(limit)
        self._windows = windows
        self._bucket = TokenBucket(windows.whole_ms / 1000)

    def throttle_ms(self, now_ms: int) -> int:
        """Return the time until the bucket is no longer overdrawn."""
        tokens = self._bucket.tokens(self.limit, now_ms)
        return bucket_throttle_ms(tokens, self.limit, most_ms=self._windows.whole_ms)

    def take(self, tokens: float, now_ms: int) -> None:
        """Take tokens, also more than there are."""
        self.last_used_ms = now_ms
        self._bucket.take(tokens, self.limit, now_ms)

    def usage(self, now_ms: int) -> float:
        """Return the tokens in the bucket; negative if it is overdrawn."""
        return self._bucket.tokens(self.limit, now_ms)


@dataclass(slots=True)
class LimitedClient:
    """The meters of one user and client id; None where no quota applies."""

    produce: RateMeter | None
    fetch: RateMeter | None
    request: RateMeter | None
    mutation: BucketMeter | None

    @property
    def has_limit(self) -> bool:
        """False if no quota applies."""
        return any(meter is not None for meter in (self.produce, self.fetch, self.request, self.mutation))

    def take(self, meter: RateMeter | None, size: float, since_s: float, now_s: float) -> bool:
        """Count what a request has used, if that is surely within the quotas; if not, nothing is counted.

        `meter` is that of bytes, and the request has taken the time since `since_s`.  One call without further ones,
        because almost all requests need no more.
        """
        request = self.request
        left = 0.0
        if request is not None:
            left = request.left - (now_s - since_s) * PERCENT
            if left < 0.0 or now_s >= request.exact_from_s:
                return False
        if meter is not None:
            bytes_left = meter.left - size
            if bytes_left < 0.0 or now_s >= meter.exact_from_s:
                return False
            meter.left = bytes_left
        if request is not None:
            request.left = left
        return True

    def fetch_bytes_max(self, max_bytes: int) -> int:
        """Return the limit of a fetch response: with more bytes it would always be throttled.

        Kafka: ClientQuotaManager.getMaxValueInQuotaWindow.
        """
        fetch = self.fetch
        return max_bytes if fetch is None or max_bytes <= fetch.left else int(min(max_bytes, fetch.value_max))

    def admits_fetch(self, size: int) -> bool:
        """Return whether a fetch response of about so many bytes is surely not throttled."""
        fetch, request = self.fetch, self.request
        return (fetch is None or fetch.left >= size) and (request is None or request.left >= 0.0)


class FoundClient:
    """What ClientQuotas has found for the latest request of a connection, whose clients rarely change their id."""

    __slots__ = ("client", "client_id", "version")

    def __init__(self) -> None:
        self.client: LimitedClient | None = None
        """None for a client without quotas."""
        self.client_id = ""
        self.version = -1
        """ClientQuotas.version then."""


M = TypeVar("M", bound=Meter)


class Meters(Generic[M]):
    """The meters of one kind of quota by group: at most `meters_max`; those that are not in use make room."""

    def __init__(self, create: Callable[[float], M], meters_max: int) -> None:
        self._create = create
        self._meters_max = meters_max
        self._by_group: OrderedDict[QuotaGroup, M] = OrderedDict()
        """In the order in which `make_room` examines them."""

    def __len__(self) -> int:
        return len(self._by_group)

    def make_room(self) -> int:
        """Make room for another group if there is none; return the number of removed groups.

        Examines EXAMINED_MAX groups, and removes those that were not used since they were added or last examined.  A
        search for the least recently used of all groups would take 20 ms, whenever clients use enough new ids.
        """
        if len(self._by_group) < self._meters_max:
            return 0
        removed = 0
        for _ in range(min(EXAMINED_MAX, len(self._by_group))):
            group, meter = self._by_group.popitem(last=False)
            if meter.last_used_ms > meter.examined_ms:
                meter.examined_ms = meter.last_used_ms
                self._by_group[group] = meter
            else:
                removed += 1
        if not removed:
            self._by_group.popitem(last=False)
        return removed or 1

    def meter(self, limit: Limit, now_ms: int) -> M:
        """Return the meter of the group to which a client belongs, with its current limit; `make_room` has been
        called.
        """
        key = _key(limit.group)
        meter = self._by_group.get(key)
        if meter is None:
            meter = self._by_group[key] = self._create(limit.value)
            meter.last_used_ms = meter.examined_ms = now_ms
        elif meter.limit != limit.value:
            meter.change_limit(limit.value)
        return meter

    def forget_inactive(self, now_ms: int) -> int:
        """Remove the meters that have not been used for INACTIVE_MS; return their number."""
        old = [group for group, meter in self._by_group.items() if now_ms - meter.last_used_ms >= INACTIVE_MS]
        for group in old:
            del self._by_group[group]
        return len(old)

    def readings(self, now_ms: int) -> Mapping[QuotaGroup, MeterReading]:
        """Return the state of all groups that are limited, for metrics."""
        return {group: meter.reading(now_ms) for group, meter in self._by_group.items()}


def _key(group: QuotaGroup) -> QuotaGroup:
    """Return the group with names of bounded length, since a client id may have 32 KB."""
    if len(group.user) + len(group.client_id) <= QUOTA_NAME_CHARACTERS_MAX:
        return group
    return QuotaGroup(_short(group.user), _short(group.client_id))


def _short(name: str) -> str:
    if len(name) <= QUOTA_NAME_CHARACTERS_MAX // 2:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: QUOTA_NAME_CHARACTERS_MAX // 2 - len(digest)]}{digest}"

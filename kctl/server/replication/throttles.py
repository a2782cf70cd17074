"""Replication throttles: rate limits for copying throttled replicas, on the leader and on the follower.  KIP-73.

A throttle is a rate of the broker ({leader,follower}.replication.throttled.rate) and, per topic, a list of replicas to
which it applies.  Bytes to or from those replicas are counted; while the rate over the window exceeds the limit,
throttled replicas that are not in sync wait, and all others continue.  A response is never truncated, so the rate holds
only on average over the window.  Kafka: ReplicationQuotaManager.

Owner: event loop.  Pure: the caller passes the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kctl.config.dynamic import ConfigView
from kctl.metrics.definitions import Durations
from kctl.model import TopicPartition

EVERY_PARTITION: frozenset[int] = frozenset({-1})


class SampledRate:
    """A rate per second over the latest samples.

    The sum of the samples divided by the time since the oldest one began, but at least one sample's length.  Kafka:
    SimpleRate.
    """

    __slots__ = ("_sample_ms", "_samples", "_window_ms")

    def __init__(self, samples_max: int, sample_ms: int) -> None:
        self._sample_ms = sample_ms
        self._window_ms = samples_max * sample_ms
        self._samples: deque[list[int]] = deque()
        """[start (ms), amount] of each sample, the oldest first."""

    def record(self, amount: int, now_ms: int) -> None:
        """Add an amount to the current sample."""
        if not self._samples or now_ms - self._samples[-1][0] >= self._sample_ms:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += amount
        self._forget_old(now_ms)

    def per_second(self, now_ms: int) -> float:
        """Return the rate per second at this time."""
        self._forget_old(now_ms)
        if not self._samples:
            return 0.0
        elapsed_ms = max(now_ms - self._samples[0][0], self._sample_ms)
        return sum(amount for _, amount in self._samples) * 1000 / elapsed_ms

    def _forget_old(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= self._window_ms:
            self._samples.popleft()


class ReplicationQuota:
    """A limit, the partitions to which it applies, and the rate used.

    `limit` returns the allowed bytes per second; `is_throttled` returns whether a partition is throttled.
    """

    def __init__(
        self, limit: Callable[[], int], is_throttled: Callable[[TopicPartition], bool], rate: SampledRate
    ) -> None:
        self._limit = limit
        self.is_throttled = is_throttled
        self._rate = rate

    def record(self, size: int, now_ms: int) -> None:
        """Count bytes of throttled partitions that were copied."""
        self._rate.record(size, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        """Return whether throttled replicas that are not in sync have to wait."""
        return self._rate.per_second(now_ms) > self._limit()


class ReplicationThrottles:
    """The quotas of one broker, following its configuration and that of the topics."""

    def __init__(self, broker_id: int, configs: ConfigView) -> None:
        self._broker_id = broker_id
        self._configs = configs
        self._lists: dict[tuple[str, bool], frozenset[int]] = {}
        configs.subscribe(self._lists.clear)
        self.leader = self._quota("leader.replication.throttled.rate", is_leader=True)
        self.follower = self._quota("follower.replication.throttled.rate", is_leader=False)

    def _quota(self, rate_property: str, *, is_leader: bool) -> ReplicationQuota:
        config = self._configs.current
        return ReplicationQuota(
            lambda: self._configs.dynamic_only(rate_property),
            lambda topic_partition: self._is_listed(topic_partition, is_leader=is_leader),
            SampledRate(config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000),
        )

    def _is_listed(self, topic_partition: TopicPartition, *, is_leader: bool) -> bool:
        topic, partition = topic_partition
        listed = self._lists.get((topic, is_leader))
        if listed is None:
            config = self._configs.topic(topic)
            replicas = (
                config.leader_replication_throttled_replicas
                if is_leader
                else config.follower_replication_throttled_replicas
            )
            listed = self._lists[topic, is_leader] = throttled_partitions(replicas, self._broker_id)
        return partition in listed or listed is EVERY_PARTITION


def throttled_partitions(replicas: tuple[str, ...], broker_id: int) -> frozenset[int]:
    """Return the partitions whose replica on this broker is in a list of "partition:broker"; EVERY_PARTITION for
    "*".
    """
    if replicas == ("*",):
        return EVERY_PARTITION
    pairs = (replica.split(":") for replica in replicas if replica)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)


# Counts the records and bytes that clients and followers write to and read from topics. Kafka: BrokerTopicStats.
#
# Owner: event loop. Pure.


@dataclass(slots=True)
class TopicTraffic:
    """Counters since the start, of one topic or of several."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    """Bytes sent to consumers."""
    bytes_rejected: int = 0
    """Bytes of batches above max.message.bytes."""
    produce_requests: int = 0
    fetch_requests: int = 0
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0
    produce_conversions: int = 0
    """Batches stored in another message format than that of the request."""
    fetch_conversions: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    reassignment_bytes_in: int = 0
    """The part of the replicated bytes that a replica added by a reassignment receives."""
    reassignment_bytes_out: int = 0
    invalid_magic_numbers: int = 0
    invalid_checksums: int = 0
    invalid_sequences: int = 0
    keyless_in_compacted: int = 0

    def add(self, other: TopicTraffic) -> None:
        """Add the counters of another topic."""
        for name in TopicTraffic.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class BrokerTraffic:
    """The counters of all topics with a replica on this broker."""

    topics: dict[str, TopicTraffic] = field(default_factory=dict)
    others: TopicTraffic = field(default_factory=TopicTraffic)
    """Counts of requests for unknown topics, and the counts of topics that no longer have a replica here."""
    produce_conversion_times: Durations = field(default_factory=Durations)
    """Time of converting batches of a Produce request to the format in which they are stored."""
    fetch_conversion_times: Durations = field(default_factory=Durations)
    """Time of converting the batches that a Fetch request reads to an older format."""

    def of(self, topic: str) -> TopicTraffic:
        """Return the counters of a topic, new ones for a new topic; only for topics with a replica here."""
        return self.topics.setdefault(topic, TopicTraffic())

    def found(self, topic: str) -> TopicTraffic:
        """Return the counters of a topic that a client has named: `others` if it has no replica here."""
        return self.topics.get(topic, self.others)

    def drop(self, topics: Iterable[str]) -> None:
        """Remove the counters of topics without a replica here; they remain in the total."""
        for topic in topics:
            counters = self.topics.pop(topic, None)
            if counters is not None:
                self.others.add(counters)

    def total(self) -> TopicTraffic:
        """Return the counters of all topics together."""
        total = TopicTraffic()
        total.add(self.others)
        for traffic in self.topics.values():
            total.add(traffic)
        return total

"""Replication throttles: counted bytes, time windows and replica lists."""

from __future__ import annotations

import pytest

from kctl.config.dynamic import ConfigView
from kctl.model import TopicPartition
from kctl.server.replication.throttles import (
    EVERY_PARTITION,
    ReplicationThrottles,
    SampledRate,
    throttled_partitions,
)

BROKER = 1
MOVED = TopicPartition("moved", 0)


def throttles(rate: int, *, window: int = 11) -> ReplicationThrottles:
    configs = ConfigView({"replication.quota.window.num": str(window)})
    configs.set_dynamic_broker({"leader.replication.throttled.rate": str(rate)})
    configs.set_topic("moved", {"leader.replication.throttled.replicas": "0:1,1:2"})
    return ReplicationThrottles(BROKER, configs)


def test_a_rate_is_the_bytes_over_the_time_since_the_oldest_sample() -> None:
    rate = SampledRate(11, 1000)
    rate.record(3000, now_ms=0)
    rate.record(1000, now_ms=1500)
    assert rate.per_second(2000) == 2000


def test_a_rate_is_taken_over_one_sample_at_least() -> None:
    rate = SampledRate(11, 1000)
    rate.record(500, now_ms=100)
    assert rate.per_second(101) == 500


def test_a_rate_drops_samples_older_than_the_window() -> None:
    rate = SampledRate(3, 1000)
    rate.record(9000, now_ms=0)
    rate.record(1000, now_ms=2000)
    assert rate.per_second(2999) == pytest.approx(10_000 / 2.999)
    assert rate.per_second(3000) == 1000
    assert rate.per_second(5000) == 0


def test_a_sample_collects_the_bytes_of_its_interval() -> None:
    rate = SampledRate(2, 1000)
    rate.record(1, now_ms=0)
    rate.record(1, now_ms=999)  # the same sample, which expires as a whole
    assert rate.per_second(2000) == 0


@pytest.mark.parametrize("limit", [1_000, 50_000])
def test_copying_whenever_allowed_stays_at_the_limit_on_average(limit: int) -> None:
    """Ten minutes of virtual time: responses of 1 MiB each, requested every 10 ms while the quota allows it."""
    quota = throttles(limit).leader
    response, copied = 1 << 20, 0
    for now_ms in range(0, 600_000, 10):
        if not quota.is_exceeded(now_ms):
            quota.record(response, now_ms)
            copied += response
    # A window never exceeds its quota by more than one response.
    assert copied / 600 <= limit + response / 11


def test_no_quota_is_exceeded_without_a_rate() -> None:
    configs = ConfigView({})
    quota = ReplicationThrottles(BROKER, configs).leader
    quota.record(1 << 40, now_ms=0)
    assert not quota.is_exceeded(0)


def test_a_rate_of_zero_blocks_after_the_first_bytes() -> None:
    quota = throttles(0).leader
    assert not quota.is_exceeded(0)
    quota.record(1, now_ms=0)
    assert quota.is_exceeded(0)


def test_the_limit_follows_the_configuration() -> None:
    configs = ConfigView({})
    quota = ReplicationThrottles(BROKER, configs).follower
    quota.record(5000, now_ms=0)
    configs.set_dynamic_default({"follower.replication.throttled.rate": "1000"})
    assert quota.is_exceeded(0)
    configs.set_dynamic_broker(
        {"follower.replication.throttled.rate": "9000"}
    )  # the value of this broker takes precedence
    assert not quota.is_exceeded(0)
    configs.set_dynamic_broker({})
    configs.set_dynamic_default({})
    assert not quota.is_exceeded(0)


def test_leader_and_follower_count_apart() -> None:
    both = throttles(1000)
    both.leader.record(5000, now_ms=0)
    assert both.leader.is_exceeded(0)
    assert not both.follower.is_exceeded(0)


def test_only_the_listed_replicas_of_this_broker_are_throttled() -> None:
    both = throttles(1000)
    assert both.leader.is_throttled(MOVED)
    assert not both.leader.is_throttled(TopicPartition("moved", 1))  # the list of broker 2
    assert not both.leader.is_throttled(TopicPartition("other", 0))
    assert not both.follower.is_throttled(MOVED)  # another list


def test_the_list_follows_the_configuration() -> None:
    configs = ConfigView({})
    quota = ReplicationThrottles(BROKER, configs).follower
    assert not quota.is_throttled(MOVED)
    configs.set_topic("moved", {"follower.replication.throttled.replicas": "*"})
    assert quota.is_throttled(MOVED)
    configs.set_topic("moved", {})
    assert not quota.is_throttled(MOVED)


def test_a_star_means_every_partition() -> None:
    assert throttled_partitions(("*",), BROKER) is EVERY_PARTITION
    assert throttled_partitions((), BROKER) == frozenset()
    assert throttled_partitions(("",), BROKER) == frozenset()
    assert throttled_partitions(("3:1", "4:1", "5:10"), BROKER) == {3, 4}

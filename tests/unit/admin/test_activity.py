"""What `kctl top` computes from two samples of a cluster."""

from __future__ import annotations

import math
from dataclasses import replace
from uuid import UUID

from kctl.admin.cluster.metrics import Sample
from kctl.admin.placement.reassignment import Ongoing
from kctl.admin.sampling.activity import MOVING, OFFLINE, OK, UNDER_REPLICATED, Activity, activity
from kctl.admin.sampling.sample import BrokerReading, ClusterSample, GroupReading, loop_lag_p99_ms, rate, reading_of
from kctl.client.metadata import Broker, ClusterMetadata, Partition, Topic
from kctl.errors import ErrorCode
from kctl.lag.facts import Unread
from kctl.model import TopicPartition

ORDERS = TopicPartition("orders", 0)


def metadata(*partitions: Partition, brokers: tuple[int, ...] = (1, 2, 3), cluster_id: str = "c") -> ClusterMetadata:
    topic = Topic("orders", UUID(int=1), is_internal=False, partitions=partitions, error=ErrorCode.NONE)
    alive = {node: Broker(node, f"host{node}", 9092) for node in brokers}
    return ClusterMetadata(cluster_id, 1, alive, {"orders": topic} if partitions else {})


def partition(
    number: int = 0, *, leader: int = 1, replicas: tuple[int, ...] = (1, 2), isr: tuple[int, ...] = (1, 2)
) -> Partition:
    return Partition(number, leader, 5, replicas, isr, (), ErrorCode.NONE)


def status(one: Partition, ongoing: Ongoing | None = None) -> str:
    moves = {} if ongoing is None else {ORDERS: ongoing}
    return activity(None, ClusterSample(1, metadata(one), ongoing=moves)).partitions[0].status


def test_rates_are_differences_of_offsets_over_the_elapsed_time() -> None:
    old = ClusterSample(1_000, metadata(partition()), ends={ORDERS: 100}, sizes={(1, ORDERS): 5_000})
    new = ClusterSample(3_000, metadata(partition()), ends={ORDERS: 300}, sizes={(1, ORDERS): 4_000, (2, ORDERS): 9})
    seen = activity(old, new)
    assert seen.elapsed_ms == 2_000
    assert seen.partitions[0].records_per_s == 100
    assert [broker.records_per_s for broker in seen.brokers] == [100, 0, 0]
    [topic] = seen.topics
    assert (topic.records_per_s, topic.size_bytes, topic.growth_bytes_per_s) == (100, 4_000, -500)


def test_a_first_sample_has_no_rates() -> None:
    seen = activity(None, ClusterSample(1, metadata(partition()), ends={ORDERS: 3}))
    assert seen.elapsed_ms is None
    assert seen.partitions[0].records_per_s is None
    assert {broker.records_per_s for broker in seen.brokers} == {None}


def test_samples_of_different_clusters_are_not_compared() -> None:
    old = ClusterSample(1, metadata(partition(), cluster_id="other"), ends={ORDERS: 1})
    assert activity(old, ClusterSample(2, metadata(partition()), ends={ORDERS: 9})).elapsed_ms is None


def test_an_offset_that_went_back_has_no_rate() -> None:
    old = ClusterSample(1_000, metadata(partition()), ends={ORDERS: 100})
    new = ClusterSample(2_000, metadata(partition()), ends={ORDERS: 10})
    assert activity(old, new).partitions[0].records_per_s is None


def test_partition_status_follows_from_leader_and_isr() -> None:
    assert status(partition()) == OK
    assert status(partition(isr=(1,))) == UNDER_REPLICATED
    assert status(partition(leader=-1)) == OFFLINE
    assert status(partition(leader=9)) == OFFLINE


def test_a_replica_that_is_being_added_does_not_make_a_partition_under_replicated() -> None:
    moved = partition(replicas=(3, 1, 2))
    assert status(moved, Ongoing((3, 1, 2), adding=(3,), removing=(1,))) == MOVING
    assert status(moved) == UNDER_REPLICATED


def test_progress_of_a_move_is_the_share_of_the_leaders_bytes() -> None:
    sample = ClusterSample(
        1,
        metadata(partition(replicas=(3, 1, 2))),
        sizes={(1, ORDERS): 1_000, (3, ORDERS): 250},
        ongoing={ORDERS: Ongoing((3, 1, 2), adding=(3,), removing=(1,))},
    )
    assert activity(None, sample).partitions[0].copied_percent == 25


def test_free_space_is_known_of_brokers_that_report_it() -> None:
    sample = ClusterSample(1, metadata(partition()), offline_directories={1: 0, 2: 0}, usable_bytes={2: 7_000})
    free = {broker.broker: broker.disk_free_bytes for broker in activity(None, sample).brokers}
    assert (free[1], free[2]) == (None, 7_000)


def group_activity(old_commit: int, new_commit: int, old_end: int, new_end: int) -> Activity:
    samples = [
        ClusterSample(
            at, metadata(partition()), ends={ORDERS: end}, groups={"g": GroupReading("Stable", 1, {ORDERS: c})}
        )
        for at, end, c in ((0, old_end, old_commit), (1_000, new_end, new_commit))
    ]
    return activity(samples[0], samples[1])


def test_lag_of_a_group_and_how_fast_it_grows() -> None:
    [group] = group_activity(10, 30, 100, 200).groups
    assert (group.lag, group.lag_per_s, group.consumed_per_s) == (170, 80, 20)
    [group] = group_activity(10, 100, 100, 100).groups
    assert (group.lag, group.lag_per_s, group.consumed_per_s) == (0, -90, 90)


def test_a_commit_beyond_the_end_has_no_lag_as_in_the_lag_of_groups() -> None:
    [group] = group_activity(100, 100, 50, 50).groups
    assert group.lag is None


def test_deleted_records_are_no_lag_as_in_the_lag_of_groups() -> None:
    groups = {"g": GroupReading("Empty", 0, {ORDERS: 10})}
    first = ClusterSample(0, metadata(partition()), ends={ORDERS: 100}, groups=groups)
    later = replace(first, at_ms=1000, starts={ORDERS: 40})
    found = activity(first, later)
    assert [(group.lag, group.lag_per_s) for group in found.groups] == [(60, 0)]
    assert [offset.lag for offset in found.group_offsets] == [60]
    [emptied] = activity(later, replace(later, starts={ORDERS: 100})).groups
    assert emptied.lag == 0


def test_offsets_of_transaction_markers_are_no_lag_as_in_the_lag_of_groups() -> None:
    groups = {"g": GroupReading("Empty", 0, {ORDERS: 10})}
    first = ClusterSample(0, metadata(partition()), ends={ORDERS: 22}, groups=groups)
    later = replace(first, at_ms=1000, starts={ORDERS: 0}, unread={(ORDERS, 10): Unread(None, 0)})
    found = activity(first, later)
    assert [(group.lag, group.lag_per_s) for group in found.groups] == [(0, 0)]
    assert [offset.lag for offset in found.group_offsets] == [0]
    [unknown] = activity(first, replace(later, unread={(ORDERS, 10): Unread(1, None)})).groups
    assert unknown.lag == 12


def test_partitions_that_a_member_reads_count_before_it_has_committed() -> None:
    group = GroupReading("Stable", 1, {}, {ORDERS: ("app", "/10.0.0.9")})
    [found] = activity(None, ClusterSample(1, metadata(partition()), groups={"g": group})).groups
    assert (found.partitions, found.lag) == (1, None)


def test_a_verdict_is_filled_in_by_a_function() -> None:
    sample = ClusterSample(1, metadata(), groups={"g": GroupReading("Empty", 0, {})})
    [group] = activity(None, sample, lambda name: f"judged {name}").groups
    assert group.verdict == "judged g"


def test_metrics_are_read_in_every_naming() -> None:
    requests = "kafka_network_requestmetrics_requests"
    for suffix in ("_total", "persec", "persec_total"):
        reading = reading_of([
            Sample(f"kafka_server_brokertopicmetrics_bytesin{suffix}", {}, 70.0),
            Sample(f"kafka_server_brokertopicmetrics_bytesin{suffix}", {"topic": "a"}, 30.0),
            Sample(requests + suffix, {"request": "Fetch", "version": "11"}, 5.0),
            Sample(requests + suffix, {"request": "FetchConsumer", "version": "11"}, 5.0),
            Sample(requests + suffix, {"request": "Produce", "version": "7"}, 2.0),
        ])  # fmt: skip
        assert (reading.bytes_in, reading.bytes_out, reading.requests) == (70, None, 7)


def test_a_broker_without_metrics_has_no_values() -> None:
    assert reading_of([]) == BrokerReading()
    assert rate(None, 5, 1000) is None
    assert loop_lag_p99_ms(BrokerReading(), BrokerReading()) is None


def test_loop_lag_is_that_of_the_time_between_two_scrapes() -> None:
    old = BrokerReading(loop_buckets={0.001: 0, 1.0: 500, float("inf"): 500})
    new = BrokerReading(loop_buckets={0.001: 100, 1.0: 600, float("inf"): 600})
    assert loop_lag_p99_ms(old, new) == 1
    assert loop_lag_p99_ms(new, old) is None
    longer = BrokerReading(loop_buckets={0.001: 100, 1.0: 600, float("inf"): 700})
    assert loop_lag_p99_ms(new, longer) == 1000


def test_values_that_are_no_numbers_are_unknown() -> None:
    times = "kafka_network_requestmetrics_totaltimems"
    reading = reading_of([Sample(times, {"request": "Produce", "quantile": "0.99"}, math.nan)])
    assert reading == BrokerReading()

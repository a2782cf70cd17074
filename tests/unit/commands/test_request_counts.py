"""The number of requests of lists and descriptions does not grow with topics, partitions and records; benchmarks/
large_cluster.py measures the time of the same commands.
"""

from __future__ import annotations

from collections import Counter

import pytest

from kctl.model import TopicPartition
from kctl.protocol.apis.metadata import MetadataRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl

LINES = [
    "topics list",
    "topics list --topics-with-overrides",
    "topics describe",
    "topics describe --under-replicated-partitions",
    "topics describe wide",
    "groups list",
    "groups describe --all",
    "groups describe --all --show state",
    "groups describe wide",
    "groups members --all",
    "groups lag",
    "groups lag wide --by partition",
    "groups export --all",
    "transactions describe-producers wide",
    "transactions list",
    "transactions find-hanging",
    "topics offsets wide",
    "topics offsets --topic-regex .*",
    "cluster describe",
    "cluster health",
    "configs describe topic",
    "plan --export",
]
SMALL, LARGE = 3, 40
BEFORE_KAFKA_3 = {9: (0, 7), 10: (0, 3)}
"""OffsetFetch and FindCoordinator for a single group."""
OF_EACH_GROUP = {"OffsetFetchRequest", "FindCoordinatorRequest"}
"""Before Kafka 3.0 they are sent without waiting for each other."""


def fill(cluster: FakeCluster, number: int) -> None:
    """So many topics, and as many groups that have read one of them; a topic of so many partitions and its group."""
    wide = cluster.create("wide", leaders=number)
    for index in range(number):
        (partition,) = cluster.create(f"topic-{index}", leaders=[index % 2])
        partition.append(build_batch([Record(0, 0, None, b"x")]))
        wide[index].append(build_batch([Record(0, 0, None, b"x")]))
        cluster.groups[f"group-{index}"] = FakeGroup({TopicPartition(f"topic-{index}", 0): 0})
    cluster.groups["wide"] = FakeGroup({TopicPartition("wide", number): 0 for number in range(number)})


def requests_of(kctl: Kctl, cluster: FakeCluster, line: str) -> Counter[str]:
    cluster.requests.clear()
    ran = kctl(f"{line} --quiet")
    assert ran.status in {0, 3}, ran.err
    return Counter(type(request).__name__ for _, request in cluster.requests)


@pytest.mark.parametrize("line", LINES)
def test_requests_do_not_grow_with_the_cluster(kctl: Kctl, cluster: FakeCluster, line: str) -> None:
    fill(cluster, SMALL)
    few = requests_of(kctl, cluster, line)
    fill(cluster, LARGE)
    many = requests_of(kctl, cluster, line)
    assert not many - few, (few, many)


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("groups")])
def test_before_kafka_3_there_is_a_request_for_each_group(kctl: Kctl, cluster: FakeCluster, line: str) -> None:
    fill(cluster, LARGE)
    new, shown = requests_of(kctl, cluster, line), kctl(f"{line} --quiet").out
    cluster.versions.update(BEFORE_KAFKA_3)
    old = requests_of(kctl, cluster, line)
    assert {name for name in old | new if old[name] != new[name]} <= OF_EACH_GROUP, (old, new)
    assert old["OffsetFetchRequest"] in {0, 1, len(cluster.groups)}
    if "describe" in line or "members" in line:  # the others show times
        assert kctl(f"{line} --quiet").out == shown


def test_many_groups_are_described_in_pieces(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster, 250)
    assert len(kctl(f"groups describe {' '.join(cluster.groups)} --show offsets --quiet").rows) == 500
    requests = Counter(type(request).__name__ for _, request in cluster.requests)
    assert (requests["FindCoordinatorRequest"], requests["OffsetFetchRequest"]) == (1, 3)


@pytest.mark.parametrize("line", LINES)
def test_dead_broker_adds_no_requests_to_the_others(
    kctl: Kctl, cluster: FakeCluster, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two brokers is dead and still in the metadata; the other leads all partitions."""
    fill(cluster, LARGE)
    for partition in (partition for partitions in cluster.topics.values() for partition in partitions):
        partition.leader = 1
    monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", f"127.0.0.1:{cluster.ports[1]}")
    alive = requests_of(kctl, cluster, line)
    cluster.kill(0)
    cluster.requests.clear()
    assert kctl(f"{line} --quiet").status in {0, 1, 3, 4}
    dead = Counter(type(request).__name__ for _, request in cluster.requests)
    assert sum(dead.values()) <= sum(alive.values()) + 2, (alive, dead)


def test_offsets_in_top_are_requested_by_the_metadata_of_the_sample(kctl: Kctl, cluster: FakeCluster) -> None:
    fill(cluster, LARGE)
    ran = kctl("top --once --interval 200ms --no-metrics --format json")
    assert ran.status == 0, ran.err
    requested = [request.topics for _, request in cluster.requested(MetadataRequest)]
    large = [topics for topics in requested if topics is None or len(topics) > 1]
    assert len(large) == 3  # one per sample, and one when retention is read

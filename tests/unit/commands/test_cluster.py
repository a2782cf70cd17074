"""kctl cluster, and the filters of kctl topics describe."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.config.broker import SINGLE_BROKER_PROPERTIES
from kctl.errors import ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.protocol.apis.describe_configs import DescribeConfigsRequest
from kctl.protocol.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kctl.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kctl.server.process.dev_cluster import Layout, defaults_for, settle
from tests.unit.admin.moving_cluster import TOPIC, MovingCluster
from tests.unit.commands.conftest import Kctl

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MovingCluster]:
    with MovingCluster() as started:
        started.place("orders", [0, 1], [1, 2])
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        yield started


def test_healthy_cluster_is_status_0_and_no_rows(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("cluster health")
    assert (ran.status, ran.out) == (ExitStatus.DONE, "")
    document = kctl("cluster health --format json").document
    assert (document["healthy"], document["brokers"], document["partitions"]) == (True, 3, 2)


def test_health_warns_of_topics_that_the_user_may_not_describe(kctl: Kctl, cluster: MovingCluster) -> None:
    refused = ListPartitionReassignmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[])
    cluster.intercept(ListPartitionReassignmentsRequest, lambda _: refused)
    ran = kctl("cluster health")
    assert ran.status == 0
    assert "no permission to describe the cluster" in ran.err


def test_broker_that_shows_no_log_directories_is_an_error(kctl: Kctl, cluster: MovingCluster) -> None:
    """Brokers before DescribeLogDirs 3 return nothing to a user without the permission."""
    cluster.intercept(DescribeLogDirsRequest, lambda _: DescribeLogDirsResponse(error_code=0, results=[]))
    ran = kctl("cluster log-dirs --format json")
    assert ran.status == 1
    assert {row["error"] for row in ran.document} == {"CLUSTER_AUTHORIZATION_FAILED"}


def test_log_directories_of_a_topic_that_does_not_exist_are_an_error(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("cluster log-dirs --topic ordres")
    assert (ran.status, ran.out) == (1, "")
    assert "UNKNOWN_TOPIC_OR_PARTITION: topic 'ordres'" in ran.err


def test_unhealthy_cluster_is_status_3_and_reasons(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.away = {0}
    cluster.isr[ZERO] = [1]
    cluster.leaders[ZERO] = 1
    cluster.overrides[TOPIC, "orders"] = {"min.insync.replicas": "2"}
    ran = kctl("cluster health")
    assert ran.status == ExitStatus.UNMET
    assert [row[:4] for row in ran.rows] == [
        ["broker missing", "0", "-", "-"],
        ["under min ISR", "-", "orders", "0"],
        ["under-replicated", "-", "orders", "0"],
    ]


@pytest.mark.long
def test_health_waits_for_better_times(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.controller = 9
    assert kctl("cluster health --wait 1ms").status == ExitStatus.UNMET

    def recover(_request: object) -> None:
        cluster.controller = 0

    cluster.intercept(DescribeConfigsRequest, recover)
    assert kctl("cluster health --wait 20s").status == ExitStatus.DONE


def test_health_of_no_cluster_at_all_is_status_4(kctl: Kctl) -> None:
    assert kctl("cluster health --bootstrap-server 127.0.0.1:1").status == ExitStatus.UNREACHABLE


def test_topics_describe_filters_by_problem(kctl: Kctl, cluster: MovingCluster) -> None:
    line = "topics describe --under-replicated-partitions --unavailable-partitions --under-min-isr-partitions"
    ran = kctl(line)
    assert (ran.status, ran.out) == (ExitStatus.DONE, "")
    cluster.isr[ONE] = [1]
    cluster.leaders[ZERO] = -1
    ran = kctl(line)
    assert (ran.status, [row[1] for row in ran.rows]) == (ExitStatus.UNMET, ["0", "1"])
    assert [row[1] for row in kctl("topics describe --under-replicated-partitions").rows] == ["1"]
    assert [row[1] for row in kctl("topics describe --unavailable-partitions orders").rows] == ["0"]
    cluster.overrides[TOPIC, "orders"] = {"min.insync.replicas": "2"}
    (item,) = kctl("topics describe --under-min-isr-partitions --format json").document
    assert [partition["partition"] for partition in item["partitions"]] == [0, 1]
    assert item["partition_count"] == 2
    assert kctl("topics describe --under-replicated-partitions nope").status == ExitStatus.FAILED


def test_first_start_takes_three_brokers_from_the_usual_port_on() -> None:
    layout = settle(None, brokers=None, port=None, zookeeper=None, overrides=None)
    assert (layout.ports, layout.zookeeper) == ((9092, 9093, 9094), None)
    assert settle(None, brokers=2, port=0, zookeeper="zk:2181", overrides=None).ports == (0, 0)


def test_next_start_takes_up_what_was_there() -> None:
    before = Layout((19092, 19093), None, 2181, {"num.partitions": "3"})
    assert settle(before, brokers=None, port=None, zookeeper=None, overrides=None) == before
    more = settle(before, brokers=3, port=19092, zookeeper=None, overrides={"num.partitions": "4"})
    assert (more.ports, more.overrides, more.zookeeper_port) == ((19092, 19093, 19094), {"num.partitions": "4"}, 2181)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"brokers": 1}, "the cluster has 2 brokers"),
        ({"brokers": 0}, "at least 1"),
        ({"port": 9092}, "the ports from 19092"),
        ({"zookeeper": "zk:2181"}, "its own ZooKeeper"),
        ({"overrides": {"broker.id": "1"}}, r"-o broker\.id"),
    ],
)
def test_what_cannot_change_is_refused(change: dict[str, object], why: str) -> None:
    expected: dict[str, object] = {"brokers": None, "port": None, "zookeeper": None, "overrides": None}
    with pytest.raises(UsageError, match=why):
        settle(Layout((19092, 19093), None, 2181), **{**expected, **change})  # type: ignore[arg-type]


def test_brokers_have_what_makes_them_different_and_what_suits_so_many() -> None:
    layout = Layout((9092, 9093, 9094), None, 2181, {"offsets.topic.replication.factor": "2"})
    properties = layout.properties_of(1)
    assert (properties["broker.id"], properties["listeners"]) == ("1", "PLAINTEXT://127.0.0.1:9093")
    assert properties["zookeeper.connect"] == "127.0.0.1:2181"
    assert properties["offsets.topic.replication.factor"] == "2"
    assert properties["default.replication.factor"] == "3"
    assert defaults_for(1)["default.replication.factor"] == "1"


def test_groups_wait_for_their_members_in_a_cluster_longer_than_beside_a_lone_broker() -> None:
    delay = "group.initial.rebalance.delay.ms"
    for brokers in (1, 3):
        assert int(defaults_for(brokers)[delay]) > int(SINGLE_BROKER_PROPERTIES[delay]) > 0


def test_folder_without_a_cluster_is_reported(kctl: Kctl, tmp_path: Path) -> None:
    for verb in ("status", "stop"):
        ran = kctl(f"cluster {verb} --data-dir {tmp_path}")
        assert (ran.status, "there is no cluster in" in ran.err) == (ExitStatus.FAILED, True)

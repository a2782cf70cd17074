"""kctl transactions, kctl producers."""

from __future__ import annotations

import time

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.protocol.apis.describe_producers import ProducerState
from kctl.protocol.apis.describe_transactions import TopicData, TransactionState
from kctl.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl


@pytest.fixture
def cluster(cluster: FakeCluster) -> FakeCluster:
    """Producer 7 hangs in orders-1 at offset 5; the coordinator has the transaction of producer 8 in orders-0."""
    long_ago = round(time.time() * 1000) - 3_600_000
    first, second = cluster.create("orders", leaders=2)
    first.producers = [producer(8, long_ago, 3), producer(9, long_ago, -1)]
    second.producers = [producer(7, long_ago, 5)]
    cluster.transactions["tx"] = TransactionState(
        error_code=0,
        transactional_id="tx",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=long_ago,
        producer_id=8,
        producer_epoch=2,
        topics=[TopicData(topic="orders", partitions=[0])],
    )
    return cluster


def producer(producer_id: int, timestamp_ms: int, start_offset: int) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=2,
        last_sequence=0,
        last_timestamp=timestamp_ms,
        coordinator_epoch=-1,
        current_txn_start_offset=start_offset,
    )


@pytest.mark.usefixtures("cluster")
def test_transactions_are_listed_and_described(kctl: Kctl) -> None:
    assert kctl("transactions list").rows == [["tx", "1", "8", "Ongoing", "-", "-"]]
    assert kctl("transactions list --state Empty --format json").document == []
    assert kctl("transactions list --producer-id 9").rows == []
    (item,) = kctl("transactions describe tx --format json").document
    assert (item["state"], item["partitions"]) == ("Ongoing", [{"topic": "orders", "partitions": [0]}])
    assert item["duration_ms"] >= 3_600_000
    ran = kctl("transactions describe nope tx")
    assert ran.status == ExitStatus.FAILED
    assert [row[-2] for row in ran.rows] == ["TRANSACTIONAL_ID_NOT_FOUND", "-"]


def test_producers_are_sorted_by_id(cluster: FakeCluster, kctl: Kctl) -> None:
    """The order of the response is that of a hash table."""
    cluster.topics["orders"][0].producers.reverse()
    assert [row[2] for row in kctl("transactions describe-producers orders --partition 0").rows] == ["8", "9"]


@pytest.mark.usefixtures("cluster")
def test_producers_are_described_by_partition(kctl: Kctl) -> None:
    ran = kctl("transactions describe-producers orders")
    assert [row[:3] + row[7:9] for row in ran.rows] == [
        ["orders", "0", "8", "3", "-"],
        ["orders", "0", "9", "-", "-"],
        ["orders", "1", "7", "5", "-"],
    ]
    assert [row[2] for row in kctl("transactions describe-producers orders --open --partition 0").rows] == ["8"]
    assert kctl("transactions describe-producers gone").rows[0][-2] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert (
        kctl("transactions describe-producers orders --partition 0 --broker 1").rows[0][-2] == "NOT_LEADER_OR_FOLLOWER"
    )
    assert kctl("transactions describe-producers orders --broker 9").rows[0][-2] == "BROKER_NOT_AVAILABLE"


def test_what_hangs_is_found(kctl: Kctl, cluster: FakeCluster) -> None:
    ran = kctl("transactions find-hanging")
    assert ran.status == ExitStatus.UNMET
    assert [row[:6] for row in ran.rows] == [["orders", "1", "7", "2", "-", "5"]]
    assert "kctl transactions abort orders:1 --start-offset 5" in ran.err
    assert kctl("transactions find-hanging --idle 2h").status == 0
    assert kctl("transactions find-hanging --topic orders:0").status == 0
    cluster.versions[66] = (0, -1)
    ran = kctl("transactions find-hanging")
    assert (ran.status, {row[-2] for row in ran.rows}) == (ExitStatus.FAILED, {"UNSUPPORTED_VERSION"})


def test_abort_aborts_a_hanging_transaction(kctl: Kctl, cluster: FakeCluster) -> None:
    line = "transactions abort orders:1 --start-offset 5"
    assert kctl(line).status == ExitStatus.REFUSED
    assert kctl(f"{line} --dry-run").rows[0][6] == "would be aborted"
    assert cluster.requested(WriteTxnMarkersRequest) == []
    assert kctl(f"{line} --yes").rows == [["orders", "1", "7", "2", "-", "5", "aborted", "-", "-"]]
    ((broker, request),) = cluster.requested(WriteTxnMarkersRequest)
    marker = request.markers[0]
    assert (broker, marker.transaction_result, marker.coordinator_epoch) == (1, False, 0)
    assert kctl(f"{line} --yes").status == ExitStatus.FAILED
    assert kctl("transactions find-hanging").status == 0


def test_abort_refuses_a_transaction_that_its_coordinator_has(kctl: Kctl, cluster: FakeCluster) -> None:
    line = "transactions abort orders:0 --producer-id 8 --producer-epoch 2 --coordinator-epoch 4 --yes"
    ran = kctl(line)
    assert (ran.status, cluster.requested(WriteTxnMarkersRequest)) == (ExitStatus.REFUSED, [])
    assert "the coordinator of 'tx' has it in state Ongoing" in ran.err
    assert kctl(f"{line} --force").status == 0
    cluster.versions[66] = (0, -1)
    ran = kctl(line)
    assert (ran.status, "brokers before 3.0" in ran.err) == (0, True)


@pytest.mark.parametrize(
    "line",
    [
        "orders --start-offset 5",
        "orders:1",
        "orders:1 --producer-id 7",
        "orders:1 --start-offset 5 --producer-id 7 --producer-epoch 1 --coordinator-epoch 1",
    ],
)
@pytest.mark.usefixtures("cluster")
def test_invalid_options_are_refused(kctl: Kctl, line: str) -> None:
    assert kctl(f"transactions abort {line} --yes").status == ExitStatus.USAGE


@pytest.mark.usefixtures("cluster")
def test_partition_that_a_topic_does_not_have(kctl: Kctl) -> None:
    assert kctl("transactions describe-producers orders --partition 99").rows[0][-1] == "orders has no partition 99"
    assert "orders has no partition 99" in kctl("transactions abort orders:99 --start-offset 0 --dry-run").err
    assert kctl("transactions find-hanging --topic orders:99").rows[0][-1] == "orders-99: orders has no partition 99"

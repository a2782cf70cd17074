"""kctl records delete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.protocol.apis.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster, FakePartition
from tests.unit.commands.conftest import Kctl


@pytest.fixture
def orders(cluster: FakeCluster) -> list[FakePartition]:
    """Three partitions with the offsets 10 to 40, one record per second."""
    partitions = cluster.create("orders", leaders=3)
    for partition in partitions:
        partition.append(build_batch([Record(0, number * 1000, None, b"x") for number in range(40)]))
        partition.start = 10
    return partitions


@pytest.mark.parametrize(
    ("line", "starts", "counts"),
    [
        ("orders --before-offset 15", [15, 15, 15], ["5", "5", "5"]),
        ("orders:0,2 --before-offset 15", [15, 10, 15], ["5", "5"]),
        ("orders:1 --before-time 1970-01-01T00:00:22Z", [10, 22, 10], ["12"]),
        ("orders:1 --before-time 2020-01-01", [10, 40, 10], ["30"]),
        ("orders --to-end", [40, 40, 40], ["30", "30", "30"]),
        ("orders --before-offset 5", [10, 10, 10], ["0", "0", "0"]),
    ],
)
def test_records_are_deleted_as_the_preview_shows(
    kctl: Kctl, orders: list[FakePartition], line: str, starts: list[int], counts: list[str]
) -> None:
    preview = kctl(f"records delete {line} --dry-run")
    assert (preview.status, [row[5] for row in preview.rows]) == (0, counts)
    assert [order.start for order in orders] == [10, 10, 10]
    ran = kctl(f"records delete {line} --yes")
    assert (ran.status, [row[5] for row in ran.rows]) == (0, counts)
    assert {row[6] for row in ran.rows} == ({"nothing to delete"} if counts[0] == "0" else {"deleted"})
    assert [order.start for order in orders] == starts


def test_offsets_are_read_from_kafkas_file(kctl: Kctl, orders: list[FakePartition], tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    entries = [{"topic": "orders", "partition": 0, "offset": 12}, {"topic": "orders", "partition": 2, "offset": -1}]
    file.write_text(json.dumps({"partitions": entries, "version": 1}))
    rows = json.loads(kctl(f"records delete --offset-json-file {file} --yes --format json").out)
    assert [(row["partition"], row["low_watermark"]) for row in rows] == [(0, 12), (2, 40)]
    assert [order.start for order in orders] == [12, 10, 40]


@for_rows(
    "document",
    [
        [],
        {"partitions": []},
        {"version": 2, "partitions": [{"topic": "orders", "partition": 0, "offset": 1}]},
        {"partitions": [{"topic": "orders", "partition": 0, "offset": 1}] * 2},
        {"partitions": [{"topic": "orders", "partition": 0, "offset": -2}]},
        {"partitions": [{"topic": "orders", "partition": "0", "offset": 1}]},
        {"partitions": [{"partition": 0, "offset": 1}]},
    ],
)
def test_malformed_files_are_refused(kctl: Kctl, orders: list[FakePartition], tmp_path: Path, document: object) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(document))
    assert kctl(f"records delete --offset-json-file {file} --yes").status == ExitStatus.USAGE
    assert [order.start for order in orders] == [10, 10, 10]


def test_nothing_is_deleted_if_one_partition_cannot_be(
    kctl: Kctl, cluster: FakeCluster, orders: list[FakePartition]
) -> None:
    orders[1].append(build_batch([Record(0, 0, None, b"x")]))
    ran = kctl("records delete orders:0,1,7 --before-offset 41 --yes")
    assert ran.status == ExitStatus.FAILED
    assert [(row[1], row[6], row[7]) for row in ran.rows] == [
        ("0", "-", "OFFSET_OUT_OF_RANGE"),
        ("1", "would be deleted", "-"),
        ("7", "-", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert cluster.requested(DeleteRecordsRequest) == []


def test_each_partition_has_its_result(kctl: Kctl, cluster: FakeCluster, orders: list[FakePartition]) -> None:
    def refuse(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name="orders",
                    partitions=[
                        DeleteRecordsPartitionResult(
                            partition_index=partition.partition_index,
                            low_watermark=-1 if partition.partition_index else 20,
                            error_code=44 if partition.partition_index else 0,
                        )
                        for partition in request.topics[0].partitions
                    ],
                )
            ]
        )

    assert orders
    cluster.intercept(DeleteRecordsRequest, refuse)
    ran = kctl("records delete orders --before-offset 20 --yes")
    assert ran.status == ExitStatus.FAILED
    assert [(row[1], row[6], row[7]) for row in ran.rows] == [
        ("0", "deleted", "-"),
        ("1", "-", "POLICY_VIOLATION"),
        ("2", "-", "POLICY_VIOLATION"),
    ]


@pytest.mark.usefixtures("orders")
def test_records_are_not_deleted_without_consent(kctl: Kctl, orders: list[FakePartition]) -> None:
    assert kctl("records delete orders --to-end").status == ExitStatus.REFUSED
    assert [order.start for order in orders] == [10, 10, 10]


@pytest.mark.usefixtures("orders")
@for_rows(
    "line",
    [
        "orders",
        "--to-end",
        "orders --to-end --before-offset 3",
        "orders --offset-json-file x",
        "orders orders:1 --to-end",
        "orders:x --to-end",
        "--offset-json-file /nowhere",
    ],
)
def test_invalid_options_are_refused(kctl: Kctl, line: str) -> None:
    assert kctl(f"records delete {line} --yes").status == ExitStatus.USAGE

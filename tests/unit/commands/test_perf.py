"""What kctl perf shows; tests/unit/admin/test_perf.py has its arithmetic."""

from __future__ import annotations

import csv
import io

import pytest

from kctl.commands.perf.results import BucketRow
from kctl.output.console import columns_of
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl

LINE = "perf produce orders --client kctl --num-records 20 --record-size 10 --warmup 0s --histogram --format"


def test_csv_with_a_histogram_is_one_table(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    ran = kctl(f"{LINE} csv")
    header, *rows = csv.reader(io.StringIO(ran.out))
    assert header == [column.name for column in columns_of(BucketRow)]
    assert {len(row) for row in rows} == {len(header)}
    assert sum(int(row[2]) for row in rows) == 20
    assert ran.err.startswith("total of kctl ")


@pytest.mark.parametrize("header", [False, True])
def test_plain_with_a_histogram_is_one_table(kctl: Kctl, cluster: FakeCluster, header: bool) -> None:
    cluster.create("orders")
    ran = kctl(f"{LINE} plain" + " --header" * header)
    assert ran.out.startswith("FROM-MS\t") is header
    rows = ran.rows[header:]
    assert {len(row) for row in rows} == {len(columns_of(BucketRow))}
    assert sum(int(row[2]) for row in rows) == 20


def test_json_has_the_histogram_in_the_total(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    document = kctl(f"{LINE} json").document
    assert (document["kind"], sum(row["records"] for row in document["histogram"])) == ("total", 20)

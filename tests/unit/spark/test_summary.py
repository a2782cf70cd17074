"""The summary of an export: rows, and one JSON document."""

from __future__ import annotations

from pathlib import Path

from kctl.tables.exports.summary import document, planned_rows, rows_of, sentence
from tests.unit.spark.scene import Cluster, exporter, run


def test_rows_and_document_agree(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.append(0, 12)
    cluster.append(1, 7)
    request = exporter(cluster, tmp_path)._request
    report = run(cluster, tmp_path)
    rows = rows_of(report)
    reported = document(request, rows, report, failed={})
    assert [(row.topic, row.partition, row.start, row.end, row.records) for row in rows] == [
        ("orders", 0, 0, 12, 12),
        ("orders", 1, 0, 7, 7),
    ]
    assert (reported.records, reported.files, reported.batches, reported.lost) == (19, 2, [0], 0)
    assert reported.bytes_out == sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    assert not reported.dry_run
    assert reported.partitions == rows
    assert sentence(rows, report).startswith("19 records in 2 files (")


def test_a_plan_has_no_records_yet(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.append(0, 12)
    plan, _, _ = exporter(cluster, tmp_path).plan()
    assert plan is not None
    (row, *_) = planned_rows(plan, is_pending=False)
    assert (row.records, row.bytes_out, row.files, row.status) == (None, None, 1, "planned")


def test_a_run_without_new_records_is_reported(tmp_path: Path) -> None:
    cluster = Cluster(partitions=1)
    report = run(cluster, tmp_path)
    assert sentence(rows_of(report), report).startswith("0 records")
    again = run(cluster, tmp_path)
    assert sentence(rows_of(again), again) == "nothing new"
    assert document(exporter(cluster, tmp_path)._request, [], again, failed={}).batches == []

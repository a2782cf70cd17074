"""Exports with decoded values: every record is in the columns or in the dead letters once, after any interruption."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kctl.errors import UsageError
from kctl.tables.commits.existing import ExistingExport
from kctl.tables.exec.outcome import BadRecords, DataLoss
from kctl.tables.exec.schema.column_types import Format
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.exports.summary import bad_reasons, misfits_of, rows_of
from kctl.tables.formats import iceberg
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from kctl.tables.plans.plan import OnDataLoss
from tests.unit.spark.crashing_files import Crash
from tests.unit.spark.scene import SILENT, Beginning, Cluster, exporter, filled, run
from tests.unit.spark.scene import assert_exact as assert_exact_bytes
from tests.unit.spark.stepped_port import crashing
from tests.unit.spark.test_tables import stepped_commits

JSON = FieldOptions(name="value", format=Format.JSON)
LENIENT = DecodingOptions(value=JSON, keeps_bad=True)
STRICT = DecodingOptions(value=JSON)
PARQUET = TableOptions()
TABLES = [PARQUET, TableOptions(kind=TableKind.ICEBERG), TableOptions(kind=TableKind.DELTA)]
KINDS = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.kind)


def with_bad_records(partition: int, offset: int) -> bytes:
    """Every fifth value is not JSON; the fields `sometimes` are not in the sample."""
    if offset % 5 == 4:
        return b"\xffbad %d" % offset
    more = {"sometimes": {"n": offset}} if offset % 7 == 5 else {}
    return json.dumps({"partition": partition, "offset": offset, "kind": offset % 2, **more}).encode()


def with_new_field(partition: int, offset: int) -> bytes:
    """From offset 20 on there is a field in the middle, also of the nested object."""
    address = {"city": "x", **({"zip": offset} if offset >= 20 else {}), "street": "y"}
    more = {"discount": 0.5} if offset >= 20 else {}
    return json.dumps({"partition": partition, **more, "offset": offset, "address": address}).encode()


def read(folder: Path, table: TableOptions) -> list[dict[str, Any]]:
    if table.kind is TableKind.PARQUET:
        rows = [
            row
            for path in sorted(folder.glob("orders/**/*.parquet"))
            for row in pq.read_table(path, partitioning=None).to_pylist()
        ]
    elif table.kind is TableKind.DELTA:
        from deltalake import DeltaTable  # noqa: PLC0415

        rows = DeltaTable(folder / "orders").to_pyarrow_table().to_pylist()
    else:
        with contextlib.closing(iceberg.default_catalog(folder)) as catalog:
            rows = catalog.load_table(("kafka", "orders")).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def with_rest(folder: Path, table: TableOptions) -> list[dict[str, Any]]:
    return [row for row in read(folder, table) if row["value_rest"]]


def dead_letters(folder: Path) -> list[dict[str, Any]]:
    paths = sorted((folder / "_dead_letters").rglob("[!._]*.parquet"))
    rows = [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def assert_exact(cluster: Cluster, folder: Path, table: TableOptions) -> None:
    """Checks that each record is in the columns or in the dead letters, once and complete."""
    good, bad = read(folder, table), dead_letters(folder)
    places = [(row["partition"], row["offset"]) for row in [*good, *bad]]
    assert sorted(places) == [(p, offset) for p, end in enumerate(cluster.ends) for offset in range(end)]
    for row in good:
        whole = {**row["value"], **json.loads(row["value_rest"] or "{}")}
        assert {name: value for name, value in whole.items() if value is not None} == json.loads(
            with_bad_records(row["partition"], row["offset"])
        )
    for row in bad:
        assert row["value"] == with_bad_records(row["partition"], row["offset"])
        assert row["reason"] == "value: it is not UTF-8"
    assert not list(folder.rglob(".*.tmp"))


def misfits(folder: Path) -> int:
    """The values of `sometimes`, which has no column, in all commits."""
    commits = [json.loads(path.read_text()) for path in (folder / "_kctl" / "commits").glob("*.json")]
    found = [misfit for commit in commits for misfit in commit.get("misfits", [])]
    assert {(misfit["topic"], misfit["column"], misfit["type"]) for misfit in found} <= {
        ("orders", "value.sometimes", "")
    }
    return sum(misfit["values"] for misfit in found)


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(TABLES[0], id="parquet"),
        pytest.param(TABLES[1], id="iceberg", marks=pytest.mark.matrix),
        pytest.param(TABLES[2], id="delta"),
        pytest.param(TableOptions(partition_by=Partitioning("value.kind")), id="partitioned", marks=pytest.mark.matrix),
    ],
)
@pytest.mark.long
def test_a_crash_at_any_step_loses_and_repeats_no_decoded_record(tmp_path: Path, table: TableOptions) -> None:

    def begin(folder: Path) -> Cluster:
        cluster = filled()
        cluster.value = with_bad_records
        run(cluster, folder, table=table, decoding=LENIENT)
        cluster.append(0, 6)
        cluster.append(1, 11)
        return cluster

    folder = tmp_path / "lake"
    beginning = Beginning(folder, begin)
    for step in itertools.count(1):
        cluster = beginning.restored()
        files = crashing(DiskFiles(folder), step)
        try:
            with stepped_commits(files):
                exporter(cluster, folder, files=files, table=table, decoding=LENIENT).run(SILENT)
        except Crash:
            pass
        else:
            break
        cluster.append(1, 4)
        run(cluster, folder, table=table, decoding=LENIENT)
        assert_exact(cluster, folder, table)
        if table.kind is TableKind.PARQUET:
            assert misfits(folder) == sum("sometimes" in row["value_rest"] for row in with_rest(folder, table))
        known = ExistingExport(DiskFiles(folder)).state().topics["orders"].misfits
        assert sum(misfit.values for misfit in known) == len(with_rest(folder, table))
    assert step > 9


@KINDS
def test_a_field_whose_type_changes_has_a_column_for_each_type(tmp_path: Path, table: TableOptions) -> None:
    """No value becomes null, and the later values are in the columns of the same run."""
    prices: list[Any] = [10, None, 20, 10.5, 30, -0.25, "free", "n/a"]
    cluster = Cluster(1)
    cluster.value = lambda partition, offset: json.dumps(
        {"id": offset, "order": {"price": prices[offset % 8]}}
    ).encode()
    for count in (3, 3, 2):
        cluster.append(0, count)
        report = run(cluster, tmp_path, table=table, decoding=LENIENT)
        assert not misfits_of(report)
    rows = read(tmp_path, table)
    assert [(row["value"]["id"], price_in(row["value"]["order"]), row["value_rest"]) for row in rows] == [
        (offset, price, None) for offset, price in enumerate(prices)
    ]
    assert [rows[offset]["value"]["order"]["price"] for offset in (0, 2, 4)] == [10, 20, 30]


def price_in(order: dict[str, Any]) -> Any:
    values = [order.get(name) for name in ("price", "price__double", "price__string")]
    return next((value for value in values if value is not None), None)


@KINDS
def test_a_field_that_appears_later_becomes_a_column(tmp_path: Path, table: TableOptions) -> None:
    cluster = Cluster(1)
    cluster.value = with_new_field
    for count in (20, 10, 5):
        cluster.append(0, count)
        run(cluster, tmp_path, table=table, decoding=STRICT)
    rows = read(tmp_path, table)
    assert [row["offset"] for row in rows] == list(range(35))
    for row in rows:
        assert row["value_rest"] is None
        found = {name: value for name, value in row["value"].items() if value is not None}
        found["address"] = {name: value for name, value in found["address"].items() if value is not None}
        assert found == json.loads(with_new_field(0, row["offset"]))
    if table.kind is TableKind.PARQUET:
        names = [
            [field.name for field in pq.read_schema(path).field("value").type]
            for path in sorted(tmp_path.glob("orders/*.parquet"))
        ]
        assert names[0] == ["partition", "offset", "address"]
        assert names[-1] == ["partition", "offset", "address", "discount"]


def test_duckdb_reads_files_with_and_without_a_later_field_together(tmp_path: Path) -> None:
    import duckdb  # noqa: PLC0415

    cluster = Cluster(1)
    cluster.value = with_new_field
    for count in (20, 10):
        cluster.append(0, count)
        run(cluster, tmp_path, decoding=STRICT)
    with duckdb.connect() as connection:
        query = (
            "select count(*), count(value.discount), sum(value.address.zip) from read_parquet(?, union_by_name=true)"
        )
        found = connection.execute(query, [str(tmp_path / "orders" / "*.parquet")]).fetchall()
    assert found == [(30, 10, sum(range(20, 30)))]


@KINDS
def test_a_bad_record_in_the_sample_ends_a_run_before_anything_is_written(tmp_path: Path, table: TableOptions) -> None:
    cluster = Cluster(1)
    cluster.append(0, 5)
    cluster.value = lambda partition, offset: b"{" if offset == 1 else b"{}"
    folder = tmp_path / "new"
    with pytest.raises(BadRecords, match="orders-0: the record at offset 1 cannot be exported: value: it is not JSON"):
        run(cluster, folder, table=table, decoding=STRICT)
    assert not folder.exists()


@KINDS
def test_a_bad_record_after_the_sample_publishes_nothing_and_may_be_kept_later(
    tmp_path: Path, table: TableOptions
) -> None:
    cluster = filled()
    cluster.value = with_bad_records
    with pytest.raises(BadRecords, match="it is not UTF-8"):
        run(cluster, tmp_path, table=table, decoding=STRICT)
    assert not (tmp_path / "_dead_letters").exists() or not dead_letters(tmp_path)
    report = run(cluster, tmp_path, table=table, decoding=LENIENT)
    assert_exact(cluster, tmp_path, table)
    assert sum(row.bad or 0 for row in rows_of(report)) == 3
    assert bad_reasons(report) == {"value: it is not UTF-8": 3}


def test_commits_name_the_dead_letters(tmp_path: Path) -> None:
    cluster = filled()
    cluster.value = with_bad_records
    run(cluster, tmp_path, decoding=LENIENT)
    commit = json.loads((tmp_path / "_kctl" / "commits" / "000000000000.json").read_text())
    assert {letter["path"]: letter["records"] for letter in commit["dead_letters"]} == {
        path.relative_to(tmp_path).as_posix(): pq.read_metadata(path).num_rows
        for path in (tmp_path / "_dead_letters").rglob("*.parquet")
    }


@KINDS
def test_a_missing_file_of_dead_letters_is_named(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    cluster.value = with_bad_records
    run(cluster, tmp_path, table=table, decoding=LENIENT)
    first = min((tmp_path / "_dead_letters").rglob("*.parquet"))
    first.rename(tmp_path / "lost")
    with pytest.raises(DataLoss, match=rf"{re.escape(first.name)}, which batch 0 wrote, is gone: restore"):
        run(cluster, tmp_path, table=table, decoding=LENIENT)
    report = run(cluster, tmp_path, table=table, decoding=LENIENT, on_data_loss=OnDataLoss.WARN)
    assert [first.name in warning for warning in report.warnings] == [True]
    (tmp_path / "lost").rename(first)
    cluster.append(0, 8)
    run(cluster, tmp_path, table=table, decoding=LENIENT)
    assert_exact(cluster, tmp_path, table)


@KINDS
def test_a_damaged_file_of_dead_letters_is_named(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    cluster.value = with_bad_records
    run(cluster, tmp_path, table=table, decoding=LENIENT)
    first = min((tmp_path / "_dead_letters").rglob("*.parquet"))
    whole = first.read_bytes()
    first.write_bytes(whole[:-9])
    expected = rf"{re.escape(first.name)}, which batch 0 wrote, has {len(whole) - 9:,} bytes instead of {len(whole):,}"
    with pytest.raises(DataLoss, match=expected):
        run(cluster, tmp_path, table=table, decoding=LENIENT)
    report = run(cluster, tmp_path, table=table, decoding=LENIENT, on_data_loss=OnDataLoss.WARN)
    assert [first.name in warning for warning in report.warnings] == [True]
    first.write_bytes(whole)
    assert run(cluster, tmp_path, table=table, decoding=LENIENT).warnings == []


@pytest.mark.parametrize("members", [("all_dead_letters", "all_dead_letter_sizes"), ("all_dead_letter_sizes",)])
def test_dead_letters_of_commits_without_their_sum_are_found_in_all_commits(
    tmp_path: Path, members: tuple[str, ...]
) -> None:
    """As earlier versions of kctl wrote them."""
    cluster = filled()
    cluster.value = with_bad_records
    run(cluster, tmp_path, decoding=LENIENT)
    commit = tmp_path / "_kctl" / "commits" / "000000000000.json"
    document = json.loads(commit.read_text())
    for member in members:
        del document[member]
    commit.write_text(json.dumps(document))
    for _ in range(2):
        cluster.append(0, 8)
        run(cluster, tmp_path, decoding=LENIENT)
    assert_exact(cluster, tmp_path, PARQUET)
    first = min((tmp_path / "_dead_letters").rglob("*.parquet"))
    first.write_bytes(b"")
    with pytest.raises(DataLoss, match=rf"{re.escape(first.name)}, which batch 0 wrote, has 0 bytes"):
        run(cluster, tmp_path, decoding=LENIENT)
    first.unlink()
    with pytest.raises(DataLoss, match=rf"{re.escape(first.name)}, which batch 0 wrote, is gone"):
        run(cluster, tmp_path, decoding=LENIENT)


@KINDS
def test_a_topic_without_any_good_record_is_committed(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    cluster.value = lambda partition, offset: b"bad"
    run(cluster, tmp_path, table=table, decoding=LENIENT)
    assert len(dead_letters(tmp_path)) == 19
    assert run(cluster, tmp_path, table=table, decoding=LENIENT).batches == []


@KINDS
def test_another_format_than_that_of_the_export_is_refused(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=table, decoding=STRICT)
    cluster.append(0, 1)
    string = DecodingOptions(value=FieldOptions(name="value", format=Format.STRING))
    for decoding, complaint in ((string, "would become string"), (DecodingOptions(), "would become binary")):
        with pytest.raises(UsageError, match=complaint):
            run(cluster, tmp_path, table=table, decoding=decoding)


@KINDS
@pytest.mark.parametrize("held", [STRICT, DecodingOptions()], ids=["json", "binary"])
def test_another_format_is_refused_also_if_nothing_is_new(
    tmp_path: Path, table: TableOptions, held: DecodingOptions
) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=table, decoding=held)
    assert run(cluster, tmp_path, table=table, decoding=held).batches == []
    string = FieldOptions(name="value", format=Format.STRING)
    of_keys = FieldOptions(name="key", format=Format.JSON)
    for decoding, complaint in (
        (replace(held, value=string), "the value of topic orders is .* and would become string"),
        (replace(held, key=of_keys), "the key of topic orders is binary in the export and would become a struct"),
    ):
        with pytest.raises(UsageError, match=complaint):
            exporter(cluster, tmp_path, table=table, decoding=decoding).plan()
        with pytest.raises(UsageError, match=complaint):
            run(cluster, tmp_path, table=table, decoding=decoding)


def test_a_topic_with_another_format_and_nothing_new_does_not_stop_the_others(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path, decoding=STRICT)
    cluster.topics = ["orders", "payments"]
    report = run(cluster, tmp_path)
    assert list(report.failed) == ["orders"]
    assert [list(batch.plan.topics) for batch in report.batches] == [["payments"]]


@KINDS
def test_texts_become_strings(tmp_path: Path, table: TableOptions) -> None:
    cluster = filled()
    cluster.value = lambda partition, offset: None if offset == 3 else f"größe {offset}".encode()
    options = DecodingOptions(value=FieldOptions(name="value", format=Format.STRING))
    run(cluster, tmp_path, table=table, decoding=options)
    found = [row["value"] for row in read(tmp_path, table) if row["partition"] == 0]
    assert found == [None if offset == 3 else f"größe {offset}" for offset in range(12)]


def test_values_that_are_null_or_empty_at_first_have_no_column_until_a_field_appears(tmp_path: Path) -> None:
    cluster = Cluster(1)
    cluster.value = lambda partition, offset: None if offset < 3 else b"{}" if offset < 6 else b'{"a": [1]}'
    for count in (3, 3, 3):
        cluster.append(0, count)
        run(cluster, tmp_path, decoding=STRICT)
    rows = read(tmp_path, PARQUET)
    assert ["value" in row for row in rows] == [False] * 6 + [True] * 3
    assert [row["value"] for row in rows[6:]] == [{"a": [1]}] * 3


def test_lost_commits_are_rebuilt_with_the_columns_of_the_files(tmp_path: Path) -> None:
    cluster = filled()
    cluster.value = with_bad_records
    run(cluster, tmp_path, decoding=LENIENT)
    for path in (tmp_path / "_kctl").rglob("*.json"):
        path.unlink()
    cluster.append(0, 8)
    run(cluster, tmp_path, decoding=LENIENT, adopts=True)
    assert_exact(cluster, tmp_path, PARQUET)


NAME = "orders/orders+0+00000000000000000000-00000000000000000012.parquet"
OLD_PLAN = {
    "version": 2,
    "batch": 0,
    "created_ms": 1_700_000_000_000,
    "cluster_id": "cluster-a",
    "include_headers": False,
    "compression": "zstd",
    "isolation": "read_committed",
    "topics": {"orders": {"topic_id": "00000000-0000-0000-0000-000000000001", "incarnation": 0}},
    "ranges": [
        {
            "topic": "orders",
            "partition": 0,
            "start": 0,
            "end": 12,
            "incarnation": 0,
            "lost": 0,
            "files": [{"start": 0, "end": 12, "path": NAME}],
        }
    ],
}
"""As kctl without decoding wrote it."""


def test_an_interrupted_folder_of_version_2_is_completed_and_continued(tmp_path: Path) -> None:
    cluster = filled()
    for name in ("plans", "commits"):
        (tmp_path / "_kctl" / name).mkdir(parents=True)
    (tmp_path / "_kctl" / "plans" / "000000000000.json").write_text(json.dumps(OLD_PLAN))
    with pytest.raises(UsageError, match="the value of topic orders is binary in the export"):
        run(cluster, tmp_path, decoding=STRICT)
    run(cluster, tmp_path)
    commits = [json.loads(path.read_text()) for path in sorted((tmp_path / "_kctl" / "commits").iterdir())]
    plan = json.loads((tmp_path / "_kctl" / "plans" / "000000000001.json").read_text())
    assert [entry["version"] for entry in [*commits, plan]] == [2, 2, 2]
    assert set(plan) == set(OLD_PLAN)
    assert set(plan["topics"]["orders"]) == {"topic_id", "incarnation"}
    assert not any({"columns", "dead_letters"} & set(commit) for commit in commits)
    assert [file["path"] for file in commits[0]["files"]] == [NAME]
    assert_exact_bytes(cluster, tmp_path)

"""--flatten, --rename, --sort-by and patterns of --select, as DuckDB, deltalake and pyiceberg read the files."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.errors import UsageError
from kctl.tables.compaction.table_files import CompactRequest, compact_export
from kctl.tables.exec.schema.column_types import Columns, Decoding, Format, ListOf, Struct
from kctl.tables.exec.selection.column_layout import ColumnLayout
from kctl.tables.exec.selection.columns import schema
from kctl.tables.exec.selection.laid_out import as_records, laid_out, laid_out_schema, physical_path, record_schema
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.selection.row_selection import ALL_ROWS, RowSelection
from kctl.tables.exec.selection.upserts import UpsertOptions
from kctl.tables.exec.targets import sorted_rows, writer
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.exec.targets.sorted_rows import Runs
from kctl.tables.formats import iceberg
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from tests.unit.spark.changing_topic import PLAIN, CompactedTopic
from tests.unit.spark.scene import Cluster, StoppedClock, run
from tests.unit.spark.test_current_state import verified_state
from tests.unit.spark.test_verification import verify

JSON = DecodingOptions(value=FieldOptions(name="value", format=Format.JSON))
KINDS = pytest.mark.parametrize("kind", list(TableKind))
FLAT = ColumnLayout("{path}", (("value.buyer.name", "customer"), ("timestamp", "sent_at")), ("value.rank", "timestamp"))
VALUE = Struct(
    (
        ("id", "int64"),
        ("buyer", Struct((("name", "string"), ("place", Struct((("city", "string"),)))))),
        ("tags", ListOf(Struct((("name", "string"),)))),
    )
)
COLUMNS = Columns(key=Decoding(Format.STRING, "string"), value=Decoding(Format.JSON, VALUE))


def value(partition: int, offset: int) -> bytes:
    number = partition * 1000 + offset
    more = {"late": number} if offset >= 12 else {}
    return json.dumps({"rank": number * 7 % 11, "buyer": {"name": f"b{number}", "no": number}, **more}).encode()


def orders(counts: Sequence[int] = (12, 7)) -> Cluster:
    cluster = Cluster(len(counts))
    cluster.value = value
    for partition, count in enumerate(counts):
        cluster.append(partition, count)
    return cluster


def read(folder: Path, kind: TableKind) -> pa.Table:
    """The rows as an independent reader finds them."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        match kind:
            case TableKind.PARQUET:
                found = f"read_parquet('{folder}/orders/**/*.parquet', hive_partitioning = false, union_by_name = true)"
                return connection.sql(f"select * from {found}").to_arrow_table()
            case TableKind.DELTA:
                from deltalake import DeltaTable  # noqa: PLC0415 - an optional package

                return pa.table(DeltaTable(folder / "orders").to_pyarrow_table())
        with iceberg.default_catalog(folder) as catalog:
            return catalog.load_table(("kafka", "orders")).scan().to_arrow()


@KINDS
@pytest.mark.long
def test_fields_are_columns_with_names_of_the_template_and_sorted_in_each_file(tmp_path: Path, kind: TableKind) -> None:
    cluster = orders()
    table = TableOptions(kind=kind, layout=FLAT)
    run(cluster, tmp_path, table=table, decoding=JSON)
    cluster.append(0, 6)  # with a field more
    run(cluster, tmp_path, table=table, decoding=JSON)
    assert run(cluster, tmp_path, table=table, decoding=JSON).batches == []
    rows = read(tmp_path, kind).to_pylist()
    found = {(row["partition"], row["offset"]): (row["rank"], row["customer"], row["buyer_no"]) for row in rows}
    expected = [
        (partition, offset, json.loads(value(partition, offset)))
        for partition, end in enumerate(cluster.ends)
        for offset in range(end)
    ]
    assert found == {(p, o): (row["rank"], row["buyer"]["name"], row["buyer"]["no"]) for p, o, row in expected}
    assert {row["late"] for row in rows} == {None, *range(12, 18)}
    assert all(row["sent_at"] is not None for row in rows)
    for path in tmp_path.glob("orders/**/*.parquet"):
        ranks = pq.read_table(path, partitioning=None).column("rank").to_pylist()
        assert ranks == sorted(ranks)
    verified = verify(cluster, tmp_path)
    assert verified.is_equal
    assert not any("not compared" in warning for warning in verified.warnings)


@KINDS
@pytest.mark.long
def test_compacted_files_are_sorted_and_get_the_columns_of_later_ones(tmp_path: Path, kind: TableKind) -> None:
    cluster = orders()
    cluster.value = lambda partition, offset: (
        value(partition, offset)[:-1] + (b', "extra": {"x": 5}}' if offset > 2 else b"}")
    )
    table = TableOptions(kind=kind, layout=FLAT)
    for _ in range(3):
        run(cluster, tmp_path, table=table, decoding=JSON)
        cluster.append(0, 6)
    compact_export(CompactRequest(target_bytes=1 << 20), DiskFiles(tmp_path), StoppedClock())
    rows = read(tmp_path, kind).to_pylist()
    assert len(rows) == 31
    assert {row["extra_x"] for row in rows if row["offset"] > 2} == {5}
    cluster.ends[0] -= 6
    assert verify(cluster, tmp_path).is_equal
    if kind is TableKind.PARQUET:
        (path,) = tmp_path.glob("orders/*.parquet")
        found = pq.read_table(path, partitioning=None).to_pylist()
        assert found == sorted(found, key=lambda row: (row["rank"], row["sent_at"]))


@pytest.mark.long
def test_iceberg_declares_the_order_and_keeps_partitions_hidden(tmp_path: Path) -> None:
    table = TableOptions(kind=TableKind.ICEBERG, layout=FLAT, partition_by=Partitioning("bucket(4,buyer.no),rank"))
    for _ in range(2):
        run(orders(), tmp_path, table=table, decoding=JSON)
    with iceberg.default_catalog(tmp_path) as catalog:
        found = catalog.load_table(("kafka", "orders"))
        fields = [found.schema().find_field(field.source_id).name for field in found.sort_order().fields]
        assert fields == ["rank", "sent_at"]
        assert found.schema().find_field("customer").doc == "kctl: value.buyer.name"
        files = [task.file for task in found.scan().plan_files()]
        assert {file.sort_order_id for file in files} == {found.sort_order().order_id}
        assert [field.name for field in found.spec().fields] == ["no_bucket", "rank"]
        selected = found.scan(row_filter="buyer_no = 5").to_arrow()
        assert selected.column("customer").to_pylist() == ["b5"]
        assert len(list(found.scan(row_filter="buyer_no = 5").plan_files())) < len(files)


@KINDS
@pytest.mark.long
def test_the_current_state_may_be_flat(tmp_path: Path, kind: TableKind) -> None:
    topic = CompactedTopic(seed=3)
    layout = ColumnLayout("v_{path}", (("key", "customer_id"),), ("value.name",))
    table = TableOptions(kind=kind, layout=layout, upsert=UpsertOptions())
    for count in (7, 30, 5):
        topic.append(0, count)
        topic.append(1, count)
        run(topic, tmp_path, table=table, decoding=PLAIN, target_file_bytes=1_500)
        rows = read(tmp_path, kind).to_pylist()
        assert {int(row["customer_id"]): row["v_name"] for row in rows} == {
            id_: row["name"] for id_, row in topic.state().items()
        }
        assert len(rows) == len(topic.state())
    assert verified_state(topic, tmp_path).is_equal


@KINDS
@pytest.mark.long
def test_fields_are_renamed_in_their_structs(tmp_path: Path, kind: TableKind) -> None:
    layout = ColumnLayout(rename=(("value", "order"), ("value.buyer.no", "number")))
    table = TableOptions(kind=kind, layout=layout)
    cluster = orders()
    for _ in range(2):
        run(cluster, tmp_path, table=table, decoding=JSON)
        cluster.append(0, 3)
    cluster.ends[0] -= 3
    rows = read(tmp_path, kind).to_pylist()
    assert all(row["order"]["buyer"]["number"] == row["partition"] * 1000 + row["offset"] for row in rows)
    assert verify(cluster, tmp_path).is_equal


@KINDS
def test_a_target_keeps_its_layout(tmp_path: Path, kind: TableKind) -> None:
    table = TableOptions(kind=kind, layout=FLAT)
    run(orders(), tmp_path, table=table, decoding=JSON)
    assert TableOptions.of_mark(table.mark, catalog=None, namespace="") == table
    for other in (ColumnLayout(), ColumnLayout("{path}"), ColumnLayout(FLAT.flatten, FLAT.rename, ("value.rank",))):
        with pytest.raises(UsageError, match="use the same options or another --to"):
            run(orders(), tmp_path, table=TableOptions(kind=kind, layout=other), decoding=JSON)


def test_columns_that_would_have_one_name_are_refused_by_name(tmp_path: Path) -> None:
    def values(document: dict[str, Any]) -> Cluster:
        cluster = Cluster(1)
        cluster.value = lambda _, offset: json.dumps(document).encode()
        cluster.append(0, 5)
        return cluster

    cases: list[tuple[dict[str, Any], ColumnLayout, str]] = [
        ({"a_b": 1, "a": {"b": 2}}, ColumnLayout("{path}"), r"value\.a_b and value\.a\.b would both be the column a_b"),
        ({"A": 1, "x": {"a": 2}}, ColumnLayout("{name}"), r"value\.A and value\.x\.a would both be the column a"),
        ({"offset": 1}, ColumnLayout("{path}"), "value.offset and offset would both be the column offset"),
        ({"incarnation": 1}, ColumnLayout("{path}"), "would both be the column incarnation"),
        ({"a": 1}, ColumnLayout(rename=(("value.b", "c"),)), "--rename value.b: topic orders has no such column"),
        ({"a": 1}, ColumnLayout(sort_by=("value",)), "--sort-by value: a struct has no order"),
        ({"a": {"b": 1}}, ColumnLayout("{path}", (("value.a", "c"),)), "the fields of this struct are columns"),
    ]
    for number, (document, layout, message) in enumerate(cases):
        with pytest.raises(UsageError, match=message):
            run(values(document), tmp_path / str(number), table=TableOptions(layout=layout), decoding=JSON)
    assert not list(tmp_path.iterdir())
    apart = ColumnLayout("{path}", (("value.a.b", "inner"),))
    run(values(cases[0][0]), tmp_path / "apart", table=TableOptions(layout=apart), decoding=JSON)
    assert read(tmp_path / "apart", TableKind.PARQUET).select(["a_b", "inner"]).to_pylist()[0] == {"a_b": 1, "inner": 2}


@KINDS
def test_a_later_field_whose_name_is_taken_stays_in_the_rest(tmp_path: Path, kind: TableKind) -> None:
    cluster = Cluster(1)
    cluster.value = lambda _, offset: json.dumps({"a_b": 1, **({"a": {"b": 2}} if offset > 4 else {})}).encode()
    table = TableOptions(kind=kind, layout=ColumnLayout("{path}"))
    for _ in range(3):
        cluster.append(0, 5)
        run(cluster, tmp_path, table=table, decoding=JSON)
    rows = sorted(read(tmp_path, kind).to_pylist(), key=lambda row: row["offset"])
    assert [(row["a_b"], row["value_rest"]) for row in rows] == [(1, None)] * 5 + [(1, '{"a": {"b": 2}}')] * 10
    assert verify(cluster, tmp_path).is_equal


@pytest.mark.parametrize(
    "layout",
    [
        {"flatten": "{path"},
        {"flatten": "x"},
        {"flatten": "{field}"},
        {"flatten": "{path:.}"},
        {"flatten": "{name:_}"},
        {"flatten": "{column}.{path}"},
        {"rename": (("offset", "o"),)},
        {"rename": (("value_rest", "r"),)},
        {"rename": (("value.id", "a.b"),)},
        {"rename": (("value.id", "a"), ("value.id", "b"))},
        {"sort_by": ("key", "key")},
        {"sort_by": ("",)},
        {"sort_by": ("value..x",)},
    ],
)
def test_options_that_no_table_accepts_are_refused(layout: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^--"):
        ColumnLayout(**layout)


def test_partitions_may_not_have_the_name_of_a_column() -> None:
    by = Partitioning("buyer.name")
    flat = ColumnLayout("{name}")
    with pytest.raises(UsageError, match=r"value\.buyer\.name is the column name, which may not be a partition too"):
        flat.check("orders", COLUMNS, ALL_ROWS, by, others={}, are_hidden=False)
    flat.check("orders", COLUMNS, ALL_ROWS, by, others={}, are_hidden=True)
    ColumnLayout("{path}").check("orders", COLUMNS, ALL_ROWS, by, others={}, are_hidden=False)


@KINDS
def test_patterns_select_columns(tmp_path: Path, kind: TableKind) -> None:
    table = TableOptions(kind=kind, rows=RowSelection(("value.r*", "value.*.n?", "time*")))
    run(orders(), tmp_path, table=table, decoding=JSON)
    rows = read(tmp_path, kind)
    assert set(rows.column_names) == {"value", "topic", "partition", "offset", "timestamp", "timestampType"}
    assert [f"{field.name}: {field.type}" for field in rows.schema.field("value").type] == [
        "rank: int64",
        "buyer: struct<no: int64>",
    ]
    with pytest.raises(UsageError, match=r"no column matches value\.zz\*"):
        run(orders(), tmp_path / "new", table=TableOptions(rows=RowSelection(("value.zz*",))), decoding=JSON)


NULLABLE = st.none() | st.integers(0, 3)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(NULLABLE, st.none() | st.tuples(NULLABLE, st.none() | st.just(1)), st.booleans()), max_size=6),
    st.sampled_from(
        [
            ColumnLayout("{path}"),
            ColumnLayout("{column}_{path:__}", (("value.buyer.place.city", "town"),)),
            ColumnLayout(rename=(("value.buyer", "who"), ("value.buyer.place.city", "town"), ("key", "k"))),
        ]
    ),
)
def test_rows_of_files_are_read_as_those_of_records(rows: list[Any], layout: ColumnLayout) -> None:
    columns = schema(include_headers=True, columns=COLUMNS)
    values = [
        {
            "id": id_,
            "buyer": buyer
            and {"name": None if buyer[0] is None else str(buyer[0]), "place": buyer[1] and {"city": "x"}},
            "tags": [{"name": "t"}] if has_tags else None,
        }
        for id_, buyer, has_tags in rows
    ]
    found: list[list[Any]] = [[None] * len(rows) for _ in columns]
    found[columns.get_field_index("value")] = values
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(found, columns, strict=True)], schema=columns
    )
    files = laid_out_schema(columns, layout)
    written = laid_out(batch, files)
    assert written.schema.equals(files)
    restored = as_records(written)
    assert restored.schema.equals(columns)
    assert record_schema(files).equals(columns)
    assert _plain(restored.column("value").to_pylist()) == _plain(values)
    for path in (("value", "buyer", "place", "city"), ("value", "id"), ("offset",)):
        column, *fields = physical_path(files, path) or ()
        type_ = files.field(column).type
        for name in fields:
            type_ = type_.field(name).type
        assert type_ == (pa.string() if path[-1] == "city" else pa.int64())


def _plain(value: Any) -> Any:
    """Without nulls, as the struct of fields that are all null is null."""
    if isinstance(value, dict):
        return {name: plain for name, member in value.items() if (plain := _plain(member)) is not None} or None
    return [_plain(item) for item in value] if isinstance(value, list) else value


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 400), st.integers(1, 90), st.integers(0, 5), st.randoms(use_true_random=False))
def test_merged_runs_are_the_rows_in_order(
    tmp_path_factory: pytest.TempPathFactory, count: int, run_rows: int, width: int, chance: random.Random
) -> None:
    folder = tmp_path_factory.getbasetemp()
    rows: list[dict[str, Any]] = [
        {"a": {"x": None if chance.random() < 0.2 else chance.randrange(width + 1)}, "b": chance.choice("xyz"), "n": n}
        for n in range(count)
    ]
    table = pa.Table.from_pylist(
        rows, pa.schema([("a", pa.struct([("x", pa.int64())])), ("b", pa.string()), ("n", pa.int64())])
    )
    runs = Runs([("a", "x"), ("b",)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_rows, "PART_ROWS", 37)
        for first in range(0, count, run_rows):
            runs.add(table.slice(first, run_rows), folder)
        found = [row for part in runs.merged() for row in part.to_pylist()]
    runs.close()
    assert found == sorted(rows, key=lambda row: (row["a"]["x"] is not None, row["a"]["x"] or 0, row["b"]))


def test_files_larger_than_a_row_group_are_sorted_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_BYTES", 2_000)
    monkeypatch.setattr(sorted_rows, "PART_ROWS", 40)
    cluster = orders((100, 100))
    cluster.bytes_per_offset = 1  # so small that the partitions share a file
    table = TableOptions(layout=ColumnLayout("{path}", sort_by=("value.rank",)))
    run(cluster, tmp_path, table=table, decoding=JSON, target_file_bytes=1 << 20)
    (path,) = tmp_path.glob("orders/*.parquet")
    assert pq.read_metadata(path).num_row_groups > 3
    rows = pq.read_table(path, partitioning=None).to_pylist()
    found = [(row["rank"], row["partition"], row["offset"]) for row in rows]
    assert found == sorted(((p * 1000 + o) * 7 % 11, p, o) for p in range(2) for o in range(100))
    assert verify(cluster, tmp_path).is_equal
    assert not [name for name in tmp_path.rglob("*") if name.suffix == ".tmp"]

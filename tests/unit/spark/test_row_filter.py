"""--where and --select: the language, compared with DuckDB, and exports with them."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.admin.records.conditions import RecordView
from kctl.admin.records.where import parse_where
from kctl.errors import UsageError
from kctl.records.header import Record
from kctl.tables.exec.decoding.rows import RowFilter
from kctl.tables.exec.schema.column_types import STRING, Columns, Decoding, Format, Struct
from kctl.tables.exec.selection.columns import schema
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.selection.row_selection import RowSelection
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from tests.rows import for_rows
from tests.unit.spark.crashing_files import Crash
from tests.unit.spark.scene import SILENT, Cluster, exporter, filled, run
from tests.unit.spark.stepped_port import crashing
from tests.unit.spark.test_tables import rows, stepped_commits
from tests.unit.spark.test_verification import rewrite, verify

FIELDS = (("id", "int64"), ("price", "double"), ("name", "string"), ("is_new", "boolean"), ("day", "date"))
VALUE = Struct((*FIELDS, ("total", "decimal(9,2)"), ("unit-price", "int32")))
COLUMNS = Columns(key=Decoding(Format.STRING, STRING), value=Decoding(Format.AVRO, VALUE))
JSON = DecodingOptions(value=FieldOptions(name="value", format=Format.JSON))
EVEN = RowSelection(where="value.id IN (0, 2, 4, 6, 8, 10, 12) OR offset > 12")
KINDS = list(TableKind)


def batch() -> pa.RecordBatch:
    """Records with all types, and nulls in each column."""
    names = [None, "a", "B", "it's", "100%", "ä", ""]
    values = [
        None
        if number == 40
        else {
            "id": None if number == 3 else number - 5,
            "price": None if number == 4 else number / 4,
            "name": names[number % 7],
            "is_new": [None, True, False][number % 3],
            "day": None if number == 5 else 20_000 + number,
            "total": None,
            "unit-price": number,
        }
        for number in range(41)
    ]
    columns = {
        "key": [None if number % 4 == 0 else f"k{number}" for number in range(41)],
        "value": values,
        "topic": ["orders"] * 41,
        "partition": [number % 3 for number in range(41)],
        "offset": list(range(41)),
        "timestamp": [1_793_491_200_000_000 + number * 3_600_000_000 for number in range(41)],
        "timestampType": [0] * 41,
    }
    arrow = schema(include_headers=False, columns=COLUMNS)
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in arrow], schema=arrow)


NUMBERS = st.sampled_from(["0", "3", "-2", "2.5", "1e1", "7.0"])
TEXTS = st.sampled_from(["'a'", "'B'", "'it''s'", "''", "'k1'", "'ä'", "'100%'"])
OPERATORS = st.sampled_from(["=", "!=", "<>", "<", "<=", ">", ">="])


def comparisons() -> st.SearchStrategy[str]:
    numbers = st.sampled_from(["value.id", "value.price", "partition", "offset", 'value."unit-price"'])
    texts = st.sampled_from(["key", "value.name", "topic"])
    compare = st.builds("{} {} {}".format, numbers, OPERATORS, NUMBERS) | st.builds(
        "{} {} {}".format, texts, OPERATORS, TEXTS
    )
    negation = st.sampled_from(["", "NOT "])
    lists = st.builds("{} {}IN ({}, {})".format, numbers, negation, NUMBERS, NUMBERS)
    likes = st.builds("{} {}LIKE {}".format, texts, negation, st.sampled_from(["'a%'", "'_'", "'%1%'", "'k_'", "''"]))
    nulls = st.builds("{} IS {}NULL".format, numbers | texts | st.just("value"), negation)
    days = st.builds("value.day {} '2024-10-{}'".format, OPERATORS, st.integers(10, 28))
    times = st.builds("timestamp {} '2026-11-01T{:02}:00:00Z'".format, OPERATORS, st.integers(0, 23))
    flags = st.builds("value.is_new {} {}".format, st.sampled_from(["=", "!="]), st.sampled_from(["true", "FALSE"]))
    return compare | lists | likes | nulls | days | times | flags


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: (
        st.builds("({} AND {})".format, inner, inner)
        | st.builds("{} or {}".format, inner, inner)
        | st.builds("{} and {}".format, inner, inner)
        | st.builds("NOT ({})".format, inner)
    ),
    max_leaves=6,
)


@pytest.mark.long
@settings(deadline=None, max_examples=20)
@given(st.lists(CONDITIONS, min_size=10, max_size=10))
def test_duckdb_selects_the_same_records(conditions: list[str]) -> None:
    import duckdb  # noqa: PLC0415

    records = batch()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("records", pa.Table.from_batches([records]))
        for where in conditions:
            quoted = re.sub(r"\b(offset|partition|timestamp)\b", r'"\1"', where)  # keywords of DuckDB
            expected = connection.sql(f'select "offset" from records where {quoted} order by 1').fetchall()
            kept, removed = RowFilter(where, COLUMNS).filtered(records)
            assert kept.column("offset").to_pylist() == [offset for (offset,) in expected], where
            assert removed == 41 - len(expected)


@for_rows(
    "where, message",
    [
        ("", "not the end at position 1"),
        ("offset >", "not the end at position 9"),
        ("offset > 1 1", "expected 'and', 'or' or the end, not '1'"),
        ("(offset > 1", "expected '\\)', not the end"),
        ("(" * 60 + "offset > 1" + ")" * 60, "more than 50 levels"),
        ("offset > 1 OR " * 1000 + "offset > 1", "more than 10,000 characters"),
    ],
)
def test_invalid_conditions_are_refused(where: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_where(where)


@for_rows(
    "where",
    [
        "offset = 'a'",
        "key > 1",
        "value.nothing = 1",
        "value.id.x = 1",
        "value = 'a'",
        "value.is_new = 1",
        "value.day = 'yesterday'",
        "value.id LIKE 'a'",
        "offset < 99999999999999999999",
        "offset < 1e999999",
        "value.total = 0.001",
        "headers IS NULL",
        "offset = partition",
        "1 = 1",
        "value.id",
        "value.id in value.name",
        "exists(value.id)",
        "value[0] = 1",
        "value.id = null and value.id > null",
    ],
)
def test_conditions_that_do_not_fit_the_columns_are_refused(where: str) -> None:
    with pytest.raises(UsageError):
        RowFilter(where, COLUMNS)


@pytest.mark.long
@settings(deadline=None, max_examples=20)
@given(st.lists(CONDITIONS.filter(lambda where: "value.day" not in where), min_size=10, max_size=10))
def test_single_records_and_columns_agree(conditions: list[str]) -> None:
    """The same condition selects the same records of `kctl consume`, which reads JSON, and of an export."""
    records = batch()
    single = []
    for row in records.to_pylist():
        document = None if row["value"] is None else {**row["value"], "day": None}
        single.append(
            Record(
                row["offset"],
                round(row["timestamp"].timestamp() * 1000),
                None if row["key"] is None else row["key"].encode(),
                None if document is None else json.dumps(document).encode(),
                (),
            )
        )
    for where in conditions:
        condition = parse_where(where)
        kept, _ = RowFilter(where, COLUMNS).filtered(records)
        selected = [
            record.offset
            for record in single
            if condition.holds(RecordView("orders", record.offset % 3, record)) is True
        ]
        assert kept.column("offset").to_pylist() == selected, where


@given(st.text("abc()'\"=<>!,.%_ 1e+-\\ANDORNOT", max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        parse_where(text)


def orders() -> Cluster:
    """12 and 7 records with an id, which is the offset, and more fields."""
    cluster = filled()
    cluster.value = lambda partition, offset: json.dumps(
        {"id": offset, "buyer": {"name": f"n{offset}", "city": "X"}, "note": "x"}
    ).encode()
    return cluster


def exported(folder: Path, table: TableOptions) -> list[tuple[int, int]]:
    if table.kind is not TableKind.PARQUET:
        found = rows(folder, table).select(["partition", "offset"]).to_pylist()
    else:
        files = sorted((folder / "orders").rglob("*.parquet"))
        found = [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted((row["partition"], row["offset"]) for row in found)


def even(cluster: Cluster) -> list[tuple[int, int]]:
    return [
        (p, offset) for p, end in enumerate(cluster.ends) for offset in range(end) if offset % 2 == 0 or offset > 12
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_filtered_records_are_counted_and_verification_expects_them_to_be_absent(
    tmp_path: Path, kind: TableKind
) -> None:
    table = TableOptions(kind=kind, rows=EVEN)
    cluster = orders()
    report = run(cluster, tmp_path, table=table, decoding=JSON)
    assert sum(part.filtered for outcome in report.batches[0].outcomes.values() for part in outcome.parts) == 9
    cluster.append(0, 4)
    run(cluster, tmp_path, table=table, decoding=JSON)
    assert exported(tmp_path, table) == even(cluster)
    assert run(cluster, tmp_path, table=table, decoding=JSON).batches == []
    if kind is TableKind.PARQUET:
        commit = json.loads((tmp_path / "_kctl/commits/000000000000.json").read_text())
        assert commit["filtered"] == {"orders-0": 6, "orders-1": 3}
    found = verify(cluster, tmp_path)
    assert found.is_equal
    assert found.filtered == 9
    assert sum(range_.topic_records or 0 for range_ in found.ranges) == len(even(cluster))
    # A filtered record that is exported nevertheless is a difference.
    path = next(path for path in sorted(tmp_path.rglob("orders+0*.parquet")))
    held = pq.read_table(path, partitioning=None)
    offset = held.schema.get_field_index("offset")
    offsets = pa.array([1, *held.column(offset).to_pylist()[1:]])
    rewrite(path, held.set_column(offset, held.schema.field(offset), offsets))
    spoiled = verify(cluster, tmp_path)
    assert sum(range_.unexpected or 0 for range_ in spoiled.ranges) == 1
    # Tables do not record where the export began, so that their first offset is not missed.
    assert sum(range_.missing or 0 for range_ in spoiled.ranges) == (kind is TableKind.PARQUET)


@pytest.mark.parametrize("kind", KINDS)
def test_a_filter_that_matches_no_record_exports_none_and_advances(tmp_path: Path, kind: TableKind) -> None:
    table = TableOptions(kind=kind, rows=RowSelection(where="partition > 5"))
    cluster = filled()
    assert len(run(cluster, tmp_path, table=table).batches) == 1
    assert run(cluster, tmp_path, table=table).batches == []
    assert not list(tmp_path.rglob("orders+*.parquet"))
    found = verify(cluster, tmp_path)
    assert found.is_equal
    assert found.filtered == (19 if kind is TableKind.PARQUET else 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long
def test_a_crash_at_any_step_of_a_filtered_export_is_recovered_from(tmp_path: Path, kind: TableKind) -> None:
    table = TableOptions(
        kind=kind, rows=RowSelection(("value.id", "timestamp"), EVEN.where), partition_by=Partitioning("date")
    )
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        cluster = orders()
        files = crashing(DiskFiles(folder), step)
        try:
            with stepped_commits(files):
                exporter(cluster, folder, files=files, table=table, decoding=JSON).run(SILENT)
        except Crash:
            pass
        else:
            break
        cluster.append(1, 4)
        run(cluster, folder, table=table, decoding=JSON)
        assert exported(folder, table) == even(cluster)
        run(cluster, folder, table=table, decoding=JSON)
    assert step > 9


@pytest.mark.parametrize("kind", KINDS)
def test_selected_columns_are_exported_with_those_that_identify_a_record(tmp_path: Path, kind: TableKind) -> None:
    table = TableOptions(kind=kind, rows=RowSelection(("value.id", "value.buyer.name", "timestamp")))
    cluster = orders()
    for _ in range(2):
        run(cluster, tmp_path, table=table, decoding=JSON)
        cluster.append(0, 3)
    found = pq.read_schema(next(tmp_path.rglob("orders+*.parquet")))
    assert found.names == ["value", "topic", "partition", "offset", "timestamp"]
    assert str(found.field("value").type) == "struct<id: int64, buyer: struct<name: string>>"
    verified = verify(cluster, tmp_path)
    assert verified.is_equal
    assert any("key was not compared" in warning for warning in verified.warnings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_that_is_not_selected_may_have_any_format(tmp_path: Path, kind: TableKind) -> None:
    table = TableOptions(kind=kind, rows=RowSelection(("key",)))
    text = DecodingOptions(value=FieldOptions(name="value", format=Format.STRING))
    cluster = filled()
    for _ in range(2):
        run(cluster, tmp_path, table=table, decoding=text)
        cluster.append(0, 3)
    assert len(exported(tmp_path, table)) == 22


@pytest.mark.parametrize(
    "selection",
    [
        RowSelection(("value.price",)),
        RowSelection(("headers",)),
        RowSelection(where="value.price > 1"),
        RowSelection(("value.id", "price")),
    ],
)
def test_unknown_columns_are_refused_before_anything_is_written(tmp_path: Path, selection: RowSelection) -> None:
    with pytest.raises(UsageError, match=r"there is no column|requires --include-headers"):
        run(orders(), tmp_path / "new", table=TableOptions(rows=selection), decoding=JSON)
    assert not list(tmp_path.iterdir())


def test_a_selection_without_the_column_of_the_partitions_is_refused(tmp_path: Path) -> None:
    table = TableOptions(rows=RowSelection(("key",)), partition_by=Partitioning("date"))
    with pytest.raises(UsageError, match="--select leaves out timestamp, which --partition-by needs"):
        run(filled(), tmp_path / "new", table=table)


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_keeps_its_selection(tmp_path: Path, kind: TableKind) -> None:
    where = "key = 'a --where b%' OR offset >= 0"
    table = TableOptions(kind=kind, rows=RowSelection(("key", "timestamp"), where))
    run(filled(), tmp_path, table=table)
    assert TableOptions.of_mark(table.mark, catalog=None, namespace="") == table
    for other in (
        TableOptions(kind=kind),
        TableOptions(kind=kind, rows=RowSelection(("key", "timestamp"), "offset >= 1")),
    ):
        with pytest.raises(UsageError, match="use the same options or another --to"):
            run(filled(), tmp_path, table=other)


@pytest.mark.parametrize("name", ["", "a b", "value.", ".x"])
def test_names_that_are_no_columns_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a column"):
        RowSelection((name,))

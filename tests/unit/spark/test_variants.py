"""Exports with `--value variant`: files that DuckDB reads as VARIANT, compactions, imports, and what is refused."""

from __future__ import annotations

import itertools
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import UsageError
from kctl.tables.commits.commit_log import CommitLog
from kctl.tables.commits.existing import ExistingExport
from kctl.tables.exec.outcome import BadRecords
from kctl.tables.exec.schema.arrow_types import VARIANT_TYPE, column_type
from kctl.tables.exec.schema.column_types import VARIANT, Format
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.selection.row_selection import RowSelection
from kctl.tables.exec.targets import target
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.exec.targets.target import PackageMissing
from kctl.tables.exec.targets.variant_footer import UnknownFooter, annotated
from kctl.tables.exec.targets.writer import ParquetFile
from kctl.tables.exports.summary import bad_reasons, columns_of
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.plans.decodings import DecodingOptions, FieldOptions
from kctl.tables.verification.data_files import DataFiles, UnreadableFile
from tests.rows import for_rows
from tests.unit.spark.crashing_files import Crash
from tests.unit.spark.scene import SILENT, Cluster, exporter, filled, run
from tests.unit.spark.stepped_port import crashing
from tests.unit.spark.test_compaction import compact
from tests.unit.spark.test_typed_exports import dead_letters
from tests.unit.spark.test_verification import verify

VALUE = FieldOptions(name="value", format=Format.VARIANT)
STRICT = DecodingOptions(value=VALUE)
LENIENT = DecodingOptions(value=VALUE, key=FieldOptions(name="key", format=Format.VARIANT), keeps_bad=True)
JSON = DecodingOptions(value=FieldOptions(name="value", format=Format.JSON))


def of_any_kind(partition: int, offset: int) -> bytes | None:
    """Values that no columns can be inferred for."""
    values: list[Callable[[], Any]] = [
        lambda: {"id": offset, "": None, "b": {"c": [1.5, "x"], "a": 2**63}},
        lambda: [partition, {"id": "text"}],
        lambda: offset,
        lambda: None,
        dict,
    ]
    return None if offset % 6 == 5 else json.dumps(values[offset % 6]()).encode()


def exported(folder: Path, count: int = 2) -> Cluster:
    cluster = filled()
    cluster.value = of_any_kind
    for _ in range(count):
        run(cluster, folder, decoding=STRICT)
        cluster.append(0, 6)
    run(cluster, folder, decoding=STRICT)
    return cluster


def values(folder: Path) -> dict[tuple[int, int], bytes | None]:
    """The values of all files as JSON."""
    topic = ExistingExport(DiskFiles(folder)).topic("orders")
    data = DataFiles(DiskFiles(folder), topic.paths, "orders", is_table=False)
    assert "value" in data.variants
    rows = [
        row
        for group in data.groups
        for partition in (0, 1)
        for batch in data.records(group, partition, 0, 0)
        for row in batch.to_pylist()
    ]
    found = {(row["partition"], row["offset"]): row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


def assert_exact(cluster: Cluster, folder: Path) -> None:
    found = values(folder)
    assert set(found) == {(p, offset) for p, end in enumerate(cluster.ends) for offset in range(end)}
    for (partition, offset), value in found.items():
        expected = of_any_kind(partition, offset)
        assert (value is None) == (expected is None)
        assert expected is None or json.loads(value or b"") == json.loads(expected)
    with duckdb.connect() as connection:
        query = "select distinct typeof(value) from read_parquet(?, hive_partitioning = false)"
        assert connection.execute(query, [str(folder / "orders" / "*.parquet")]).fetchall() == [("VARIANT",)]


def test_values_of_any_kind_are_variants_that_duckdb_reads(tmp_path: Path) -> None:
    cluster = exported(tmp_path)
    assert_exact(cluster, tmp_path)
    with duckdb.connect() as connection:
        query = 'select "offset", value::json from read_parquet(?) where "partition" = 0 order by 1'
        rows = connection.execute(query, [str(tmp_path / "orders" / "*.parquet")]).fetchall()
        query = "select sum(value.id::int) from read_parquet(?) where variant_typeof(value) like 'OBJECT(%id)'"
        (total,) = connection.execute(query, [str(tmp_path / "orders" / "*.parquet")]).fetchone() or ()
    # DuckDB does not distinguish the value null of JSON from null.
    theirs = [None if text is None else json.loads(text) for _, text in rows]
    assert theirs == [json.loads(of_any_kind(0, offset) or b"null") for offset in range(cluster.ends[0])]
    assert total == sum(o for end in cluster.ends for o in range(0, end, 6))


def test_files_are_equal_in_each_attempt(tmp_path: Path) -> None:
    for name in ("a", "b"):
        exported(tmp_path / name)
    first, second = (sorted((tmp_path / name / "orders").iterdir()) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


@pytest.mark.long
def test_a_crash_at_any_step_of_the_first_export_loses_and_repeats_nothing(tmp_path: Path) -> None:
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        cluster = filled()
        cluster.value = of_any_kind
        files = crashing(DiskFiles(folder), step)
        try:
            exporter(cluster, folder, files=files, decoding=STRICT).run(SILENT)
        except Crash:
            run(cluster, folder, decoding=STRICT)
            assert_exact(cluster, folder)
        else:
            break
    assert step > 5


def test_compacted_files_are_variants_too(tmp_path: Path) -> None:
    cluster = exported(tmp_path)
    (found,) = compact(tmp_path)
    assert (found.files_after, found.status) == (1, "compacted")
    assert_exact(cluster, tmp_path)
    cluster.append(1, 5)
    run(cluster, tmp_path, decoding=STRICT)
    assert_exact(cluster, tmp_path)


def test_log_entries_have_a_version_that_earlier_kctl_refuses(tmp_path: Path) -> None:
    exported(tmp_path)
    compact(tmp_path)
    entries = [json.loads(path.read_text()) for path in sorted((tmp_path / "_kctl").rglob("0*.json"))]
    assert {entry["version"] for entry in entries if "compaction" not in entry} == {5}
    columns = entries[-1].get("topics", {}).get("orders", {}).get("value", {"type": "variant"})
    assert columns["type"] == "variant"


def test_lost_commits_are_rebuilt_with_the_variants_of_the_files(tmp_path: Path) -> None:
    cluster = exported(tmp_path)
    for path in (tmp_path / "_kctl").rglob("*.json"):
        path.unlink()
    cluster.append(0, 8)
    run(cluster, tmp_path, decoding=STRICT, adopts=True)
    assert_exact(cluster, tmp_path)


def test_variants_are_compared_with_the_values_of_the_topic(tmp_path: Path) -> None:
    cluster = exported(tmp_path)
    found = verify(cluster, tmp_path)
    assert (found.is_equal, found.warnings) == (True, [])
    changed = {(0, 1): b'[0, {"id": "other"}]', (0, 3): b"0", (0, 5): b"null"}
    cluster.value = lambda partition, offset: changed.get((partition, offset), of_any_kind(partition, offset))
    assert [(range_.different, range_.offset) for range_ in verify(cluster, tmp_path).ranges] == [(3, 1), (0, None)]
    cluster.value = of_any_kind
    min((tmp_path / "orders").iterdir()).unlink()
    assert not verify(cluster, tmp_path).is_equal


def test_variants_are_compared_beside_dead_letters(tmp_path: Path) -> None:
    cluster = filled()
    cluster.value = lambda partition, offset: b"{" if offset == 3 else of_any_kind(partition, offset)
    run(cluster, tmp_path, decoding=LENIENT)
    found = verify(cluster, tmp_path)
    assert (found.is_equal, found.warnings) == (True, [])
    cluster.value = lambda partition, offset: b"[" if offset == 3 else of_any_kind(partition, offset)
    assert [range_.different for range_ in verify(cluster, tmp_path).ranges] == [1, 1]


def test_records_that_are_not_json_become_dead_letters_with_the_reasons_of_json(tmp_path: Path) -> None:
    cluster = filled()
    bad = {3: b"\xff", 4: b"{", 5: b"1e999"}
    cluster.value = lambda partition, offset: bad.get(offset, b'"k"')
    with pytest.raises(BadRecords, match="the record at offset 0 cannot be exported: key: it is not JSON"):
        run(cluster, tmp_path / "new", decoding=DecodingOptions(key=LENIENT.key))
    assert not (tmp_path / "new").exists()
    report = run(cluster, tmp_path, decoding=DecodingOptions(value=VALUE, keeps_bad=True))
    assert bad_reasons(report) == {
        "value: it is not UTF-8": 2,
        "value: it is not JSON": 2,
        "value: a number is beyond the range of doubles": 2,
    }
    assert {row["offset"]: row["value"] for row in dead_letters(tmp_path)} == bad
    assert len(values(tmp_path)) == 13
    assert [(row.name, row.type) for row in columns_of([report.batches[0].plan])] == [("value", "variant")]


@pytest.mark.parametrize(("first", "second"), [(STRICT, JSON), (JSON, STRICT)], ids=["variant", "json"])
def test_variants_and_columns_of_json_do_not_change_into_each_other(
    tmp_path: Path, first: DecodingOptions, second: DecodingOptions
) -> None:
    cluster = filled()
    run(cluster, tmp_path, decoding=first)
    cluster.append(0, 1)
    with pytest.raises(UsageError, match=r"the value of topic orders is .* in the export and would become"):
        run(cluster, tmp_path, decoding=second)


@pytest.mark.parametrize("kind", [TableKind.ICEBERG, TableKind.DELTA])
def test_tables_are_refused_at_once(tmp_path: Path, kind: TableKind) -> None:
    with pytest.raises(UsageError, match=r"cannot add files with variants to a table; use --table parquet, or --value"):
        exporter(filled(), tmp_path / "new", table=TableOptions(kind=kind), decoding=STRICT)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "table",
    [
        TableOptions(partition_by=Partitioning("country")),
        TableOptions(rows=RowSelection(("value.id",))),
        TableOptions(rows=RowSelection(where="value.id = 3")),
    ],
    ids=["partition-by", "select", "where"],
)
def test_paths_into_variants_are_refused_before_anything_is_written(tmp_path: Path, table: TableOptions) -> None:
    with pytest.raises(UsageError, match="value is a variant, whose members are not columns: use --value json"):
        run(filled(), tmp_path / "new", table=table, decoding=STRICT)
    assert not (tmp_path / "new").exists()


def test_whole_variants_are_compared_with_null_selected_and_partitioned_by_time(tmp_path: Path) -> None:
    cluster = filled()
    cluster.value = of_any_kind
    with pytest.raises(UsageError, match="value is variant, which cannot be compared with x"):
        run(cluster, tmp_path, table=TableOptions(rows=RowSelection(where="value = 'x'")), decoding=STRICT)
    rows = RowSelection(("value",), "value IS NOT NULL")
    run(cluster, tmp_path, table=TableOptions(rows=rows), decoding=STRICT)
    assert set(values(tmp_path)) == {(p, o) for p, end in enumerate(cluster.ends) for o in range(end) if o % 6 != 5}
    assert verify(cluster, tmp_path).is_equal
    by_date = tmp_path / "dates"
    run(cluster, by_date, table=TableOptions(partition_by=Partitioning("date")), decoding=STRICT, include_headers=True)
    assert len(values(by_date)) == sum(cluster.ends)


def test_several_topics_in_one_folder_are_variants(tmp_path: Path) -> None:
    cluster = filled()
    cluster.topics = ["orders", "payments"]
    run(cluster, tmp_path, table=TableOptions(is_shared=True), decoding=STRICT)
    assert CommitLog(DiskFiles(tmp_path), is_shared=True).positions().columns["payments"].value == VARIANT
    with duckdb.connect() as connection:
        query = "select topic, typeof(any_value(value)), count(*) from read_parquet(?) group by 1 order by 1"
        rows = connection.execute(query, [str(tmp_path / "data" / "*.parquet")]).fetchall()
    assert rows == [("orders", "VARIANT", 19), ("payments", "VARIANT", 19)]


def test_a_schema_is_refused() -> None:
    with pytest.raises(UsageError, match="--value-schema is an option of --value json, avro and protobuf"):
        FieldOptions(name="value", format=Format.VARIANT, schema="registry")


def test_an_old_pyarrow_which_could_not_read_the_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "version", lambda package: "21.0.0")
    with pytest.raises(PackageMissing, match=r"variants need pyarrow 22 or later, and 21\.0\.0 is installed"):
        run(filled(), tmp_path / "new", decoding=STRICT)
    assert not (tmp_path / "new").exists()


def test_a_damaged_variant_is_named_with_its_file(tmp_path: Path) -> None:
    cluster = exported(tmp_path, count=0)
    path = min((tmp_path / "orders").iterdir())
    rows = pq.read_table(path)
    damaged = pa.array([{"metadata": b"\x11\x00\x00", "value": b"\x03\x01"}] * rows.num_rows, VARIANT_TYPE)
    index = rows.schema.get_field_index("value")
    write(path, rows.set_column(index, rows.schema.field(index), damaged))
    assert cluster.ends == [12, 7]
    with pytest.raises(UnreadableFile, match=rf"{re.escape(path.name)}: value: not a variant"):
        values(tmp_path)


def write(path: Path, table: pa.Table) -> None:
    file = ParquetFile(lambda: path, schema=table.schema, compression="none", metadata={})
    for batch in table.to_batches():
        file.add(batch)
    file.finish({})


ROWS = pa.table(
    {
        "before": pa.array([{"a": [1], "t": 0}], pa.struct([("a", pa.list_(pa.int8())), ("t", pa.timestamp("us"))])),
        "value": pa.array([{"metadata": b"\x11\x00\x00", "value": b"\x0c\x07"}], VARIANT_TYPE),
        "flat": pa.array(["x"]),
        "key": pa.array([None], VARIANT_TYPE),
        "nullable": pa.array([None], pa.struct([("metadata", pa.binary()), ("value", pa.binary())])),
    }
)


@pytest.fixture(scope="module")
def footer(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A footer as pyarrow writes it."""
    path = tmp_path_factory.mktemp("footer") / "x.parquet"
    pq.write_table(ROWS, path)
    data = path.read_bytes()
    (size,) = struct.unpack("<I", data[-8:-4])
    return data[-8 - size : -8]


def test_only_the_type_of_the_variants_is_added_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write(path, ROWS)
    assert pq.read_table(path).equals(ROWS)
    assert column_type(pq.read_schema(path).field("value").type) == VARIANT
    with duckdb.connect() as connection:
        (types,) = connection.execute("select typeof(columns(*)) from read_parquet(?)", [str(path)]).fetchall()
    assert types[1:] == ("VARIANT", "VARCHAR", "VARIANT", 'STRUCT(metadata BLOB, "value" BLOB)')


def test_a_footer_grows_by_the_annotations(footer: bytes) -> None:
    assert annotated(footer, []) == footer
    one = annotated(footer, ["value"])
    assert len(one) == len(footer) + 7
    assert annotated(one, ["key"]) == annotated(footer, ["key", "value"])
    with pytest.raises(UnknownFooter, match="value is not a group"):
        annotated(one, ["value"])


@for_rows("name", ["missing", "before", "flat", "nullable", "metadata", "schema"])
def test_other_columns_are_refused(footer: bytes, name: str) -> None:
    with pytest.raises(UnknownFooter):
        annotated(footer, ["value", name])


def test_a_footer_that_is_cut_off_is_refused(footer: bytes) -> None:
    end = len(annotated(footer, ["key"])) - len(footer)
    schema = footer.index(b"nullable") + end
    for length in range(schema):
        with pytest.raises(UnknownFooter):
            annotated(footer[:length], ["key"])


@given(data=st.data())
def test_any_bytes_are_annotated_or_refused(footer: bytes, data: st.DataObject) -> None:
    changed = bytearray(footer)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, 400))] = data.draw(st.integers(0, 255))
    try:
        found = annotated(bytes(changed), ["key"])
    except UnknownFooter:
        return
    assert len(found) == len(changed) + 7

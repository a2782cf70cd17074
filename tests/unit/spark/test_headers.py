"""Headers as a list, a map, or columns: in all kinds of tables, in comparisons and after a compaction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kctl.errors import UsageError
from kctl.tables.exec.file_task import dead_letters_path
from kctl.tables.exec.selection.columns import HEADER_MAP, HEADERS, entries_of, form_of, formed, headers_type
from kctl.tables.exec.selection.row_selection import HEADER_LIST, HeaderForm
from kctl.tables.formats import iceberg
from kctl.tables.formats.kinds import TableKind, TableOptions
from tests.rows import for_rows
from tests.unit.spark.scene import Cluster, filled, run
from tests.unit.spark.test_typed_exports import LENIENT, with_bad_records
from tests.unit.spark.test_verification import Topic, verify

MAP = HeaderForm("map")
COLUMNS = HeaderForm("columns", ("trace-id", "source"))
KINDS = pytest.mark.parametrize("kind", list(TableKind))

ROWS: list[Any] = [
    None,
    [("trace-id", b"1"), ("x", b"2"), ("trace-id", b"3")],
    [("x", None)],
    [("source", None), ("", b"")],
    None,
    [("source", b"s"), ("trace-id", None)],
]
AS_MAP: list[Any] = [
    None,
    [("x", b"2"), ("trace-id", b"3")],
    [("x", None)],
    [("source", None), ("", b"")],
    None,
    [("source", b"s"), ("trace-id", None)],
]
AS_COLUMNS: list[Any] = [
    None,
    {"trace-id": b"3", "source": None},
    {"trace-id": None, "source": None},
    {"trace-id": None, "source": None},
    None,
    {"trace-id": None, "source": b"s"},
]


def headers_of(offset: int) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(ROWS[offset % len(ROWS)] or ())


def listed(rows: list[Any]) -> pa.Array:
    dicts = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    return pa.array(dicts, HEADERS)


@for_rows("form, expected", [(MAP, AS_MAP), (COLUMNS, AS_COLUMNS)])
@for_rows("part", [slice(0, 6), slice(1, 4), slice(0, 1), slice(0, 0)])
def test_a_list_becomes_a_map_or_columns(form: HeaderForm, expected: list[Any], part: slice) -> None:
    column = listed(ROWS)[part.start : part.stop]
    batch = pa.RecordBatch.from_arrays([column], names=["headers"])
    found = formed(batch, form).column(0)
    found.validate(full=True)
    assert found.type == headers_type(form)
    assert found.to_pylist() == expected[part]
    assert form_of(found.type) == form
    assert formed(batch, HEADER_LIST).column(0).equals(column)


def test_a_map_and_columns_become_a_list_again_as_far_as_they_have_the_entries() -> None:
    assert entries_of(pa.array(AS_MAP, HEADER_MAP)).equals(listed(AS_MAP))
    columns = pa.array(AS_COLUMNS, headers_type(COLUMNS))
    assert entries_of(columns).equals(listed([None, [("trace-id", b"3")], [], [], None, [("source", b"s")]]))


@pytest.mark.parametrize("text", ["list", "map", "columns:trace-id,source"])
def test_forms_are_read_as_they_are_written(text: str) -> None:
    assert HeaderForm.parse(text).text == text


@for_rows(
    "text, complaint",
    [
        ("maps", "is list, map or columns:NAME,NAME"),
        ("columns", "is list, map or columns:NAME,NAME"),
        ("map:a", "is list, map or columns:NAME,NAME"),
        ("columns:a,,b", "tables do not accept ''"),
        ("columns:a.b", "tables do not accept 'a.b'"),
        ("columns:a,A", "a name is there twice"),
        ("columns:" + ",".join(f"h{n}" for n in range(1_001)), "at most 1000 headers"),
    ],
)
def test_other_forms_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        HeaderForm.parse(text)


def read(folder: Path, kind: TableKind) -> list[Any]:
    """The headers of partition 0 in the order of offsets."""
    if kind is TableKind.DELTA:
        rows = DeltaTable(folder / "orders").to_pyarrow_table().to_pylist()
    elif kind is TableKind.ICEBERG:
        rows = iceberg.default_catalog(folder).load_table("kafka.orders").scan().to_arrow().to_pylist()
    else:
        rows = [row for path in folder.glob("orders/*.parquet") for row in pq.read_table(path).to_pylist()]
    return [row["headers"] for row in sorted(rows, key=lambda row: row["offset"]) if row["partition"] == 0]


@pytest.mark.long
@KINDS
@pytest.mark.parametrize(("form", "expected"), [(HEADER_LIST, None), (MAP, AS_MAP), (COLUMNS, AS_COLUMNS)])
def test_exports_have_the_form_and_compare_equal(
    tmp_path: Path, kind: TableKind, form: HeaderForm, expected: list[Any] | None
) -> None:
    cluster = filled()
    cluster.headers = headers_of
    table = TableOptions(kind=kind, headers=form)
    for count in (3, 8):
        run(cluster, tmp_path, table=table, include_headers=True)
        cluster.append(0, count)
    run(cluster, tmp_path, table=table, include_headers=True)
    if expected:
        assert read(tmp_path, kind) == [expected[offset % len(ROWS)] for offset in range(cluster.ends[0])]
    found = verify(Topic(cluster), tmp_path)
    assert found.warnings == []
    assert {row.status for row in found.ranges} == {"equal"}
    cluster.headers = lambda offset: (("source", b"other"),) if offset == 5 else headers_of(offset)
    different = [row.status for row in verify(Topic(cluster), tmp_path).ranges]
    assert different == ["different", "different"]


@KINDS
def test_dead_letters_keep_all_headers(tmp_path: Path, kind: TableKind) -> None:
    cluster = Cluster(1)
    cluster.append(0, 10)
    cluster.value, cluster.headers = with_bad_records, headers_of
    table = TableOptions(kind=kind, headers=MAP)
    run(cluster, tmp_path, table=table, include_headers=True, decoding=LENIENT)
    (path,) = (tmp_path / dead_letters_path("orders")).rglob("*.parquet")
    rows = {row["offset"]: row["headers"] for row in pq.read_table(path).to_pylist()}
    assert rows == {4: None, 9: [{"key": "source", "value": None}, {"key": "", "value": b""}]}
    assert {row.status for row in verify(Topic(cluster), tmp_path).ranges} == {"equal"}


@KINDS
def test_another_form_is_refused(tmp_path: Path, kind: TableKind) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=TableOptions(kind=kind, headers=MAP), include_headers=True)
    for other in (HEADER_LIST, COLUMNS):
        with pytest.raises(UsageError, match="--headers map"):
            run(cluster, tmp_path, table=TableOptions(kind=kind, headers=other), include_headers=True)

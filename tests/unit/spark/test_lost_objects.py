"""As test_lost_metadata, for exports into object stores: the library's store in memory, and an S3 server."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pyarrow.parquet as pq
import pyiceberg.catalog
import pytest
from deltalake import DeltaTable
from obstore.store import MemoryStore, from_url
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from kctl.tables.exec.targets.object_files import ObjectFiles
from kctl.tables.formats.kinds import TableKind, TableOptions
from tests.peers import s3_server
from tests.unit.spark.scene import filled, run
from tests.unit.spark.test_lost_metadata import (
    BY_DATE,
    DELTA,
    LAST_VERSION,
    PARQUET,
    PARTS,
    REPLACEMENTS,
    SHARED,
    Lake,
    check_right_or_refused,
)

CATALOG = "shop"
ICEBERG = TableOptions(kind=TableKind.ICEBERG, catalog=CATALOG)
S3_PARTS = {
    DELTA: ("_kctl", "orders/_delta_log", f"orders/_delta_log/{LAST_VERSION}", "orders/_published"),
    ICEBERG: ("_kctl/table", "orders/metadata", "orders/_published"),
}


class ObjectLake(Lake):
    """An export of three batches in an object store, and perhaps in a catalogue, which is not in the store."""

    def __init__(
        self,
        url: str,
        store: Any,
        table: TableOptions,
        counts: tuple[int, int] = (3, 5),
        catalog: Path | None = None,
    ) -> None:
        self.table = table
        self.cluster = filled()
        self._url = url
        self._store = store
        self._states: list[dict[str, bytes]] = []
        for count in (*counts, 0):
            self.run()
            self._states.append(self._objects())
            self.cluster.append(0, count)
        self._first_ends = list(self.cluster.ends)
        self._catalog = catalog
        self._last_catalog = catalog.read_bytes() if catalog else b""

    def run(self) -> None:
        run(self.cluster, Path("unused"), files=ObjectFiles(self._url, store=self._store), table=self.table)

    def restored(self) -> None:
        self.remove("")
        self.put("", 2)
        if self._catalog:
            self._catalog.write_bytes(self._last_catalog)
        self.cluster.ends = list(self._first_ends)

    def remove(self, part: str) -> None:
        for path in _below(part, self._paths()):
            obstore.delete(self._store, path)

    def put(self, part: str, batch: int, of: Lake | None = None) -> None:
        other = of or self
        assert isinstance(other, ObjectLake)
        state = other._states[batch]
        for path in _below(part, state):
            obstore.put(self._store, path, state[path])

    def data_files(self) -> set[str]:
        return {path for path in self._paths() if path.endswith(".parquet") and not path.startswith("_")}

    def values(self) -> list[bytes]:
        match self.table.kind:
            case TableKind.PARQUET:
                objects = self._objects()
                tables = [pq.read_table(io.BytesIO(objects[path]), partitioning=None) for path in self.data_files()]
                found = [value for table in tables for value in table["value"].to_pylist()]
            case TableKind.DELTA:
                options = {"allow_http": "true"}
                found = (
                    DeltaTable(f"{self._url}/orders", storage_options=options).to_pyarrow_table()["value"].to_pylist()
                )
            case TableKind.ICEBERG:
                table = load_catalog(CATALOG).load_table(f"{self.table.namespace or 'kafka'}.orders")
                found = table.scan().to_arrow()["value"].to_pylist()
        return sorted(found)

    def _objects(self) -> dict[str, bytes]:
        return {path: bytes(obstore.get(self._store, path).bytes()) for path in self._paths()}

    def _paths(self) -> list[str]:
        return [object_["path"] for page in obstore.list(self._store) for object_ in page]


def _below(part: str, paths: Iterable[str]) -> list[str]:
    return [path for path in paths if not part or path == part or path.startswith(f"{part}/")]


@pytest.fixture(scope="module")
def memory_lake_of() -> Callable[[TableOptions, bool], ObjectLake]:
    """The export with certain options, or another one; made once."""
    lakes: dict[tuple[TableOptions, bool], ObjectLake] = {}

    def lake(table: TableOptions, is_other: bool) -> ObjectLake:
        if (table, is_other) not in lakes:
            counts = (4, 6) if is_other else (3, 5)
            lakes[table, is_other] = ObjectLake("s3://lake/shop", MemoryStore(), table, counts)
        return lakes[table, is_other]

    return lake


@pytest.mark.long
@pytest.mark.parametrize("replacement", REPLACEMENTS)
@pytest.mark.parametrize(
    ("table", "part"),
    [
        pytest.param(table, part, id=f"{table.mark.removeprefix('--table ')}, {part}")
        for table in (PARQUET, SHARED, BY_DATE)
        for part in PARTS[table]
    ],
)
def test_an_export_in_an_object_store_without_a_part_of_its_metadata_is_right_or_refused(
    memory_lake_of: Callable[[TableOptions, bool], ObjectLake], table: TableOptions, part: str, replacement: str
) -> None:
    check_right_or_refused(memory_lake_of(table, False), lambda: memory_lake_of(table, True), part, replacement)


@pytest.fixture(scope="module")
def s3_lake_of(tmp_path_factory: pytest.TempPathFactory, s3_url: str) -> Iterator[Callable[[TableOptions], ObjectLake]]:
    """Exports into Delta and Iceberg tables on an S3 server, made once; the path of the target has odd characters."""
    folder = tmp_path_factory.mktemp("catalog")
    lakes: dict[TableOptions, ObjectLake] = {}

    def lake(table: TableOptions) -> ObjectLake:
        if table not in lakes:
            url = f"s3://{s3_server.BUCKET}/lost {{ä}}" if table is DELTA else f"s3://{s3_server.BUCKET}/lost"
            options: Any = {"allow_http": True}
            catalog = folder / "catalog.db" if table is ICEBERG else None
            lakes[table] = ObjectLake(url, from_url(url, client_options=options), table, catalog=catalog)
        return lakes[table]

    with pytest.MonkeyPatch.context() as patch:
        s3_server.set_variables(patch, s3_url)
        patch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
        patch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{folder}/catalog.db")
        patch.setenv("PYICEBERG_CATALOG__SHOP__S3__ENDPOINT", s3_url)
        patch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # read when pyiceberg was imported
        yield lake


@pytest.mark.server
@pytest.mark.parametrize("replacement", ["gone", pytest.param("after batch 1", marks=pytest.mark.matrix)])
@pytest.mark.parametrize(
    ("table", "part"),
    [pytest.param(table, part, id=f"{table.kind}, {part}") for table in (DELTA, ICEBERG) for part in S3_PARTS[table]],
)
def test_a_table_on_an_s3_server_without_a_part_of_its_metadata_is_right_or_refused(
    s3_lake_of: Callable[[TableOptions], ObjectLake], table: TableOptions, part: str, replacement: str
) -> None:
    lake = s3_lake_of(table)
    check_right_or_refused(lake, lambda: lake, part, replacement)

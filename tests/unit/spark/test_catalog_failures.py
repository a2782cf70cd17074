"""A catalogue in SQLite that is damaged, locked or not a file is one line with the remedy; the export goes on later."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from kctl.cli import main
from kctl.tables.commits.existing import ExistingExport
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.formats.iceberg_catalogs import catalog_failure
from kctl.tables.formats.kinds import TableKind, TableOptions
from kctl.tables.formats.table import TableFailed
from tests.unit.spark.scene import SILENT, exporter, filled, run, value

pytestmark = pytest.mark.long

ICEBERG = TableOptions(kind=TableKind.ICEBERG)


def truncate(database: Path) -> None:
    database.write_bytes(database.read_bytes()[:5_000])


def overwrite(database: Path) -> None:
    database.write_bytes(b"not a database" * 1_000)


def make_a_folder(database: Path) -> None:
    database.unlink()
    database.mkdir()


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (truncate, "is damaged (database disk image is malformed): restore it from a backup, or "),
        (overwrite, "is damaged (file is not a database): restore it from a backup, or "),
        (make_a_folder, "cannot be used (unable to open database file): check that it is a file "),
    ],
)
def test_a_damaged_catalogue_is_one_line_with_the_remedy(
    tmp_path: Path, damage: Callable[[Path], None], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=ICEBERG)
    database = tmp_path / "_kctl" / "catalog.db"
    whole = database.read_bytes()
    damage(database)
    cluster.append(0, 3)
    line = re.escape(f"the catalogue {database} {complaint}")
    with pytest.raises(TableFailed, match=line):
        run(cluster, tmp_path, table=ICEBERG)
    with pytest.raises(TableFailed, match=line):
        exporter(cluster, tmp_path, table=ICEBERG).plan()
    assert main(["tables", "compact", str(tmp_path), "--yes"]) == 1
    output = capsys.readouterr().err
    assert re.fullmatch(rf"kctl: {line}.*\n", output)
    if database.is_dir():
        database.rmdir()
    database.write_bytes(whole)
    run(cluster, tmp_path, table=ICEBERG)
    assert ExistingExport(DiskFiles(tmp_path)).state().topics["orders"].position.partitions[0].offset == 15


def test_a_catalogue_that_is_locked_at_the_commit_gets_the_batch_later(tmp_path: Path) -> None:
    cluster = filled()
    run(cluster, tmp_path, table=ICEBERG)
    cluster.append(0, 3)
    database = tmp_path / "_kctl" / "catalog.db"
    other = sqlite3.connect(database, isolation_level=None)

    def locking(partition: int, offset: int) -> bytes:
        if not other.in_transaction:
            other.execute("BEGIN EXCLUSIVE")
        return value(partition, offset)

    cluster.value = locking
    with pytest.raises(TableFailed, match=f"the catalogue {re.escape(str(database))} is locked by another program: "):
        run(cluster, tmp_path, table=ICEBERG)
    other.close()
    cluster.value = value
    exporter(cluster, tmp_path, table=ICEBERG).run(SILENT)
    topics = ExistingExport(DiskFiles(tmp_path)).state().topics
    assert (topics["orders"].batch, topics["orders"].position.partitions[0].offset) == (1, 15)
    (folder,) = (tmp_path / "orders" / "data").glob("*1")
    assert len(os.listdir(folder)) == 1


def test_other_failures_have_no_remedy_for_a_database() -> None:
    assert catalog_failure(ValueError("no"), "catalog.db") == ""

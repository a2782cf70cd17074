"""Requests to an S3 server fail: lost responses, closed connections, 503, expired credentials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kctl.errors import KctlError
from kctl.tables.exec.targets.target import open_files
from kctl.tables.formats.kinds import TableKind, TableOptions
from tests.peers import s3_server
from tests.peers.s3_server import BUSY, EXPIRED, LOST, RESET
from tests.unit.spark.scene import expected_values, filled, run
from tests.unit.spark.test_stores import values

pytestmark = pytest.mark.server

DELTA = TableOptions(kind=TableKind.DELTA)
WRITES = {
    "plan": (TableOptions(), r"plans/000000000001\.json"),
    "data file": (TableOptions(), r"orders/orders\+0\+0*12-.*parquet"),
    "commit": (TableOptions(), r"commits/000000000001\.json"),
    "record of a commit": (DELTA, r"_published/000000000001\.json"),
    "version of a table": (DELTA, r"_delta_log/.*0001\.json"),
}


@pytest.fixture
def target(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    s3_server.set_variables(monkeypatch, s3_url)
    yield f"s3://{s3_server.BUCKET}/{tmp_path.name}"
    s3_server.set_faults(s3_url, [])


def read(target: str, table: TableOptions) -> list[bytes]:
    if table.kind is TableKind.PARQUET:
        return values(open_files(target))
    found = DeltaTable(f"{target}/orders", storage_options={"allow_http": "true"}).to_pyarrow_table()
    return sorted(found["value"].to_pylist())


@pytest.mark.parametrize("fault", [LOST, *(pytest.param(fault, marks=pytest.mark.matrix) for fault in (RESET, BUSY))])
@pytest.mark.parametrize("write", WRITES)
def test_a_failed_request_is_repeated_and_its_own_object_is_recognized(
    s3_url: str, target: str, tmp_path: Path, write: str, fault: str
) -> None:
    table, path = WRITES[write]
    cluster = filled()
    run(cluster, tmp_path, files=open_files(target), table=table)
    cluster.append(0, 6)
    s3_server.set_faults(s3_url, [("PUT", path, fault)])
    report = run(cluster, tmp_path, files=open_files(target), table=table)
    assert s3_server.set_faults(s3_url, []) == []
    assert [batch.plan.batch for batch in report.batches] == [1]
    assert read(target, table) == expected_values(cluster)
    assert run(cluster, tmp_path, files=open_files(target), table=table).batches == []


@pytest.mark.parametrize("write", WRITES)
def test_an_export_whose_credentials_expire_is_completed_by_the_next_run(
    s3_url: str, target: str, tmp_path: Path, write: str
) -> None:
    table, path = WRITES[write]
    cluster = filled()
    run(cluster, tmp_path, files=open_files(target), table=table)
    cluster.append(0, 6)
    s3_server.set_faults(s3_url, [("PUT", path, EXPIRED)])
    with pytest.raises(KctlError) as raised:
        run(cluster, tmp_path, files=open_files(target), table=table)
    assert "\n" not in str(raised.value)
    assert "403 Forbidden" in str(raised.value)
    assert s3_server.set_faults(s3_url, []) == []
    cluster.append(1, 4)
    run(cluster, tmp_path, files=open_files(target), table=table)
    assert read(target, table) == expected_values(cluster)


def test_lists_of_several_pages_are_complete(target: str) -> None:
    files = open_files(target)
    names = [f"{number:03}" for number in range(3 * s3_server.KEYS_PER_PAGE + 1)]
    for name in names:
        files.create(f"objects/{name}", b"")
        files.create(f"folders/{name}/object", b"")
    assert (files.names("objects"), files.names("folders")) == (names, names)

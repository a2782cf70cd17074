"""Iceberg tables in Apache Iceberg's own REST catalogue, with OAuth2: exported, killed, merged and compared."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.catalog
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from tests.integration.spark.peer import RUN_TIMEOUT_S, Topic, export, export_command, run_engine, run_export
from tests.integration.spark.test_current_state import DEBEZIUM, Database
from tests.integration.spark.test_tables import append
from tests.peers import apache_kafka
from tests.peers.iceberg_rest import CLIENT_ID, RestCatalog, iceberg_rest
from tests.peers.probe import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeTopic = Callable[..., Topic]
LOCAL = pytest.mark.parametrize("engine", ["local"], indirect=True)
TABLE = ("--table", "iceberg", "--catalog", "shop", "--namespace", "sales")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    with iceberg_rest(tmp_path_factory.mktemp("rest")) as started:
        yield started


def use(catalog: RestCatalog, monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    """Set the variables of pyiceberg, which this process has read before."""
    for name, value in catalog.environment("shop", **more).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())


@pytest.fixture(autouse=True)
def variables(catalog: RestCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    use(catalog, monkeypatch)


def rows_of(catalog: RestCatalog, topic: Topic) -> pa.Table:
    """Read by pyiceberg, which asks the catalogue."""
    loaded = load_catalog("another", **catalog.settings())
    return loaded.load_table(("sales", topic.name.replace("-", "_"))).scan().to_arrow()


def kctl(*words: str) -> Any:
    status, printed, output = run_engine("local", *words, "--format", "json")
    assert status == 0, output
    return json.loads(printed)


@LOCAL
def test_tables_of_a_rest_catalogue_are_exact(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, catalog: RestCatalog
) -> None:
    topic = make_topic(kctl_bootstrap, 3)
    append(topic, 300)
    assert export(topic, tmp_path, *TABLE)["records"] == 300
    append(topic, 900)
    with subprocess.Popen(
        export_command(topic, tmp_path, *TABLE, "--target-file-size", "4k"), stdout=subprocess.PIPE
    ) as driver:
        started = lambda: len(list(tmp_path.rglob("*.parquet"))) > 3 or driver.poll() is not None  # noqa: E731
        wait_until(started, what="a file of the second batch", timeout_s=RUN_TIMEOUT_S, interval_s=0.005)
        driver.kill()
    export(topic, tmp_path, *TABLE)
    expected = sorted((row[0], row[1], row[3]) for row in topic.rows)
    assert found(rows_of(catalog, topic)) == expected
    (merged,) = kctl("tables", "compact", str(tmp_path), "--yes", *TABLE[2:])
    assert (merged["status"], merged["files_after"]) == ("compacted", 1)
    assert found(rows_of(catalog, topic)) == expected
    verify = ("tables", "verify", topic.name, str(tmp_path), "--from-start", *TABLE[2:])
    ranges = kctl(*verify, "--bootstrap-server", kctl_bootstrap)
    assert [(row["status"], row["table_records"]) for row in ranges] == [("equal", 400)] * 3
    (state, *_) = kctl("tables", "status", str(tmp_path), *TABLE[2:], "--bootstrap-server", kctl_bootstrap)
    assert state["state"] == "current"


def found(table: pa.Table) -> list[tuple[int, int, bytes | None]]:
    return sorted((row["partition"], row["offset"], row["value"]) for row in table.to_pylist())


@LOCAL
def test_the_current_state_in_a_rest_catalogue_is_that_of_the_database(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, catalog: RestCatalog
) -> None:
    topic = make_topic(kctl_bootstrap, 2)
    database = Database(topic)
    for count in (100, 40):
        database.change(count)
        export(topic, tmp_path, *TABLE, *DEBEZIUM)
        rows = rows_of(catalog, topic).to_pylist()
        assert {row["value"]["id"]: row["value"]["name"] for row in rows} == database.rows
        assert len(rows) == len(database.rows)
    verify = ("tables", "verify", topic.name, str(tmp_path), *TABLE[2:])
    assert {row["status"] for row in kctl(*verify, "--bootstrap-server", kctl_bootstrap)} == {"equal"}


@LOCAL
def test_a_catalogue_that_refuses_or_is_gone_is_named_and_nothing_is_written(
    kctl_bootstrap: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    catalog: RestCatalog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = make_topic(kctl_bootstrap, 3)
    append(topic, 30)
    for address, complaint in (
        (catalog, "invalid_client"),
        (RestCatalog("http://127.0.0.1:1", tmp_path), "Connection refused"),
    ):
        use(address, monkeypatch, credential=f"{CLIENT_ID}:planted-wrong")
        status, _, output = run_export(topic, tmp_path / "new", *TABLE)
        assert status == 1
        assert output.startswith("kctl: catalogue shop: ")
        assert complaint in output
        assert "planted" not in output
        assert output.count("\n") == 1
    assert not list(tmp_path.iterdir())

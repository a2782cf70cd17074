"""`kctl export --table`: real processes, killed and competing; the tables are read by their libraries and DuckDB."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.spark.peer import RUN_TIMEOUT_S, Topic, export, export_command, run_export
from tests.peers.probe import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeTopic = Callable[[str, int], Topic]
LOCAL = pytest.mark.parametrize("engine", ["local"], indirect=True)
KINDS = pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.matrix)])


def append(topic: Topic, count: int) -> None:
    topic.produce({"value": b"%d" % n * 20, "partition": n % 3, "timestamp": 1_700_000_000_000} for n in range(count))


def read(folder: Path, name: str, kind: str) -> pa.Table:
    if kind == "delta":
        from deltalake import DeltaTable  # noqa: PLC0415

        return DeltaTable(folder / name).to_pyarrow_table()
    from kctl.tables.formats.iceberg import default_catalog  # noqa: PLC0415

    with contextlib.closing(default_catalog(folder)) as catalog:
        return catalog.load_table(("kafka", name.replace("-", "_"))).scan().to_arrow()


def assert_exact(topic: Topic, folder: Path, kind: str) -> None:
    table = read(folder, topic.name, kind)
    with duckdb.connect() as connection:
        connection.register("exported", table)
        found = connection.sql('select "partition", "offset", value from exported order by 1, 2').fetchall()
    assert found == sorted((row[0], row[1], row[3]) for row in topic.rows)
    files = list((folder / topic.name / "data").glob("*/*"))
    assert sum(pq.read_metadata(path).num_rows for path in files) == len(found)


@LOCAL
@KINDS
def test_a_killed_export_into_a_table_is_repeated_by_the_next_run(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, kind: str
) -> None:
    topic = make_topic(kctl_bootstrap, 3)
    append(topic, 3_000)
    command = export_command(topic, tmp_path, "--table", kind, "--target-file-size", "16k")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
        started = lambda: any(tmp_path.glob("*/data/*/*.parquet")) or driver.poll() is not None  # noqa: E731
        wait_until(started, what="the first file", timeout_s=RUN_TIMEOUT_S, interval_s=0.005)
        driver.kill()
    append(topic, 300)
    assert export(topic, tmp_path, "--table", kind)["records"] == 3_300
    assert_exact(topic, tmp_path, kind)
    append(topic, 300)
    drivers = [
        subprocess.Popen(
            export_command(topic, tmp_path, "--table", kind), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    outputs = [driver.communicate(timeout=RUN_TIMEOUT_S) for driver in drivers]
    assert {driver.returncode for driver in drivers} <= {0, 5}, outputs
    assert_exact(topic, tmp_path, kind)


def test_engines_alternate_in_one_table(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(kctl_bootstrap, 3)
    for topic.engine in ("spark", "local"):
        append(topic, 300)
        document = export(topic, tmp_path, "--table", "delta")
        assert (document["records"], document["table"]) == (300, "delta")
        assert_exact(topic, tmp_path, "delta")


@LOCAL
def test_options_of_other_tables_are_usage_errors(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(kctl_bootstrap, 1)
    for options, complaint in (
        (("--one-table", "--adopt"), "--adopt is an option of --table parquet without --one-table"),
        (("--table", "delta", "--catalog", "shop"), "--catalog is an option of --table iceberg"),
        (("--namespace", "shop"), "--namespace is an option of --table iceberg"),
        (("--table", "delta", "--adopt"), "--adopt is an option of --table parquet"),
    ):
        status, _, output = run_export(topic, tmp_path / "new", *options)
        assert (status, output.count("\n")) == (2, 1)
        assert complaint in output
    assert not list(tmp_path.iterdir())

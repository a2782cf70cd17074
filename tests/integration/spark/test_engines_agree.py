"""Exports of the current state and of laid out columns have the same rows with both engines.

One JVM runs all exports of Spark, as rounds of --follow under spark-submit do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset as ds
import pyspark
import pytest

from kctl.tables.engines.session import JVM_FLAGS
from kctl.tables.engines.submission import use_option
from kctl.tables.formats.kinds import TableKind
from tests.integration.spark.peer import RUN_TIMEOUT_S, Topic, export_words, run_engine
from tests.integration.spark.test_current_state import DEBEZIUM, Database
from tests.integration.spark.test_tables import read
from tests.peers.spark_cluster import spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MakeTopic = Callable[..., Topic]
LOCAL = pytest.mark.parametrize("engine", ["local"], indirect=True)


class Case(NamedTuple):
    """An export that both engines run."""

    name: str
    kind: TableKind
    options: Sequence[str]
    begins_locally: bool = False
    """Whether the first batch is by the local engine, and only the second one by Spark."""


USUAL = (
    Case("history", TableKind.ICEBERG, (*DEBEZIUM, "--history"), begins_locally=True),
    Case("current", TableKind.DELTA, (*DEBEZIUM, "--target-file-size", "4k")),
)
MORE = (
    Case("folder", TableKind.PARQUET, DEBEZIUM, begins_locally=True),
    Case("key", TableKind.ICEBERG, ("--mode", "upsert", "--key", "string", "--value", "json")),
    Case("key fields", TableKind.DELTA, ("--mode", "upsert", "--key-fields", "id", "--value", "json")),
    Case(
        "columns",
        TableKind.PARQUET,
        (
            *("--value", "json", "--columns", "value,value_rest,timestamp", "--flatten", "{path}"),
            *("--rename", "value.id=order_id", "--sort-by", "value.id"),
        ),
    ),
)


def rows_of(folder: Path, topic: str, kind: TableKind) -> list[str]:
    """All rows of a table with all their columns, in an order that does not depend on its files."""
    if kind is TableKind.PARQUET:
        paths = [str(path) for path in sorted((folder / topic).glob("[!._]*.parquet"))]
        table = ds.dataset(paths, format="parquet").to_table()
    else:
        table = read(folder, topic, kind.value)
    return sorted(repr(row) for row in table.to_pylist())


def letters_of(folder: Path) -> list[str]:
    """The dead letters of an export."""
    paths = sorted((folder / "_dead_letters").rglob("*.parquet"))
    return sorted(repr(row) for path in paths for row in ds.dataset(path).to_table().to_pylist())


def submit(commands: Sequence[Sequence[str]], scratch: Path, *words: str) -> list[tuple[int, str, str]]:
    """Run the commands in one JVM that spark-submit starts."""
    (scratch / "commands.json").write_text(json.dumps(commands))
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    arguments = [
        *(
            str(program),
            "--conf",
            f"spark.driver.extraJavaOptions={JVM_FLAGS} {use_option()}",
            "--conf",
            "spark.ui.enabled=false",
        ),
        *("--conf", f"spark.pyspark.python={sys.executable}", "--conf", "spark.driver.host=127.0.0.1", *words),
        *(str(Path(__file__).with_name("spark_exports.py")), str(scratch / "commands.json")),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        arguments, check=False, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, env=environment
    )
    assert done.returncode == 0, done.stderr
    results: list[tuple[int, str, str]] = json.loads(done.stdout.splitlines()[-1])
    return results


def compare_engines(topics: tuple[Topic, Topic], cases: Sequence[Case], tmp_path: Path, *words: str) -> None:
    """Run the cases by both engines, and compare documents and rows.

    The exports are of changes, or without DEBEZIUM of orders; both topics have bad records.  `words` are for
    spark-submit.
    """
    topic, orders = topics
    database = Database(topic)
    database.change(120)
    topic.produce({"key": b'{"id": 1}', "value": value, "partition": 1} for value in (b"{", b'{"op": "?"}'))
    orders.produce(
        {"key": b"%d" % (n % 20), "value": json.dumps({"id": n % 20, "who": {"name": f"w{n}"}}).encode()}
        for n in range(50)
    )
    orders.produce({"key": b"1", "value": value} for value in (b"{", b'{"id": "x", "who": {"name": 5}}'))

    def words_of(case: Case, engine: str) -> list[str]:
        of_case = topic if set(DEBEZIUM) <= set(case.options) else orders
        return export_words(of_case, tmp_path / engine / case.name, "--table", case.kind, *case.options)

    def run_locally(case: Case, engine: str) -> dict[str, Any]:
        status, printed, output = run_engine("local", *words_of(case, engine))
        assert status == 0, output
        document: dict[str, Any] = json.loads(printed)
        return document

    for case in cases:
        if case.begins_locally:
            for engine in ("local", "spark"):
                run_locally(case, engine)
    database.change(60)
    topic.produce([{"key": b'{"id": 2}', "value": b'{"op": "c", "after": {"id": 2, "name": [5]}}'}])
    topic.engine = orders.engine = "spark"
    commands = [[word for word in words_of(case, "spark") if word not in {"--master", "local[2]"}] for case in cases]
    topic.engine = orders.engine = "local"
    by_spark = submit(commands, tmp_path, *words)
    for case, (status, printed, output) in zip(cases, by_spark, strict=True):
        assert status == 0, (case, output)
        document = json.loads(printed)
        assert (document["engine"], bool(document["app_id"])) == ("spark", True)
        expected = run_locally(case, "local")
        for member in ("records", "bad", "bad_reasons", "misfits", "keys", "columns"):
            assert document[member] == expected[member], (case, member)
        of_case = topic if set(DEBEZIUM) <= set(case.options) else orders
        of_local, of_spark = (
            (rows_of(folder, of_case.name, case.kind), letters_of(folder))
            for folder in (tmp_path / engine / case.name for engine in ("local", "spark"))
        )
        assert of_local == of_spark, case
        assert min(map(len, of_spark)) > 0, case
        assert not list((tmp_path / "spark" / case.name).glob("_kctl/changes/*/*.parquet")), case
        if "upsert" in case.options:
            verify = ("tables", "verify", of_case.name, str(tmp_path / "spark" / case.name), "--format", "json")
            verified = run_engine("local", *verify, "--bootstrap-server", topic.bootstrap)
            assert (verified[0], {row["status"] for row in json.loads(verified[1])}) == (0, {"equal"}), verified[2]


@LOCAL
def test_spark_has_the_rows_of_the_local_engine(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topics = make_topic(kctl_bootstrap, 2), make_topic(kctl_bootstrap, 2, "-orders")
    compare_engines(topics, USUAL, tmp_path, "--master", "local[2]")


@LOCAL
@pytest.mark.matrix
def test_several_executors_have_the_rows_of_the_local_engine(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topics = make_topic(kctl_bootstrap, 2), make_topic(kctl_bootstrap, 2, "-orders")
    with spark_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        words = ("--master", cluster.master, "--conf", "spark.executor.memory=512m")
        compare_engines(topics, (*USUAL, *MORE), tmp_path, *words)

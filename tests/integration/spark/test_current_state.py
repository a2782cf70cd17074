"""`kctl export --mode upsert` from a broker: the rows of a database, followed, verified and killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kctl.tables.formats.kinds import TableKind
from tests.integration.spark.peer import RUN_TIMEOUT_S, Topic, export, export_command, run_engine, run_export
from tests.peers.probe import wait_until
from tests.unit.spark.changing_topic import read_rows, table_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeTopic = Callable[[str, int], Topic]
LOCAL = pytest.mark.parametrize("engine", ["local"], indirect=True)
DEBEZIUM = ("--mode", "upsert", "--value", "json", "--change-format", "debezium")


class Database:
    """A table whose changes are in a topic."""

    def __init__(self, topic: Topic) -> None:
        self.rows: dict[int, str] = {}
        self._topic = topic
        self._chance = random.Random(topic.name)

    def change(self, count: int) -> None:
        """Insert, update and delete rows."""
        self._topic.produce(entry for _ in range(count) for entry in self._change(self._chance.randrange(40)))

    def _change(self, id_: int) -> list[dict[str, Any]]:
        where = {"key": json.dumps({"id": id_}).encode(), "partition": id_ % self._topic.partitions}
        before = self._row(id_) if id_ in self.rows else None
        if before and self._chance.random() < 0.4:
            del self.rows[id_]
            return [{**where, "value": _envelope("d", before, None)}, {**where, "value": None}]
        self.rows[id_] = f"name {self._chance.random()}"
        return [{**where, "value": _envelope("u" if before else "c", before, self._row(id_))}]

    def _row(self, id_: int) -> dict[str, Any]:
        return {"id": id_, "name": self.rows[id_]}


def _envelope(operation: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> bytes:
    source = {"connector": "mysql", "table": "customers"}
    return json.dumps({"before": before, "after": after, "source": source, "op": operation}).encode()


def state(topic: Topic, folder: Path, kind: TableKind) -> dict[int, str]:
    rows = read_rows(folder, table_of(kind), topic.name if kind is not TableKind.ICEBERG else _identifier(topic.name))
    assert len({row["value"]["id"] for row in rows}) == len(rows)
    return {row["value"]["id"]: row["value"]["name"] for row in rows}


def _identifier(name: str) -> str:
    return name.replace("-", "_")


@LOCAL
def test_tables_have_the_rows_of_the_database(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(kctl_bootstrap, 2)
    database = Database(topic)
    for count in (150, 60):
        database.change(count)
        for kind in TableKind:
            document = export(topic, tmp_path / kind, "--table", kind, *DEBEZIUM, "--target-file-size", "4k")
            assert document["records"] >= count
            assert document["keys"][0]["upserted"] > 0
            assert state(topic, tmp_path / kind, kind) == database.rows
    for kind in TableKind:
        folder = str(tmp_path / kind)
        words = ("--bootstrap-server", kctl_bootstrap, "--format", "json")
        status, printed, output = run_engine("local", "tables", "verify", topic.name, folder, *words)
        assert status == 0, output
        ranges = json.loads(printed)
        assert sum(row["table_records"] for row in ranges) == len(database.rows)
        assert {row["status"] for row in ranges} == {"equal"}
        status, printed, output = run_engine("local", "tables", "status", folder, "--check", *words)
        assert (status, {row["state"] for row in json.loads(printed)}) == (0, {"current"}), output
        status, _, output = run_engine("local", "tables", "compact", folder, "--yes")
        assert status == 5
        assert "current state by key" in output
        status, _, output = run_export(topic, folder, "--table", kind, "--value", "json")
        assert status == 2
        assert f"contains an export with --table {kind} --mode upsert --change-format debezium" in output


@LOCAL
def test_a_following_export_that_is_killed_goes_on_where_it_was(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(kctl_bootstrap, 2)
    database = Database(topic)
    database.change(80)
    command = export_command(topic, tmp_path, *DEBEZIUM, "--follow", "--every", "100ms", "--format", "jsonl")
    commits = tmp_path / "_kctl" / "commits"
    for ends in (signal.SIGKILL, signal.SIGTERM):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            known = len(list(commits.glob("*.json")))
            wait_until(
                lambda known=known: len(list(commits.glob("*.json"))) > known or process.poll() is not None,  # type: ignore[misc]
                what="a commit",
                timeout_s=RUN_TIMEOUT_S,
            )
            database.change(30)
            if ends is signal.SIGTERM:
                wait_until(
                    lambda: state(topic, tmp_path, TableKind.PARQUET) == database.rows,
                    what="the rows of the database",
                    timeout_s=RUN_TIMEOUT_S,
                    interval_s=0.1,
                )
            process.send_signal(ends)
            _, errors = process.communicate(timeout=RUN_TIMEOUT_S)
        assert process.returncode == (-signal.SIGKILL if ends is signal.SIGKILL else 0), errors
    assert state(topic, tmp_path, TableKind.PARQUET) == database.rows


@LOCAL
def test_options_that_do_not_fit_are_usage_errors(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(kctl_bootstrap, 1)
    for options, complaint in (
        (("--key-fields", "id"), "--key-fields is an option of --mode upsert"),
        (("--mode", "upsert", "--one-table"), "--one-table and --mode upsert exclude each other"),
        (("--mode", "upsert", "--where", "key IS NULL"), "--where and --mode upsert exclude each other"),
        (("--mode", "upsert", "--from", "end"), "--from and --mode upsert exclude each other"),
        (("--mode", "upsert", "--change-format", "debezium"), "--change-format debezium requires --value"),
        (("--mode", "upsert", "--key-fields", "id"), "which is not decoded into fields"),
    ):
        topic.produce([{"key": b"1", "value": b"{}"}])
        status, _, output = run_export(topic, tmp_path / "new", *options)
        assert (status, output.count("\n")) == (2, 1), output
        assert complaint in output
    assert not list(tmp_path.iterdir())

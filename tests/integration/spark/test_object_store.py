"""Exports to a local S3 server: both engines, a killed driver, two exporters at once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kctl.cli import main
from kctl.tables.exec.targets.files import Files
from kctl.tables.exec.targets.target import open_files
from tests.integration.spark.peer import RUN_TIMEOUT_S, Topic, export_command, export_words
from tests.peers import s3_server
from tests.peers.forked_kctl import run_kctl
from tests.peers.probe import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeTopic = Callable[[str, int], Topic]


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    with s3_server.s3_server() as url:
        yield url


@pytest.fixture(autouse=True)
def _variables(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_server.set_variables(monkeypatch, s3_url)


def kctl(*words: str) -> str:
    """The output of a command."""
    done = run_kctl(*words, timeout_s=RUN_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_export(topic: Topic, target: str, *options: str) -> tuple[int, dict[str, Any], str]:
    """As in `peer`, in a process of its own: pyiceberg reads its variables when it is imported."""
    done = run_kctl(*export_words(topic, target, *options), timeout_s=RUN_TIMEOUT_S)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def export(topic: Topic, target: str, *options: str) -> dict[str, Any]:
    """An export that must succeed; returns the document that it printed."""
    status, document, output = run_export(topic, target, *options)
    assert status == 0, output
    return document


def filled(make_topic: MakeTopic, bootstrap: str, count: int) -> Topic:
    topic = make_topic(bootstrap, 3)
    append(topic, count)
    return topic


def append(topic: Topic, count: int) -> None:
    topic.produce({"value": b"%d" % n * 20, "partition": n % 3, "timestamp": 1_700_000_000_000} for n in range(count))


def assert_exact(topic: Topic, files: Files) -> None:
    found: list[tuple[int, int, bytes | None]] = []
    for name in files.names(topic.name):
        with files.open(f"{topic.name}/{name}") as file:
            table = pq.read_table(file, columns=["partition", "offset", "value"])
        found += zip(*(table.column(index).to_pylist() for index in range(3)), strict=True)
    assert sorted(found) == sorted((row[0], row[1], row[3]) for row in topic.rows)


def test_both_engines_export_to_s3_in_increments(
    kctl_bootstrap: str, make_topic: MakeTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    """Further commands read the export there."""
    topic = filled(make_topic, kctl_bootstrap, 300)
    target = f"s3://{s3_server.BUCKET}/{topic.name}"
    for topic.engine in ("local", "spark"):
        document = export(topic, target)
        assert (document["records"], document["folder"]) == (300, target)
        assert_exact(topic, open_files(target))
        append(topic, 300)
    topic.engine = "local"
    assert export(topic, target, "--dry-run")["partitions"][0]["start"] == 200
    assert "secret-of-the-tests" not in open_files(target).read("_kctl/plans/000000000000.json").decode()
    export(topic, target)
    options = ("--bootstrap-server", kctl_bootstrap, "--format", "json", "--timeout", "60s")

    def tables(verb: str, *words: str) -> list[dict[str, Any]]:
        assert main(["tables", verb, *words, *options]) == 0
        rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return rows

    assert [(row["state"], row["lag"]) for row in tables("status", target)] == [("current", 0)] * 3
    compared = [(row["status"], row["table_records"]) for row in tables("verify", topic.name, target)]
    assert compared == [("equal", 300)] * 3
    restored = Topic(kctl_bootstrap, f"{topic.name}-restored", 3, "local")
    for records in (300, 0):
        assert [row["records"] for row in tables("import", target, restored.name)] == [records] * 3


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_a_killed_export_to_s3_is_finished_by_the_next_run(kctl_bootstrap: str, make_topic: MakeTopic) -> None:
    topic = filled(make_topic, kctl_bootstrap, 4_000)
    target = f"s3://{s3_server.BUCKET}/{topic.name}"
    files = open_files(target)
    with subprocess.Popen(export_command(topic, target, "--target-file-size", "16k"), stdout=subprocess.PIPE) as driver:
        started = lambda: bool(files.names(topic.name)) or driver.poll() is not None  # noqa: E731
        wait_until(started, what="the first file", timeout_s=RUN_TIMEOUT_S, interval_s=0.005)
        driver.kill()
    assert files.names("_kctl/commits") == []
    append(topic, 300)
    document = export(topic, target)
    assert {partition["status"] for partition in document["partitions"]} == {"recovered", "exported"}
    assert_exact(topic, files)


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_of_exporters_to_s3_at_once_none_writes_a_record_twice(kctl_bootstrap: str, make_topic: MakeTopic) -> None:
    topic = filled(make_topic, kctl_bootstrap, 1_500)
    target = f"s3://{s3_server.BUCKET}/{topic.name}"
    command = export_command(topic, target, "--target-file-size", "64k")
    drivers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    outputs = [driver.communicate(timeout=RUN_TIMEOUT_S) for driver in drivers]
    assert {driver.returncode for driver in drivers} <= {0, 5}, outputs
    assert any(driver.returncode == 0 for driver in drivers)
    assert_exact(topic, open_files(target))
    assert export(topic, target)["batches"] == []


@pytest.mark.parametrize("engine", ["local"], indirect=True)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.matrix
def test_tables_in_s3_are_exact_after_kills_and_with_two_exporters_at_once(
    kctl_bootstrap: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    s3_url: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (
        ("TYPE", "sql"),
        ("URI", f"sqlite:///{tmp_path}/catalog.db"),
        ("S3__ENDPOINT", s3_url),
    ):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__SHOP__{name}", value)
    topic = filled(make_topic, kctl_bootstrap, 3_000)
    target = f"s3://{s3_server.BUCKET}/{topic.name}-{kind}"
    options = ("--table", kind, "--target-file-size", "32k", *(("--catalog", "shop") if kind == "iceberg" else ()))
    files = open_files(target)
    with subprocess.Popen(export_command(topic, target, *options), stdout=subprocess.PIPE) as driver:
        folder = f"{topic.name}/data/000000000000"
        started = lambda: bool(files.names(folder)) or driver.poll() is not None  # noqa: E731
        wait_until(started, what="the first file", timeout_s=RUN_TIMEOUT_S, interval_s=0.005)
        driver.kill()
    append(topic, 300)
    s3_server.set_faults(s3_url, [("PUT", "/_delta_log/|/metadata/", s3_server.BUSY)] * 3)  # pyarrow tries three times
    assert export(topic, target, *options)["records"] == 3_300
    assert s3_server.set_faults(s3_url, []) == []
    append(topic, 600)
    command = export_command(topic, target, *options)
    drivers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    outputs = [driver.communicate(timeout=RUN_TIMEOUT_S) for driver in drivers]
    assert {driver.returncode for driver in drivers} <= {0, 5}, outputs
    export(topic, target, *options)
    catalog = ("--catalog", "shop") if kind == "iceberg" else ()
    cluster = ("--bootstrap-server", kctl_bootstrap, "--format", "json", "--timeout", "60s")
    kctl("tables", "compact", target, "--yes", *catalog, *cluster[2:4])
    rows = kctl("tables", "verify", topic.name, target, "--from-start", *catalog, *cluster)
    compared = [(row["status"], row["table_records"]) for row in json.loads(rows)]
    assert compared == [("equal", 1_300)] * 3


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_a_missing_bucket_is_reported_before_work_starts(kctl_bootstrap: str, make_topic: MakeTopic) -> None:
    topic = filled(make_topic, kctl_bootstrap, 3)
    status, document, output = run_export(topic, "s3://no-such-bucket/orders")
    assert status == 1
    assert "s3://no-such-bucket/orders" in document["error"]["message"]
    assert output.count("\n") == 1

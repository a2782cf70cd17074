"""Failures of engines are reported with their cause; the folder is unchanged or completed by the next run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.spark.peer import (
    RUN_TIMEOUT_S,
    TIMEOUT_S,
    Topic,
    assert_exact,
    export,
    export_command,
    run_export,
)
from tests.peers.probe import free_port, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeTopic = Callable[[str, int], Topic]
LOCAL = pytest.mark.parametrize("engine", ["local"], indirect=True)


def filled(make_topic: MakeTopic, bootstrap: str, partitions: int, count: int) -> Topic:
    topic = make_topic(bootstrap, partitions)
    topic.produce(
        {"value": b"%d" % n * 20, "partition": n % partitions, "timestamp": 1_700_000_000_000} for n in range(count)
    )
    return topic


@LOCAL
def test_small_partitions_share_a_file(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = filled(make_topic, kctl_bootstrap, 20, 1000)
    document = export(topic, tmp_path)
    assert (document["records"], document["files"], len(document["partitions"])) == (1000, 1, 20)
    assert [partition["records"] for partition in document["partitions"]] == [50] * 20
    assert document["bytes_out"] == sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    assert_exact(topic, tmp_path)


@LOCAL
def test_no_process_of_an_export_imports_pandas(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    """Otherwise pyarrow does if it is installed, in each process, which takes longer than a small export."""
    imported = tmp_path / "imported"
    package = tmp_path / "packages" / "pandas"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"open({str(imported)!r}, 'w').close()")
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    array = "import pyarrow; pyarrow.array([1])"
    subprocess.run([sys.executable, "-c", array], check=False, capture_output=True, env=environment)
    assert imported.exists(), "an array of pyarrow does not import pandas any longer"
    imported.unlink()
    topic = filled(make_topic, kctl_bootstrap, 2, 2_000)
    command = export_command(topic, tmp_path / "lake", "--table", "delta", "--target-file-size", "4k")
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert (done.returncode, imported.exists()) == (0, False), done.stderr
    assert json.loads(done.stdout)["records"] == 2_000


def test_a_killed_jvm_is_reported_as_the_reason(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = filled(make_topic, kctl_bootstrap, 4, 20_000)
    command = export_command(topic, tmp_path, "--target-file-size", "64k")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        planned = lambda: any(tmp_path.glob("_kctl/plans/*.json")) or process.poll() is not None  # noqa: E731
        wait_until(planned, what="the plan", timeout_s=RUN_TIMEOUT_S, interval_s=0.005)
        (jvm,) = children(process.pid)
        os.kill(jvm, signal.SIGKILL)
        _, output = process.communicate(timeout=RUN_TIMEOUT_S)
    assert process.returncode == 1
    assert "Spark's Java process was killed by SIGKILL" in output
    assert "Traceback" not in output
    assert "Connection refused" not in output
    topic.engine = "local"
    export(topic, tmp_path)
    assert_exact(topic, tmp_path)


@LOCAL
def test_a_task_whose_process_is_killed_is_repeated(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = filled(make_topic, kctl_bootstrap, 4, 20_000)
    with subprocess.Popen(
        export_command(topic, tmp_path, "--target-file-size", "8k"), stdout=subprocess.PIPE, text=True
    ) as process:
        found = lambda: bool(tasks_in(process.pid)) or process.poll() is not None  # noqa: E731
        wait_until(found, what="a task", timeout_s=RUN_TIMEOUT_S, interval_s=0.001)
        for task in tasks_in(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(task, signal.SIGKILL)
        printed, _ = process.communicate(timeout=RUN_TIMEOUT_S)
    assert process.returncode == 0
    assert json.loads(printed)["records"] == 20_000
    assert_exact(topic, tmp_path)


@LOCAL
def test_processes_of_a_killed_export_end(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = filled(make_topic, kctl_bootstrap, 4, 20_000)
    command = export_command(topic, tmp_path, "--target-file-size", "8k")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        wait_until(lambda: bool(tasks_in(process.pid)), what="a task", timeout_s=RUN_TIMEOUT_S, interval_s=0.001)
        left = [*children(process.pid), *tasks_in(process.pid)]
        process.kill()
    gone = lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in left)  # noqa: E731
    wait_until(gone, what="the end of the processes", timeout_s=RUN_TIMEOUT_S)
    export(topic, tmp_path)
    assert_exact(topic, tmp_path)


def tasks_in(driver: int) -> list[int]:
    """The task processes of a local export: children of its fork server."""
    tasks = []
    for server in children(driver):
        with contextlib.suppress(OSError):
            tasks += children(server)
    return tasks


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def test_an_executor_without_packages_is_named(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(make_topic, kctl_bootstrap, 1, 10)
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / "bin" / "python"
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    status, _, output = run_export(topic, tmp_path / "out")
    assert status == 1
    assert not (tmp_path / "out").exists()
    assert (
        f"on host {socket.gethostname()}, {python} (Python {sys.version_info.major}.{sys.version_info.minor}." in output
    )
    assert "lacks numpy, pyarrow" in output
    topic.engine = "local"
    export(topic, tmp_path / "out")
    assert_exact(topic, tmp_path / "out")


def test_a_master_that_cannot_be_reached_or_is_none_leaves_nothing_behind(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = filled(make_topic, kctl_bootstrap, 1, 10)
    master = f"spark://127.0.0.1:{free_port()}"
    status, _, output = run_export(topic, tmp_path / "new", "--master", master)
    assert status == 1
    assert f"cannot reach the Spark master {master}" in output
    status, _, output = run_export(topic, tmp_path / "new", "--master", "loca[2]")
    assert status == 2
    assert "'loca[2]' is not a Spark master" in output
    assert not list(tmp_path.iterdir())


def test_an_unreachable_broker_leaves_nothing_behind(tmp_path: Path) -> None:
    topic = Topic.__new__(Topic)
    topic.engine = "local"
    topic.bootstrap, topic.name = f"127.0.0.1:{free_port()}", "orders"
    status, document, _ = run_export(topic, tmp_path / "new", "--timeout", "1s")
    assert (status, document["error"]["code"]) == (4, "CLUSTER_UNREACHABLE")
    assert not list(tmp_path.iterdir())


@LOCAL
def test_a_dry_run_of_a_folder_without_its_log_is_refused(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = filled(make_topic, kctl_bootstrap, 2, 100)
    export(topic, tmp_path / "out")
    (tmp_path / "copy").mkdir()
    (tmp_path / "out" / topic.name).rename(tmp_path / "copy" / topic.name)
    for options in ((), ("--dry-run",)):
        status, _, output = run_export(topic, tmp_path / "copy", *options)
        assert status == 5
        assert "--adopt" in output
    topic.produce({"value": b"later", "partition": 0} for _ in range(5))
    document = export(topic, tmp_path / "copy", "--adopt")
    rows = [(partition["status"], partition["records"]) for partition in document["partitions"]]
    # The partition without new records gets a leader epoch, which its files do not have.
    assert rows == [("adopted", 50), ("adopted", 50), ("exported", 5), ("exported", 0)]
    assert_exact(topic, tmp_path / "copy")


@LOCAL
def test_a_following_export_continues_after_errors_adds_topics_and_ends_after_a_commit(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = filled(make_topic, kctl_bootstrap, 2, 100)
    port = free_port()
    options = ("--follow", "--every", "100ms", "--metrics-port", str(port), "--format", "jsonl")
    command = [*export_command(topic, tmp_path / "out")[:-2], *options]
    name = command.index(topic.name)
    command[name : name + 1] = ["--topic-regex", f"{topic.name}.*"]
    plans, away = tmp_path / "out/_kctl/plans", tmp_path / "away"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:

        def wait_for(name: str, value: int) -> None:
            holds = lambda: metric(port, name) >= value or process.poll() is not None  # noqa: E731
            wait_until(holds, what=name, timeout_s=RUN_TIMEOUT_S)

        wait_for("kctl_export_records_total", 100)
        with paused(process):
            plans.rename(away)
            plans.touch()
        wait_for("kctl_export_failed_rounds_total", 1)
        with paused(process):
            plans.unlink()
            away.rename(plans)
        added = Topic(kctl_bootstrap, f"{topic.name}-added", 2, "local")
        for exported in (topic, added):
            exported.produce({"value": b"later", "partition": n % 2} for n in range(50))
        wait_for("kctl_export_records_total", 200)
        process.send_signal(signal.SIGTERM)
        printed, output = process.communicate(timeout=RUN_TIMEOUT_S)
    assert process.returncode == 0, output
    assert sum(json.loads(line)["records"] for line in printed.splitlines()) == 200
    assert "the next round starts in 1 s" in output
    for exported in (topic, added):
        assert_exact(exported, tmp_path / "out" / exported.name)


@contextlib.contextmanager
def paused(process: subprocess.Popen[str]) -> Iterator[None]:
    """Stops a process for the block."""
    process.send_signal(signal.SIGSTOP)
    status = Path(f"/proc/{process.pid}/stat")
    stopped = lambda: status.read_text().rpartition(") ")[2].startswith("T")  # noqa: E731
    wait_until(stopped, what="the process to stop", timeout_s=TIMEOUT_S)
    yield
    process.send_signal(signal.SIGCONT)


def metric(port: int, name: str) -> float:
    """The sum of a metric; -1 while the endpoint cannot be reached."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as response:
            text = response.read().decode()
    except OSError:
        return -1
    found = [family.samples for family in text_string_to_metric_families(text)]
    return sum(sample.value for samples in found for sample in samples if sample.name == name)

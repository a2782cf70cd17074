"""Exports from a secured broker by one standalone cluster: one without room, with a lost worker, and all lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kctl.cli import main
from kctl.tables.engines.session import JVM_FLAGS
from tests.integration.spark.peer import TIMEOUT_S, read_rows
from tests.peers.certificates import PASSWORD, CertificateAuthority
from tests.peers.probe import free_port, wait_until
from tests.peers.sasl_broker import sasl_broker
from tests.peers.spark_cluster import SparkCluster, spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(1000)]

USER, SECRET = "exporter", "planted;secret=7401"
PARTITIONS, RECORDS = 4, 24_000
JOB_TIMEOUT_S = 400
"""The cluster and its job take 45 seconds of processor time, in seven JVMs."""


@pytest.fixture(scope="module")
def client_properties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The client properties of a user of a broker with SCRAM over TLS."""
    folder = tmp_path_factory.mktemp("secured")
    authority = CertificateAuthority.create(folder)
    plaintext, secured = (f"127.0.0.1:{free_port()}" for _ in range(2))
    properties = {
        "listeners": f"PLAINTEXT://{plaintext},SASL://{secured}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL",
        "ssl.keystore.location": str(authority.issue("server").pkcs12),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": PASSWORD,
    }
    config = folder / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    config.write_text(
        f"bootstrap.servers={secured}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} required username="{USER}" password="{SECRET}";\n'
        f"ssl.truststore.location={authority.pkcs12}\nssl.truststore.password={PASSWORD}\n"
    )
    config.chmod(0o600)
    with sasl_broker(folder / "broker", properties=properties):
        _fill(plaintext)
        yield config


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two workers.  The tests are in the order in which they need them: the second one kills one, the last one all."""
    with spark_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as started:
        yield started


def _fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    credential = UserScramCredentialUpsertion(
        USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), SECRET.encode()
    )
    for future in admin.alter_user_scram_credentials([credential]).values():
        future.result(TIMEOUT_S)
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number * 20, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


IMPATIENT = """
import sys
from kctl.cli import main
from kctl.tables.engines import executor_watch

executor_watch.NOTE_AFTER_MS, executor_watch.LOSS_MS_MAX, executor_watch.ABSENCE_MS_MAX = 1_000, 3_000, 6_000
sys.exit(main(sys.argv[1:]))
"""
"""An export that waits for executors for seconds instead of minutes."""


def export_with_short_timeouts(config: Path, target: Path, cluster: SparkCluster, memory: str = "512m") -> list[str]:
    properties = {"spark.pyspark.python": sys.executable, "spark.executor.memory": memory}
    return [
        *(
            sys.executable,
            "-c",
            IMPATIENT,
            "export",
            "--engine",
            "spark",
            "orders",
            "--to",
            str(target),
            "--no-progress",
        ),
        *("--command-config", str(config), "--master", cluster.master, "--target-file-size", "32k"),
        *(word for name, value in properties.items() for word in ("--conf", f"{name}={value}")),
    ]


def test_a_cluster_without_room_for_an_executor_is_reported_before_the_plan_is_written(
    client_properties: Path, cluster: SparkCluster, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    done = subprocess.run(
        export_with_short_timeouts(client_properties, target, cluster, memory="2g"),
        check=False,
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 1, done.stderr
    assert f"waiting for executors (Spark master {cluster.master})\n" in done.stderr
    assert "kctl: no executor has registered within 0 minutes: check that the cluster has free cores" in done.stderr
    assert not target.exists()


def test_a_killed_worker_loses_no_record_and_no_secret_is_shown(
    client_properties: Path, cluster: SparkCluster, tmp_path: Path
) -> None:
    target, events, scratch = (tmp_path / name for name in ("lake", "events", "scratch"))
    events.mkdir()
    scratch.mkdir()
    properties = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{events}",
        "spark.eventLog.compress": "false",
        "spark.pyspark.python": sys.executable,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": JVM_FLAGS,
        "spark.driver.extraJavaOptions": JVM_FLAGS,
    }
    command = [
        *(
            sys.executable,
            "-m",
            "kctl",
            "export",
            "--engine",
            "spark",
            "orders",
            "--to",
            str(target),
            "--format",
            "json",
        ),
        *("--command-config", str(client_properties), "--master", cluster.master, "--target-file-size", "32k"),
        *(word for name, value in properties.items() for word in ("--conf", f"{name}={value}")),
    ]
    environment = {**os.environ, "TMPDIR": str(scratch), "SPARK_LOCAL_IP": "127.0.0.1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        started = lambda: any(target.glob("orders/*.parquet")) or process.poll() is not None  # noqa: E731
        wait_until(started, what="the first file", timeout_s=JOB_TIMEOUT_S, interval_s=0.005)
        titles = b"".join(_titles())
        cluster.workers[0].stop(signal.SIGKILL)
        printed, output = process.communicate(timeout=JOB_TIMEOUT_S)
    assert process.returncode == 0, output
    assert json.loads(printed)["records"] == RECORDS
    assert len(json.loads(printed)["partitions"]) == PARTITIONS
    assert "without encryption" in output
    rows = read_rows(target, topics=["orders"])
    assert sorted(str(row[3]) for row in rows) == sorted(str(b"%d" % number * 20) for number in range(RECORDS))
    assert b"spark" in titles
    assert "SparkListenerEnvironmentUpdate" in "".join(path.read_text() for path in events.rglob("events*"))
    texts = {"titles": titles, "output": (printed + output).encode()}
    files = (path for folder in (tmp_path, cluster.folder) for path in folder.rglob("*"))
    texts |= {str(path): path.read_bytes() for path in files if path.is_file()}
    assert len([name for name in texts if name.endswith("stderr")]) >= 2
    assert [name for name, text in texts.items() if SECRET.encode() in text or PASSWORD.encode() in text] == []


def test_a_job_whose_master_and_executors_are_lost_ends_and_is_completed_by_the_next_run(
    client_properties: Path, cluster: SparkCluster, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = export_with_short_timeouts(client_properties, target, cluster)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as (
        process
    ):
        planned = lambda: any(target.glob("_kctl/plans/*")) or process.poll() is not None  # noqa: E731
        wait_until(planned, what="the plan", timeout_s=JOB_TIMEOUT_S, interval_s=0.005)
        for daemon in (cluster.leader, *cluster.workers):
            daemon.stop(signal.SIGKILL)
        _, output = process.communicate(timeout=JOB_TIMEOUT_S)
    assert process.returncode == 1, output
    assert "all executors were lost; waiting for others (Spark master spark://" in output
    last = output.splitlines()[-1]
    assert re.match(r"kctl: all executors were lost, and the Spark master does not respond since \d s; its log: ", last)
    words = ["export", "orders", "--to", str(target), "--command-config", str(client_properties)]
    assert main(words) == 0
    assert len(read_rows(target, topics=["orders"])) == RECORDS


def _titles() -> Iterator[bytes]:
    """The command lines of the processes below this one; other tests use the same password."""
    parents: dict[int, int] = {}
    lines: dict[int, bytes] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            lines[int(path.name)] = (path / "cmdline").read_bytes()
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    for pid, line in lines.items():
        above = parents.get(pid)
        while above and above != os.getpid():
            above = parents.get(above)
        if above:
            yield line

"""A broker as a service: notifications to systemd, `kctl broker check` and `kctl broker bundle`, with a real broker."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Kctl, command_line
from tests.peers import probe

SECRET = "correct-horse-battery-staple"


@pytest.fixture
def kctl(tmp_path: Path) -> Iterator[Kctl]:
    """`kctl` whose brokers have their data in this test's folder and are stopped with it."""
    run = command_line({"XDG_DATA_HOME": str(tmp_path)})
    yield run
    run("broker stop")


def test_systemd_is_notified_of_start_watchdog_and_stop(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        command = [sys.executable, "-m", "kctl", "broker", "start", "--port", "0", "--data-dir", str(tmp_path / "data")]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as broker:
            ready, status = manager.recv(4096).decode().split("\n")
            assert ready == "READY=1"
            assert probe.has_controller(status.removeprefix("STATUS=serving on "))
            assert [manager.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            broker.send_signal(signal.SIGTERM)
            while (message := manager.recv(4096)) == b"WATCHDOG=1":
                pass
            assert message == b"STOPPING=1\nSTATUS=stopping"
            _, errors = broker.communicate(timeout=60)
        assert (broker.returncode, b"Traceback" in errors) == (0, False)


def test_abort_by_the_watchdog_shows_where_the_broker_was(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kctl", "broker", "start", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stderr is not None
        for line in broker.stderr:
            if "serving on" in line:
                break
        broker.send_signal(signal.SIGABRT)
        _, errors = broker.communicate(timeout=60)
    assert broker.returncode == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in errors
    assert "in run_forever" in errors


def test_check_lists_what_would_stop_the_start(kctl: Kctl, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = tmp_path / "server.properties"
        file.write_text(
            f"listeners=PLAINTEXT://127.0.0.1:{port}\nnum.partitons=3\nssl.keystore.password={SECRET}\n"
            "zookeeper.set.acl=true\n"
        )
        checked = kctl(f"broker check --config {file} --format json")
        started = kctl(f"broker start --config {file}")
    rows = [(row["severity"], row["subject"]) for row in checked.document]
    assert rows == [
        ("error", f"127.0.0.1:{port}"),
        ("error", "zookeeper.set.acl"),
        ("warning", str(file)),
        ("warning", "num.partitons"),
    ]
    assert (checked.status, started.status) == (3, 1)
    assert f"127.0.0.1:{port} is in use" in started.err
    assert SECRET not in checked.out + checked.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server.properties"]

    file.chmod(0o600)
    file.write_text("num.partitons=3\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    assert kctl(f"broker check --config {file}").status == 0
    assert kctl(f"broker check --config {file} --strict").status == 3
    assert kctl(f"broker check --config {tmp_path}/absent").status == 2


def test_bundle_of_a_running_broker_has_everything_but_secrets(kctl: Kctl, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"listeners=SASL_PLAINTEXT://127.0.0.1:0\nsecurity.inter.broker.protocol=SASL_PLAINTEXT\n"
        "sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.inter.broker.protocol=PLAIN\n"
        "listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule "
        f'required username="admin" password="{SECRET}" user_admin="{SECRET}" user_bob="{SECRET}";\n'
        f"ssl.keystore.password={SECRET}-2\nplugin.token={SECRET}-3\nmetrics.port=0\n"
    )
    file.chmod(0o600)
    started = kctl(f"broker start --config {file} --detach")
    assert started.status == 0, started.err
    (status,) = kctl("broker status --format json").document
    output = Path(status["data_dir"]) / "broker.out"
    with output.open("a") as log:  # As if there were a defect.
        log.write(f"some line with {SECRET} in it\n")

    archive = tmp_path / "report.tar.gz"
    made = kctl(f"broker bundle --pid {status['pid']} --config {file} --output {archive} --format json")
    assert made.status == 0, made.err
    # Checkpoints are written some time after the first start.  Without credentials no snapshot is read.
    assert all(
        "checkpoint" in missing["name"] or missing["name"] == "doctor.json" for missing in made.document["missing"]
    )
    assert "kctl doctor --snapshot" in next(
        missing["message"] for missing in made.document["missing"] if missing["name"] == "doctor.json"
    )
    assert made.document["bytes"] == archive.stat().st_size
    folder = tmp_path / "extracted"
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    texts = {path.relative_to(folder / "kctl-bundle").as_posix(): path.read_text() for path in folder.rglob("*.*")}
    assert "correct-horse" not in "".join(texts.values())
    assert "some line with [hidden] in it" in texts["logs/broker.out"]
    assert "process.py" in texts["tasks-and-threads.txt"]
    assert "plugin.token=[hidden]" in texts["tasks-and-threads.txt"]
    assert "ssl.keystore.password=[hidden]" in texts["server.properties"]
    assert "kafka_server_" in texts["metrics.txt"]
    assert "broker.id=0" in texts["log-dir-0/meta.properties"]
    assert "broker.lock" in texts["listing-0.txt"]
    assert kctl(f"broker bundle --output {archive}").status == 1

    assert kctl("broker stop").status == 0
    stopped = kctl(f"broker bundle --output {tmp_path}/stopped.tar.gz --format json")
    assert stopped.status == 0, stopped.err
    assert {"tasks-and-threads.txt", "metrics.txt", "broker.json"} <= {
        missing["name"] for missing in stopped.document["missing"]
    }
    assert kctl(f"broker bundle --pid {os.getpid()}").status == 2
    assert kctl(f"broker bundle --data-dir {tmp_path}/absent").status == 2

"""Starting, inspecting and stopping a broker in the background, and every way it can fail to start."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.conftest import Kctl, command_line, process
from tests.integration.cli.group_readers import ROOT

SECRET = "correct horse = battery\\staple"


@pytest.fixture
def kctl(tmp_path: Path) -> Iterator[Kctl]:
    """`kctl` whose brokers have their data in this test's folder and are stopped with it."""
    run = command_line({"XDG_DATA_HOME": str(tmp_path)})
    yield run
    run("broker stop")


def status_of(kctl: Kctl) -> dict[str, Any]:
    row: dict[str, Any]
    (row,) = kctl("broker status --format json").document
    return row


def test_background_broker_runs_until_it_is_stopped(kctl: Kctl, tmp_path: Path) -> None:
    assert kctl("broker status").status == 3
    started = process({"XDG_DATA_HOME": str(tmp_path)})("broker start --port 0 --detach")
    assert (started.status, started.out) == (0, "")
    status = status_of(kctl)
    assert status["state"] == "serving"
    assert f"serving on {status['address']}" in started.err
    commands = [line.strip() for line in started.err.splitlines() if line.startswith("  ")]
    assert [command.split()[-1] for command in commands] == [status["address"]] * 3
    output = [
        subprocess.run(command, shell=True, check=True, capture_output=True, cwd=ROOT).stdout for command in commands
    ]
    assert b"first record" in output[-1]

    again = kctl("broker start --port 0 --detach")
    assert again.status == 1
    assert again.err.count("kctl: ") == 1, again.err
    assert str(status["pid"]) in again.err

    assert kctl("broker stop").status == 0
    assert status_of(kctl)["state"] == "stopped"
    assert kctl("broker stop").status == 3


def test_suggested_commands_use_the_program_name(kctl: Kctl, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "kctl").touch(mode=0o755)
    active = process({"XDG_DATA_HOME": str(tmp_path), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"})
    started = active("broker start --port 0 --detach")
    assert started.status == 0, started.err
    assert "\n  kctl topics create " in started.err


def test_properties_from_a_file_do_not_appear_in_the_process_list(kctl: Kctl, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    escaped = SECRET.replace("\\", "\\\\")
    file.write_text(f"num.partitions=7\nssl.keystore.password={escaped}\nno.such.property=1\n")
    started = kctl(f"broker start --port 0 --config {file} --detach")
    assert started.status == 0, started.err
    assert "kctl: warning: no.such.property" in started.err
    status = status_of(kctl)

    title = Path(f"/proc/{status['pid']}/cmdline").read_bytes() + Path(f"/proc/{status['pid']}/environ").read_bytes()
    assert b"horse" not in title
    assert kctl(f"topics create seven --bootstrap-server {status['address']}").rows[0][:2] == ["seven", "7"]


@pytest.mark.parametrize(
    ("options", "reason", "option"),
    [
        ("--port {port} --detach", "127.0.0.1:{port} is in use", "--port"),
        ("--port 0 --metrics-port {port} --detach", "127.0.0.1:{port} is in use", "--metrics-port"),
        ("--port {free} --port-step {step} --processes 2 --detach", "process 1: 127.0.0.1:{port} is in use", "--port"),
        ("--port {port}", "127.0.0.1:{port} is in use", "--port"),
        ("--port 0 --metrics-port {port}", "127.0.0.1:{port} is in use", "--metrics-port"),
        ("--port 0 --embedded-zookeeper-port {port}", "port {port} of 127.0.0.1 is", "--embedded-zookeeper-port"),
        ("--port {port} --secure", "127.0.0.1:{port} is in use", "--port"),
        ("--port {free} --port-step {step} --processes 2", "process 1: 127.0.0.1:{port} is in use", "--port"),
        ("--port {free} --port-step {step} --processes 2 --secure", "127.0.0.1:{port} is in use", "--port"),
    ],
)
def test_port_in_use_is_reported_once_and_leaves_no_files(
    kctl: Kctl, tmp_path: Path, options: str, reason: str, option: str
) -> None:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    free, port = sorted(server.getsockname()[1] for server in servers)
    with servers[0], servers[1]:
        next(server for server in servers if server.getsockname()[1] == free).close()
        refused = kctl(f"broker start {options.format(port=port, free=free, step=port - free)}")
    assert refused.status == 1
    last = refused.err.splitlines()[-1]
    assert last.startswith(f"kctl: {reason.format(port=port)}")
    assert option in last.split()
    assert "Traceback" not in refused.err
    assert status_of(kctl)["state"] == "stopped"
    assert list(tmp_path.iterdir()) == []


def test_a_start_in_the_folder_of_a_running_broker_leaves_its_certificate(kctl: Kctl, tmp_path: Path) -> None:
    started = kctl("broker start --secure --port 0 --detach")
    assert started.status == 0, started.err
    certificate = tmp_path / "kctl" / "broker" / "security" / "broker.pem"
    before = certificate.read_bytes()
    refused = kctl("broker start --secure --port 0 --host other.example.com")
    assert refused.status == 1
    assert "is in use by the broker at" in refused.err
    assert certificate.read_bytes() == before


@pytest.mark.parametrize("words", ["", "--processes 1", "--log-format json"])
def test_the_lines_of_a_background_start_are_in_its_output_file(kctl: Kctl, tmp_path: Path, words: str) -> None:
    started = kctl(f"broker start --port 0 --metrics-port 0 --detach {words}")
    assert started.status == 0, started.err
    lines = (tmp_path / "kctl" / "broker" / "broker.out").read_text().splitlines()
    expected = ["metrics url=", "ZooKeeper server started", "serving broker=0"]
    if words == "--log-format json":
        assert all(isinstance(json.loads(line), dict) for line in lines)
        expected = ['"metrics"', '"ZooKeeper server started"', '"serving"']
    elif words:
        expected = ["ZooKeeper server started", "serving broker=0"]
    found = [next(number for number, line in enumerate(lines) if text in line) for text in expected]
    assert found == sorted(found), lines
    assert not any("try:" in line for line in lines), lines


@pytest.mark.parametrize("words", ["", "--processes 1"])
def test_a_free_port_for_metrics_is_told(kctl: Kctl, words: str) -> None:
    started = kctl(f"broker start --port 0 --metrics-port 0 --detach {words}")
    assert started.status == 0, started.err
    row = status_of(kctl)
    url = row["metrics_url"]
    assert f"metrics: {url}" in started.err.splitlines()
    endpoint = url.removeprefix("http://").removesuffix("/metrics")
    assert kctl(f"metrics show --endpoint {endpoint} --match process_cpu").status == 0
    assert kctl("broker stop").status == 0
    assert status_of(kctl)["metrics_url"] is None


def test_a_free_port_for_metrics_is_not_known_to_other_commands(kctl: Kctl) -> None:
    assert kctl("broker start --port 0 --metrics-port 0 --detach").status == 0
    ran = kctl(f"metrics show --bootstrap-server {status_of(kctl)['address']}")
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert "--endpoint HOST:PORT" in ran.err


def test_a_background_start_that_fails_leaves_its_lines_and_the_reason(kctl: Kctl, tmp_path: Path) -> None:
    words = "--port 0 --metrics-port 0 --zookeeper 127.0.0.1:1 -o zookeeper.connection.timeout.ms=200 --detach"
    failed = kctl(f"broker start {words}")
    assert failed.status == 1
    assert failed.err.splitlines()[-1].startswith("kctl: ZooKeeper does not respond at 127.0.0.1:1"), failed.err
    output = (tmp_path / "kctl" / "broker" / "broker.out").read_text()
    assert "metrics url=" in output
    assert "cannot start error=ZooKeeper does not respond at 127.0.0.1:1" in output

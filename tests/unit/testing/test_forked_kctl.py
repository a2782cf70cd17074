"""A forked command behaves as `python -m kctl`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.fork_server import ForkServer
from tests.peers.forked_kctl import ForkedKctl, program
from tests.peers.probe import wait_until
from tests.rows import for_rows

TIMEOUT_S = 60
NOT_THERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def forked() -> Iterator[ForkedKctl]:
    server = ForkServer(sys.executable)
    connected = ForkedKctl(server.address)
    yield connected
    connected.close()
    server.close()


@pytest.mark.long
@for_rows(
    "line",
    ["--version", "topics --help", "nonsense", "topics list", "produce orders --format nonsense", "completion fish"],
)
def test_status_and_output_are_those_of_a_process(forked: ForkedKctl, line: str) -> None:
    environment = os.environ | {"KCTL_BOOTSTRAP_SERVER": NOT_THERE}
    ours = forked.run(line.split(), stdin=b"x\n", environment=environment, timeout_s=TIMEOUT_S)
    process = subprocess.run(
        [sys.executable, "-m", "kctl", *line.split()],
        input=b"x\n", env=environment, capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert (ours.returncode, ours.stdout, ours.stderr) == (process.returncode, process.stdout, process.stderr)


@pytest.mark.long
def test_each_command_has_its_own_environment(forked: ForkedKctl) -> None:
    for server in (NOT_THERE, "127.0.0.1:2"):
        environment = os.environ | {"KCTL_BOOTSTRAP_SERVER": server}
        ran = forked.run(["topics", "list"], stdin=b"", environment=environment, timeout_s=TIMEOUT_S)
        assert (ran.returncode, server in ran.stderr.decode()) == (4, True)


def test_a_server_that_has_ended_is_an_error() -> None:
    server = ForkServer(sys.executable)
    forked = ForkedKctl(server.address)
    server.process.kill()
    server.process.wait()
    with pytest.raises(ConnectionError):
        forked.run(["--version"], stdin=b"", environment=os.environ, timeout_s=TIMEOUT_S)
    forked.close()
    server.close()


@pytest.mark.long
def test_a_program_has_folder_streams_and_signals_of_its_process(tmp_path: Path) -> None:
    missing = subprocess.run(
        [*program(), "dump-log", "no-such.log"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (missing.returncode, "no-such.log" in missing.stderr) == (2, True)
    command = [*program(), "broker", "zookeeper-start", "--port", "0", "--data-dir", "zookeeper"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        wait_until((tmp_path / "zookeeper").exists, what="the server", timeout_s=TIMEOUT_S)
        process.terminate()
        assert process.wait(TIMEOUT_S) in {0, -signal.SIGTERM}

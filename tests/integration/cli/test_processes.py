"""Several brokers of one machine as one service: `kctl broker start --processes`, with kills of its processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.cli.conftest import Kctl, command_line
from tests.peers.probe import free_port, free_ports, wait_until

TIMEOUT_S = 120
COUNT = 2


class Service(NamedTuple):
    """A running service of brokers with TLS and SCRAM."""

    kctl: Kctl
    folder: Path
    start: str
    """The command line that started it."""

    def pids(self) -> list[int | None]:
        """The process of each broker; None if it does not serve."""
        return [row["pid"] for row in self.kctl(f"broker status --data-dir {self.folder} --format json").document]

    def state(self) -> dict[str, Any]:
        """What the supervisor has written about itself."""
        state: dict[str, Any] = json.loads((self.folder / "broker.json").read_text())
        return state

    def get(self, path: str) -> str:
        """What the common endpoint for metrics sends; an empty text for another status than 200."""
        url = self.state()["metrics_url"].removesuffix("/metrics") + path
        try:
            with urlopen(url, timeout=TIMEOUT_S) as response:
                text: str = response.read().decode()
                return text
        except URLError:
            return ""

    def until_ready(self) -> None:
        wait_until(lambda: self.get("/readyz") == "ok\n", what="all brokers serve", timeout_s=TIMEOUT_S)


def has_ended(pid: int) -> bool:
    """Whether no such process runs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("machine") / "data"
    run = command_line({})
    first, second = sorted((free_port(), free_port()))
    words = f"--processes {COUNT} --port {first} --port-step {second - first} --secure --metrics-port 0 --detach"
    start = f"broker start --data-dir {folder} {words}"
    started = run(start)
    assert started.status == 0, started.err
    service = Service(run, folder, start)
    try:
        assert "kctl: warning" not in started.err
        yield service
    finally:
        stopped = run(f"broker stop --data-dir {folder}")
    assert stopped.status == 0, stopped.err
    assert service.pids() == [None] * COUNT


@pytest.fixture
def client(service: Service) -> Kctl:
    """`kctl` with the client properties that --secure has written."""
    service.until_ready()

    def run(line: str, stdin: bytes = b"") -> Any:
        return service.kctl(f"{line} --command-config {service.folder}/security/client.properties", stdin)

    return run


def test_brokers_are_one_cluster_in_the_rack_of_the_machine(client: Kctl) -> None:
    rows = client("cluster describe --format json").document["brokers"]
    assert [(row["broker"], row["rack"]) for row in rows] == [(index, socket.gethostname()) for index in range(COUNT)]


def test_killed_broker_is_started_again_with_its_data(service: Service, client: Kctl) -> None:
    assert client("topics create kept --partitions 4").status == 0
    assert client("produce kept", b"one\ntwo\nthree\nfour\n").status == 0
    before = service.pids()
    assert before[1] is not None
    os.kill(before[1], signal.SIGKILL)
    wait_until(lambda: service.pids()[1] not in {None, before[1]}, what="another process", timeout_s=TIMEOUT_S)
    service.until_ready()
    assert service.pids()[0] == before[0]
    wait_until(lambda: client("cluster health").status == 0, what="a healthy cluster", timeout_s=TIMEOUT_S)
    values = [record["value"] for record in client("consume kept --format json").document]
    assert sorted(values) == ["four", "one", "three", "two"]


def test_one_endpoint_has_the_metrics_of_all_brokers(service: Service) -> None:
    service.until_ready()
    families = list(text_string_to_metric_families(service.get("/metrics")))
    samples = [sample for family in families for sample in family.samples]
    of_brokers = {sample.labels.get("broker") for sample in samples if sample.name.startswith("kafka_server_")}
    assert of_brokers == {str(index) for index in range(COUNT)}
    serving = {sample.labels["process"]: sample.value for sample in samples if sample.name == "kctl_process_serving"}
    assert serving == {str(index): 1 for index in range(COUNT)}


def test_stopping_one_broker_restarts_it(service: Service) -> None:
    service.until_ready()
    before = service.pids()
    assert service.kctl(f"broker stop --data-dir {service.folder}/process-0").status == 0
    wait_until(lambda: service.pids()[0] not in {None, before[0]}, what="another process", timeout_s=TIMEOUT_S)
    service.until_ready()
    assert service.pids()[1:] == before[1:]
    lines = (service.folder / "broker.out").read_text().splitlines()
    assert any(line.endswith(" process=0") and "kctl.server.broker.broker" in line for line in lines)


def test_bundle_has_all_brokers_and_no_secrets(service: Service, tmp_path: Path) -> None:
    service.until_ready()
    made = service.kctl(f"broker bundle --data-dir {service.folder} --output {tmp_path}/b.tar.gz --format json")
    assert made.status == 0, made.err
    with tarfile.open(tmp_path / "b.tar.gz") as opened:
        opened.extractall(tmp_path / "b", filter="data")
    folder = tmp_path / "b" / "kctl-bundle"
    texts = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}
    password = (service.folder / "security" / "admin.password").read_text().strip()
    assert password not in "".join(texts.values())
    for index in range(COUNT):
        assert f"broker.id={index}" in texts[f"log-dir-{index}/meta.properties"]
        assert f"broker.id={index}" in texts[f"process-{index}/tasks-and-threads.txt"]
    assert "supervise-1" in texts["tasks-and-threads.txt"]


def test_service_cannot_be_started_with_fewer_brokers_or_as_one(service: Service) -> None:
    for words in ("", "--processes 1"):
        checked = service.kctl(f"broker check --data-dir {service.folder} --port 0 {words} --format json")
        assert checked.status == 3
        assert f"has the data of {COUNT} brokers" in checked.document[0]["message"]
        started = service.kctl(f"broker start --data-dir {service.folder} --port 0 {words}")
        assert started.status == 1
        assert f"has the data of {COUNT} brokers" in started.err


def test_kill_of_the_supervisor_leaves_no_process(service: Service) -> None:
    service.until_ready()
    pids = [pid for pid in service.pids() if pid is not None]
    assert len(pids) == COUNT
    os.kill(service.state()["pid"], signal.SIGKILL)
    # The next start waits for the brokers of the one before.
    started = service.kctl(service.start)
    assert started.status == 0, started.err
    assert all(map(has_ended, pids))
    service.until_ready()


def test_broker_that_cannot_start_ends_the_service(tmp_path: Path) -> None:
    first, second = free_ports(2)
    with socket.create_server(("127.0.0.1", second)):
        ran = command_line({})(f"broker start --data-dir {tmp_path}/data --processes 2 --port {first}")
    assert ran.status == 1
    assert ran.err.splitlines()[-1].startswith(f"kctl: process 1: 127.0.0.1:{second} is in use")
    assert "Traceback" not in ran.err
    status = command_line({})(f"broker status --data-dir {tmp_path}/data --format json")
    assert {row["state"] for row in status.document} == {"stopped"}


def test_service_manager_gets_one_notification_for_all(tmp_path: Path) -> None:
    """READY after all brokers have written their addresses; SIGTERM stops all of them with status 0."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(TIMEOUT_S)
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        command = [sys.executable, "-m", "kctl", "broker", "start", "--port", "0", "--data-dir", str(tmp_path / "data")]
        command += ["--processes", "2", "--log-format", "json"]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as supervisor:
            assert manager.recv(4096).startswith(b"READY=1\nSTATUS=serving on 127.0.0.1:")
            files = sorted((tmp_path / "data").glob("process-*/broker.json"))
            pids = [json.loads(file.read_text())["pid"] for file in files]
            assert len(pids) == 2
            assert manager.recv(4096) == b"WATCHDOG=1"
            supervisor.send_signal(signal.SIGTERM)
            while (message := manager.recv(4096)) == b"WATCHDOG=1":
                pass
            assert message == b"STOPPING=1\nSTATUS=stopping"
            _, errors = supervisor.communicate(timeout=TIMEOUT_S)
        assert supervisor.returncode == 0, errors
        assert all(map(has_ended, pids))
    lines = [json.loads(line) for line in errors.splitlines()]
    assert {line["process"] for line in lines if line["logger"] == "kctl.server.broker.broker"} == {0, 1}

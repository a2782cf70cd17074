"""One id, several processes: which of them may register, and when one must not lead that may have lost its id.

Without network namespaces: a broker that advertises the address of another one looks to ZooKeeper like one on another
host with the same properties.
"""

from __future__ import annotations

import json
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kctl.errors import ErrorCode
from tests.peers import probe
from tests.peers.embedded_zookeeper import EmbeddedZooKeeperProcess, embedded_zookeeper
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import KctlBroker, kctl_broker
from tests.peers.one_broker import Appended, OneBroker

PATIENCE_S = 60
TIMEOUT_MS = 4_000
"""The shortest session timeout with ZooKeeper's default tick."""
PROPERTIES = {"broker.id": "7", "zookeeper.session.timeout.ms": str(TIMEOUT_MS)}
REGISTRATION = "/brokers/ids/7"
TOPIC = "orders"
REFUSED = Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeperProcess]:
    with embedded_zookeeper(tmp_path_factory.mktemp("identity") / "zookeeper") as server:
        yield server


@pytest.fixture
def ensemble(zookeeper: EmbeddedZooKeeperProcess) -> str:
    """An empty chroot for the test."""
    chroot = f"/{probe.free_port()}"
    with _client(zookeeper.connect) as client:
        client.create(chroot)
    return zookeeper.connect + chroot


@contextmanager
def _client(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect, timeout=20)
    client.start(timeout=PATIENCE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def _epoch(connect: str) -> int | None:
    """The czxid of the registration."""
    with _client(connect) as client:
        stat = client.exists(REGISTRATION)
        return None if stat is None else int(stat.czxid)


def _acknowledges(broker: KctlBroker, value: bytes) -> bool:
    with suppress(OSError, EOFError), OneBroker(broker.bootstrap) as client:
        return client.append(TOPIC, value).error is ErrorCode.NONE
    return False


def _until_it_acknowledges(broker: KctlBroker) -> None:
    probe.wait_until(lambda: _acknowledges(broker, b"again"), what="an acknowledged record", timeout_s=PATIENCE_S)


def test_second_broker_with_the_same_id_and_address_does_not_start_while_the_first_is_alive(
    tmp_path: Path, ensemble: str
) -> None:
    """With a folder of its own, and with a copy of the first one's."""
    with kctl_broker(tmp_path / "first", properties=PROPERTIES, zookeeper=ensemble) as first:
        run_kctl("topics", "create", TOPIC, "--bootstrap-server", first.bootstrap)
        epoch = _epoch(ensemble)
        shutil.copytree(tmp_path / "first", tmp_path / "copy")
        properties = {**PROPERTIES, "advertised.listeners": f"PLAINTEXT://{first.bootstrap}"}

        def start(folder: str) -> str:
            try:
                with kctl_broker(tmp_path / folder, properties=properties, zookeeper=ensemble):
                    return "started"
            except RuntimeError as error:
                return str(error)

        with ThreadPoolExecutor(2) as starters:
            for folder, outcome in zip(("new", "copy"), starters.map(start, ("new", "copy")), strict=True):
                assert re.search(f"registered by another broker at {first.bootstrap}.* is alive", outcome), folder
        assert _epoch(ensemble) == epoch
        assert _acknowledges(first, b"still")
        assert "session expired" not in first.log_text


def test_killed_broker_starts_at_once_from_its_folder_and_after_its_session_from_a_copy(
    tmp_path: Path, ensemble: str
) -> None:
    """The first session is far longer than a start from a copy waits."""
    properties = {**PROPERTIES, "zookeeper.session.timeout.ms": "40000"}
    with kctl_broker(tmp_path / "data", properties=properties, zookeeper=ensemble) as broker:
        broker.kill9()
    with kctl_broker(tmp_path / "data", properties=PROPERTIES, zookeeper=ensemble) as moved:
        assert "waiting for the session" not in moved.log_text
        moved.kill9()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with kctl_broker(tmp_path / "copy", properties=PROPERTIES, zookeeper=ensemble) as copy:
        assert "waiting for the session of another registration to expire" in copy.log_text


def test_broker_with_its_own_zookeeper_starts_after_a_kill_wherever_its_data_is(tmp_path: Path) -> None:
    """On other ports each time: in its folder, in a copy, and in a copy without the file about its session."""
    folder = tmp_path / "data"
    for step in ("first", "another port", "copy", "copy without the session"):
        if step.startswith("copy"):
            shutil.copytree(folder, folder := tmp_path / step)
        if step == "copy without the session":
            (folder / "broker.session").unlink()
        with kctl_broker(folder, properties=PROPERTIES) as broker:
            if step == "first":
                run_kctl("topics", "create", TOPIC, "--bootstrap-server", broker.bootstrap)
            _until_it_acknowledges(broker)
            is_expected_to_wait = step == "copy without the session"
            assert ("waiting for the session" in broker.log_text) is is_expected_to_wait, step
            broker.kill9()


def test_paused_broker_acknowledges_nothing_before_its_registration_is_verified(tmp_path: Path, ensemble: str) -> None:
    with kctl_broker(tmp_path / "data", properties=PROPERTIES, zookeeper=ensemble) as broker:
        run_kctl("topics", "create", TOPIC, "--bootstrap-server", broker.bootstrap)
        _until_it_acknowledges(broker)
        with OneBroker(broker.bootstrap) as client:
            broker.halt()
            client.send_record(TOPIC, b"while paused")
            probe.wait_until(lambda: _epoch(ensemble) is None, what="the end of the session", timeout_s=PATIENCE_S)
            broker.resume()
            assert client.appended() == REFUSED
        _until_it_acknowledges(broker)
        assert "acting as leader again" in broker.log_text


def test_broker_without_zookeeper_stops_leading_says_so_and_resumes(tmp_path: Path) -> None:
    port = probe.free_port()
    properties = {**PROPERTIES, "metrics.port": str(port)}
    with (
        embedded_zookeeper(tmp_path / "zookeeper") as zookeeper,
        kctl_broker(tmp_path / "data", properties=properties, zookeeper=zookeeper.connect) as broker,
    ):
        run_kctl("topics", "create", TOPIC, "--bootstrap-server", broker.bootstrap)
        _until_it_acknowledges(broker)
        zookeeper.kill9()
        with OneBroker(broker.bootstrap) as client:
            probe.wait_until(
                lambda: client.append(TOPIC, b"without ZooKeeper") == REFUSED, what="a refusal", timeout_s=PATIENCE_S
            )
            assert client.read_error(TOPIC) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        status = run_kctl("broker", "status", "--data-dir", tmp_path / "data", "--format", "json")
        (row,) = json.loads(status.stdout)
        assert (status.returncode, row["state"]) == (3, "fenced")
        assert "has not confirmed the registration" in row["problem"]
        assert _page(port, "/healthz") == (200, f"not acting as leader: {row['problem']}\n")
        assert _page(port, "/readyz")[0] == 503
        health = run_kctl("cluster", "health", "--bootstrap-server", broker.bootstrap, "--format", "json")
        assert (health.returncode, json.loads(health.stdout)["reasons"][0]["problem"]) == (3, "not leading")
        zookeeper.start()
        _until_it_acknowledges(broker)
        probe.wait_until(
            lambda: run_kctl("broker", "status", "--data-dir", tmp_path / "data").returncode == 0,
            what="the state serving",
            timeout_s=PATIENCE_S,
        )
        # On a busy machine ZooKeeper can be late once more, so that the broker is fenced again for a moment.
        probe.wait_until(lambda: _page(port, "/healthz") == (200, "ok\n"), what="no problem", timeout_s=PATIENCE_S)


def test_broker_whose_registration_was_deleted_registers_again(tmp_path: Path, ensemble: str) -> None:
    with kctl_broker(tmp_path / "data", properties=PROPERTIES, zookeeper=ensemble) as broker:
        run_kctl("topics", "create", TOPIC, "--bootstrap-server", broker.bootstrap)
        before = _epoch(ensemble)
        with _client(ensemble) as client, suppress(NoNodeError):
            client.delete(REGISTRATION)
        probe.wait_until(
            lambda: _epoch(ensemble) not in {None, before}, what="a new registration", timeout_s=PATIENCE_S
        )
        _until_it_acknowledges(broker)
        assert "/brokers/ids/7 was deleted in ZooKeeper" in broker.log_text


def _page(port: int, path: str) -> tuple[int, str]:
    """The status and the body of the response."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()

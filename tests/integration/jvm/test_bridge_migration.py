"""Apache's own migration, with the lines that `kctl migrate check --path bridge` prints and nothing else."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kctl.errors import NoNodeError
from kctl.migration.check.steps import HIDDEN
from kctl.zookeeper import paths
from kctl.zookeeper.session import ZooKeeperSession
from kctl.zookeeper.znodes import decode_controller
from tests.integration.cli.conftest import Kctl, command_line
from tests.integration.cli.test_migrate_check import on_zookeeper
from tests.peers import apache_kafka, probe
from tests.peers.process import Process

pytestmark = [pytest.mark.jvm, pytest.mark.matrix]

BRIDGE = apache_kafka.LAST_WITH_ZOOKEEPER
TIMEOUT_S = 120
DONE = "Completed migration of metadata from ZooKeeper to KRaft"
PRINCIPALS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class Nodes:
    """The nodes of the cluster: their properties files, to which steps are applied, and their processes."""

    def __init__(self, folder: Path, broker: Mapping[str, str]) -> None:
        self._folder = folder
        self._properties: dict[str, dict[str, str]] = {"broker 0": dict(broker)}
        self._running: dict[str, Process] = {}

    def apply(self, step: Mapping[str, Any]) -> None:
        for change in step["files"]:
            properties = self._properties.setdefault(change["node"], {})
            for name in change["remove"]:
                properties.pop(name, None)
            # Brokers show neither passwords nor properties of plug-ins.
            properties.update(
                {name: PRINCIPALS[name] if value == HIDDEN else value for name, value in change["set"].items()}
            )
            if "controller" in change["node"]:
                properties["log.dirs"] = str(self._folder / "controller")

    def copied(self, node: str) -> dict[str, str]:
        return dict(self._properties[node])

    def replace(self, node: str, properties: Mapping[str, str]) -> None:
        self._properties[node] = dict(properties)

    def file_of(self, node: str) -> Path:
        path = self._folder / f"{node.replace(' ', '-')}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self._properties[node].items()))
        return path

    def start(self, node: str, version: str = BRIDGE) -> Process:
        self.stop(node)
        self._running[node] = apache_kafka.launched_node(version, self.file_of(node))
        return self._running[node]

    def stop(self, node: str) -> None:
        if node in self._running:
            self._running.pop(node).stop()

    def stop_all(self) -> None:
        for name in list(self._running):
            self.stop(name)


@contextlib.contextmanager
def source(folder: Path) -> Iterator[tuple[Nodes, Kctl, str, str, dict[str, Any]]]:
    """A broker of 3.9 with records, an ACL and a quota, its ZooKeeper, and the report with the steps."""
    bootstrap = f"127.0.0.1:{probe.free_port()}"
    kctl = command_line({"KCTL_BOOTSTRAP_SERVER": bootstrap, "XDG_STATE_HOME": str(folder / "state")})
    with apache_kafka.zookeeper_of(BRIDGE, folder / "zookeeper") as connect:
        nodes = Nodes(
            folder,
            {
                **apache_kafka.SINGLE_BROKER_PROPERTIES,
                **PRINCIPALS,
                "listeners": f"PLAINTEXT://{bootstrap}",
                "log.dirs": str(folder / "logs"),
                "zookeeper.connect": connect,
                "broker.id": "0",
            },
        )
        try:
            wait_for(nodes.start("broker 0"), bootstrap)
            assert kctl("topics create orders --partitions 2 --set segment.bytes=2097152").status == 0
            assert kctl("produce orders --partition 1", b"one\ntwo\n").status == 0
            assert kctl("acls add --allow-principal User:reader --operation read --topic orders").status == 0
            assert kctl("quotas alter --user reader --consumer-rate 1000 --yes").status == 0
            words = f"--path bridge --zookeeper {connect} --controllers 127.0.0.1:{probe.free_port()} --target 4.3"
            checked = kctl(f"migrate check --format json {words}")
            assert checked.status == 0, checked.out
            assert {"removed-authorizer", "security-contents"} <= {row["kind"] for row in checked.document["problems"]}
            yield nodes, kctl, bootstrap, connect, checked.document
        finally:
            nodes.stop_all()


def test_printed_lines_carry_a_cluster_to_the_target(tmp_path: Path) -> None:
    with source(tmp_path) as (nodes, kctl, bootstrap, _, document):
        migrate(nodes, kctl, bootstrap, document)


def test_printed_ways_back_bring_a_cluster_back_to_zookeeper(tmp_path: Path) -> None:
    with source(tmp_path) as (nodes, kctl, bootstrap, connect, document):
        controllers, connected, turned, _, _ = document["steps"]
        controller = controllers["files"][0]["node"]
        original = nodes.copied("broker 0")
        begin(nodes, bootstrap, document)
        dual = nodes.copied("broker 0")
        nodes.apply(turned)
        wait_for(nodes.start("broker 0"), bootstrap)
        assert kctl("produce orders --partition 1", b"three\n").status == 0

        assert "the lines of the step before, after __cluster_metadata-0 was deleted" in turned["way_back"]
        nodes.stop("broker 0")
        shutil.rmtree(tmp_path / "logs" / "__cluster_metadata-0")
        nodes.replace("broker 0", dual)
        wait_for(nodes.start("broker 0"), bootstrap)

        back = (
            "stop the controllers; delete the znodes /controller and /migration; wait until a broker is the controller"
        )
        assert connected["way_back"].startswith(back)
        nodes.stop(controller)
        on_zookeeper(connect, delete_claims)
        probe.wait_until(lambda: on_zookeeper(connect, controller_of) == 0, what="a controller", timeout_s=TIMEOUT_S)
        nodes.stop("broker 0")
        probe.wait_until(lambda: not on_zookeeper(connect, brokers_of), what="no session", timeout_s=TIMEOUT_S)
        nodes.replace("broker 0", original)
        wait_for(nodes.start("broker 0"), bootstrap)
        check_contents(kctl, "three")
        assert kctl("topics create after").status == 0
        again = kctl(f"migrate check --format json --zookeeper {connect}").document
        assert not {"migration-begun", "not-zookeeper"} & {row["kind"] for row in again["problems"]}


async def delete_claims(session: ZooKeeperSession) -> None:
    for path in ("/controller", "/migration"):
        with contextlib.suppress(NoNodeError):
            await session.delete(path)


async def controller_of(session: ZooKeeperSession) -> int | None:
    if await session.exists(paths.CONTROLLER) is None:
        return None
    data, _ = await session.get(paths.CONTROLLER)
    return decode_controller(paths.CONTROLLER, data).broker_id


async def brokers_of(session: ZooKeeperSession) -> list[str]:
    return await session.children(paths.BROKER_IDS)


def begin(nodes: Nodes, bootstrap: str, document: Mapping[str, Any]) -> None:
    """Takes the first two steps: until all metadata is in both."""
    controllers, connected = document["steps"][:2]
    controller = controllers["files"][0]["node"]
    nodes.apply(controllers)
    apache_kafka.format_directories(BRIDGE, nodes.file_of(controller), document["cluster_id"])
    quorum = nodes.start(controller)
    nodes.apply(connected)
    wait_for(nodes.start("broker 0"), bootstrap)
    quorum.wait_until(lambda: DONE in quorum.log_text, timeout_s=TIMEOUT_S)


def migrate(nodes: Nodes, kctl: Kctl, bootstrap: str, document: Mapping[str, Any]) -> None:
    """Takes the steps, and compares the cluster after each."""
    controllers, _, turned, ended, upgraded = document["steps"]
    controller = controllers["files"][0]["node"]
    begin(nodes, bootstrap, document)
    check_contents(kctl)

    nodes.apply(turned)
    wait_for(nodes.start("broker 0"), bootstrap)
    check_contents(kctl)

    nodes.apply(ended)
    quorum = nodes.start(controller)
    quorum.wait_until(lambda: "POST_MIGRATION" in quorum.log_text, timeout_s=TIMEOUT_S)
    assert kctl("produce orders --partition 1", b"three\n").status == 0
    (kind,) = kctl("migrate check --format json").document["problems"]
    assert kind["kind"] == "not-zookeeper"

    nodes.apply(upgraded)
    nodes.stop("broker 0")
    nodes.start(controller, apache_kafka.NEWEST_BROKER)
    wait_for(nodes.start("broker 0", apache_kafka.NEWEST_BROKER), bootstrap)
    for line in upgraded["actions"]:
        if line.startswith("kctl "):
            assert kctl(f"{line.removeprefix('kctl ')} --yes").status == 0
    check_contents(kctl, "three")


def wait_for(broker: Process, bootstrap: str) -> None:
    broker.wait_until(lambda: probe.has_controller(bootstrap), timeout_s=TIMEOUT_S)


def check_contents(kctl: Kctl, *more: str) -> None:
    rows = kctl("consume orders --partition 1").rows
    expected = ["one", "two", *more]
    assert len(rows) == len(expected)
    assert all(value in row for value, row in zip(expected, rows, strict=True))
    assert "2097152" in kctl("configs describe topic orders --property segment.bytes").out
    assert "User:reader" in kctl("acls list").out
    assert "1000" in kctl("quotas describe --user reader").out

"""A stopped cluster with ZooKeeper is converted to KRaft, and Apache Kafka 4 serves everything that it stored."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from kctl.config.properties import format_properties
from kctl.migration.target.snapshot import FILE_NAME, METADATA_FOLDER
from tests.integration.jvm.broker_data import PROPERTIES, BrokerData
from tests.peers import apache_kafka, probe
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import TEST_PROPERTIES, kctl_broker
from tests.peers.process import Process

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

NEWEST = apache_kafka.NEWEST_BROKER
SECURITY = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",  # the clients of these tests, and the broker as a client of the controller
}
PASSWORD = "a password of these tests"


def kctl(*words: object, status: int = 0) -> str:
    ran = run_kctl(*map(str, words))
    assert ran.returncode == status, f"{words}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


class Node(NamedTuple):
    """A broker of the old cluster, and a node of the new one."""

    number: int
    folder: Path
    port: int
    properties: Mapping[str, str]
    log_dirs: Sequence[Path]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def settings(self) -> Path:
        return self.folder / "server.properties"

    @property
    def new_settings(self) -> Path:
        return self.folder / "server-kraft.properties"

    def write_settings(self, zookeeper: str) -> None:
        properties = {
            **self.properties,
            "broker.id": str(self.number),
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": ",".join(map(str, self.log_dirs)),
            "zookeeper.connect": zookeeper,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        self.settings.write_text(format_properties(properties))


def made_node(folder: Path, number: int, properties: Mapping[str, str], directories: int = 1) -> Node:
    place = folder / f"node-{number}"
    log_dirs = [place / "data" / ("logs" if not index else f"logs-{index}") for index in range(directories)]
    more = {} if directories == 1 else {"log.dirs": ",".join(map(str, log_dirs))}
    return Node(number, place, probe.free_port(), {**properties, **more}, log_dirs)


@contextlib.contextmanager
def old_broker(node: Node, version: str, zookeeper: str) -> Iterator[str]:
    """A broker of ours, or of Apache Kafka, on the ensemble."""
    properties = {**node.properties, "broker.id": str(node.number)}
    if version == "ours":
        with kctl_broker(node.folder / "data", properties=properties, zookeeper=zookeeper, port=node.port) as broker:
            yield broker.bootstrap
    else:
        more = {**properties, "zookeeper.connection.timeout.ms": "60000"}
        with apache_kafka.apache_kafka(
            version, node.folder / "data", zookeeper=zookeeper, port=node.port, properties=more
        ) as bootstrap:
            yield bootstrap


@contextlib.contextmanager
def new_nodes(nodes: Mapping[Path, str]) -> Iterator[list[Process]]:
    """The nodes of 4.x with these properties; each with the address of its broker, empty for a controller."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(apache_kafka.launched_node(NEWEST, settings)) for settings in nodes]
        for process, bootstrap in zip(started, nodes.values(), strict=True):
            if bootstrap:
                process.wait_until(
                    lambda bootstrap=bootstrap: probe.has_controller(bootstrap),  # type: ignore[misc]
                    timeout_s=apache_kafka.BROKER_START_TIMEOUT_S,
                )
        yield started


def make_plan(folder: Path, nodes: Sequence[Node], zookeeper: str, controllers: Sequence[str], *options: str) -> Path:
    """Takes the inventories, and makes the plan."""
    words: list[object] = []
    for node in nodes:
        node.write_settings(zookeeper)
        document = folder / f"inventory-{node.number}.json"
        kctl("migrate", "inventory", "--broker-config", node.settings, "--output", document)
        words += ["--inventory", document]
    for controller in controllers:
        words += ["--controller", controller]
    plan = folder / "plan.json"
    kctl("migrate", "plan", "--zookeeper", zookeeper, *words, *options, "--output", plan)
    return plan


def set_up_security(bootstrap: str, folder: Path) -> None:
    """ACLs, a user and a quota."""
    at = ["--bootstrap-server", bootstrap, "--yes"]
    password = folder / "password"
    password.write_text(PASSWORD)
    kctl("acls", "add", "--allow", "User:alice", "--operation", "read", "--topic", "codecs", *at)
    kctl("acls", "add", "--allow", "User:bob", "--operation", "read", "--group", "team-", "--prefix", *at)
    kctl("users", "create", "alice", "--password-file", password, *at)
    kctl("quotas", "alter", "--user", "alice", "--producer-rate", "1MB", *at)


def compared(bootstrap: str, saved: Path, status: int = 0) -> dict[tuple[str, str], set[str]]:
    """What 'kctl migrate verify' finds: the names of the items of each subject and status that are not equal."""
    words = ("migrate", "verify", "--bootstrap-server", bootstrap, "--compare", saved, "--format", "json")
    found: dict[tuple[str, str], set[str]] = {}
    rows = json.loads(kctl(*words, status=status))
    print(json.dumps([row for row in rows if row["status"] not in {"equal", "new"}], indent=1))  # noqa: T201 - if it fails
    for row in rows:
        if row["name"] is not None or row["status"] != "equal":
            found.setdefault((row["subject"], row["status"]), set()).add(row["name"] or "")
    return found


TRANSLATED = {
    ("topic config", "translated"): {"compacted segment.bytes", "old message.format.version"},
}
"""What 4.x has in another form, of the topics of BrokerData."""


def change_on_4(bootstrap: str) -> None:
    """Changes of each kind that the way back has to carry."""
    at = ["--bootstrap-server", bootstrap, "--yes"]
    kctl("topics", "create", "made-on-4", "--partitions", "2", "--set", "retention.ms=5000", *at)
    kctl("configs", "alter", "topic", "many", "--set", "retention.ms=86400000", *at)
    kctl("acls", "add", "--allow", "User:carol", "--operation", "write", "--topic", "many", *at)
    kctl("quotas", "alter", "--user", "alice", "--producer-rate", "2MB", *at)


def different(found: Mapping[tuple[str, str], set[str]]) -> dict[tuple[str, str], set[str]]:
    """What is lost, or has another value."""
    return {key: names for key, names in found.items() if key[1] in {"differs", "missing"}}


def is_explained(found: Mapping[tuple[str, str], set[str]]) -> bool:
    """Whether nothing but what the plan says differs, and nothing but the contents of internal topics is unread."""
    return {key: names for key, names in found.items() if key[1] not in {"not compared", "new"}} == TRANSLATED


def test_4_serves_what_our_broker_has_stored_and_our_broker_what_4_has_written(tmp_path: Path) -> None:
    data = BrokerData(deletes_records=True)
    node = made_node(tmp_path, 3, {**TEST_PROPERTIES, **PROPERTIES, **SECURITY})
    before, written = tmp_path / "before.json", tmp_path / "written.json"
    of_node = ("--plan", tmp_path / "plan.json", "--node", 3, "--yes")
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        with old_broker(node, "ours", zookeeper.connect) as bootstrap:
            data.create(bootstrap)
            data.write(bootstrap)
            set_up_security(bootstrap, tmp_path)
            kctl("migrate", "verify", "--bootstrap-server", bootstrap, "--save", before)
            node.write_settings(zookeeper.connect)
            words = (
                "--broker-config",
                node.settings,
                "--zookeeper",
                zookeeper.connect,
                "--controller",
                "3@127.0.0.1:1",
            )
            assert "brokers are running: 3" in kctl("migrate", "plan", *words, status=3)
        plan = make_plan(tmp_path, [node], zookeeper.connect, [f"3@127.0.0.1:{probe.free_port()}"])
        assert plan.stat().st_mode & 0o077 == 0
        assert kctl("migrate", "plan", *words, "--output", plan, status=2) == ""  # It is not overwritten.
        kctl("migrate", "convert", *of_node)
        kctl("migrate", "revert", *of_node)  # Before 4.x has run.
        kctl("migrate", "convert", *of_node)
        with new_nodes({node.new_settings: node.bootstrap}):
            data.wait_for_leaders(node.bootstrap)
            found = compared(node.bootstrap, before)
            assert is_explained(found), found
            data.check(node.bootstrap)
            data.write(node.bootstrap, waits_for_compaction=False)
            change_on_4(node.bootstrap)
            kctl("migrate", "verify", "--bootstrap-server", node.bootstrap, "--save", written)
        kctl("migrate", "revert", *of_node)
        with old_broker(node, "ours", zookeeper.connect) as bootstrap:
            data.wait_for_leaders(bootstrap)
            found = compared(bootstrap, written, status=3)
            assert different(found) == {("topic config", "differs"): {"compacted segment.bytes"}}, found
            data.check(bootstrap)
            data.write(bootstrap)
            data.check(bootstrap)


OLD = ("ours", apache_kafka.OLDEST_JUDGE, apache_kafka.LAST_WITH_ZOOKEEPER)


@pytest.mark.matrix
@pytest.mark.parametrize("version", OLD)
def test_4_serves_several_log_directories_of_each_version_which_continues_afterwards(
    version: str, tmp_path: Path
) -> None:
    """With two log directories, and a controller of its own that is the voter of a dynamic quorum."""
    data = BrokerData(deletes_records=True)
    node = made_node(tmp_path, 3, {**TEST_PROPERTIES, **PROPERTIES, **SECURITY}, directories=2)
    before, written = tmp_path / "before.json", tmp_path / "written.json"
    folder = tmp_path / "controller" / "metadata"
    address = f"127.0.0.1:{probe.free_port()}"
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        with old_broker(node, version, zookeeper.connect) as bootstrap:
            data.create(bootstrap)
            data.write(bootstrap)
            set_up_security(bootstrap, tmp_path)
            kctl("migrate", "verify", "--bootstrap-server", bootstrap, "--save", before)
        options = ("--dynamic-quorum",)
        plan = make_plan(tmp_path, [node], zookeeper.connect, [f"100@{address}={folder}"], *options)
        for number in (3, 100):
            kctl("migrate", "convert", "--plan", plan, "--node", number, "--yes")
        with new_nodes({folder / "controller.properties": "", node.new_settings: node.bootstrap}):
            data.wait_for_leaders(node.bootstrap)
            found = compared(node.bootstrap, before)
            assert is_explained(found), found
            data.check(node.bootstrap)
            data.write(node.bootstrap, waits_for_compaction=False)
            change_on_4(node.bootstrap)
            data.check(node.bootstrap)
            kctl("migrate", "verify", "--bootstrap-server", node.bootstrap, "--save", written)
        kctl("migrate", "revert", "--plan", plan, "--node", 100, "--yes")
        kctl("migrate", "revert", "--plan", plan, "--node", 3, "--files-only", "--yes")
        with old_broker(node, version, zookeeper.connect) as bootstrap:
            data.wait_for_leaders(bootstrap)
            found = compared(bootstrap, written, status=3)
            assert different(found) == {("topic config", "differs"): {"compacted segment.bytes"}}, found
            data.check(bootstrap)
            data.write(bootstrap)
            data.check(bootstrap)


@pytest.mark.matrix
@pytest.mark.parametrize("version", OLD)
def test_4_serves_three_nodes(version: str, tmp_path: Path) -> None:
    """Three brokers with three replicas of everything; all become controllers too."""
    replicated = {
        "offsets.topic.replication.factor": "3",
        "min.insync.replicas": "2",
    }
    nodes = [made_node(tmp_path, number, {**TEST_PROPERTIES, **replicated}) for number in (1, 2, 3)]
    saved, lines = tmp_path / "before.json", tmp_path / "lines"
    lines.write_text("".join(f"key {number}:value {number}\n" for number in range(1000)))
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        with contextlib.ExitStack() as stack:
            for node in nodes:
                stack.enter_context(old_broker(node, version, zookeeper.connect))
            at = ("--bootstrap-server", nodes[0].bootstrap)
            kctl("topics", "create", "orders", "--partitions", 6, "--replication-factor", 3, "--yes", *at)
            write_lines(lines, *at)
            kctl("groups", "reset-offsets", "readers", "--topic", "orders", "--to-latest", "--yes", *at)
            kctl("migrate", "verify", "--save", saved, *at)
        controllers = [f"{node.number}@127.0.0.1:{probe.free_port()}" for node in nodes]
        plan = make_plan(tmp_path, nodes, zookeeper.connect, controllers)
        for node in nodes:
            kctl("migrate", "convert", "--plan", plan, "--node", node.number, "--yes")
    with new_nodes({node.new_settings: node.bootstrap for node in nodes}):
        at = ("--bootstrap-server", nodes[1].bootstrap)
        probe.wait_until(lambda: has_all_replicas(*at), what="all in-sync replicas", timeout_s=60)
        found = compared(nodes[1].bootstrap, saved)
        assert different(found) == {}, found
        write_lines(lines, *at)
        assert different(compared(nodes[0].bootstrap, saved)) == {}


def write_lines(lines: Path, *at: object) -> None:
    kctl("produce", "orders", "--key-separator", ":", "--acks", "all", "--file", lines, *at)


def has_all_replicas(*at: object) -> bool:
    ran = run_kctl("topics", "describe", "orders", "--format", "json", *map(str, at))
    topics = json.loads(ran.stdout) if ran.returncode == 0 else []
    return bool(topics) and all(len(partition["isr"]) == 3 for partition in topics[0]["partitions"])


@pytest.mark.matrix
def test_4_serves_what_a_killed_broker_has_left(tmp_path: Path) -> None:
    """The plan is refused until ZooKeeper has expired the session of the broker; 4.x then recovers its logs."""
    data = BrokerData(deletes_records=False)
    timeout = {"zookeeper.session.timeout.ms": "4000"}
    node = made_node(tmp_path, 3, {**TEST_PROPERTIES, **PROPERTIES, **timeout})
    of_node = {**node.properties, "broker.id": "3"}
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        with kctl_broker(
            node.folder / "data", properties=of_node, zookeeper=zookeeper.connect, port=node.port
        ) as broker:
            data.create(node.bootstrap)
            data.write(node.bootstrap)
            broker.kill9()
        node.write_settings(zookeeper.connect)
        words: list[object] = ["migrate", "plan", "--zookeeper", zookeeper.connect, "--broker-config", node.settings]
        words += ("--controller", f"3@127.0.0.1:{probe.free_port()}", "--output", tmp_path / "plan.json")
        assert "brokers are running: 3" in kctl(*words, status=3)
        probe.wait_until(
            lambda: run_kctl(*map(str, words)).returncode == 0, what="the end of the session", timeout_s=60
        )
        kctl("migrate", "convert", "--plan", tmp_path / "plan.json", "--node", 3, "--yes")
    with new_nodes({node.new_settings: node.bootstrap}):
        data.check(node.bootstrap)
        data.write(node.bootstrap, waits_for_compaction=False)
        data.check(node.bootstrap)


@pytest.mark.matrix
def test_tools_of_apache_kafka_read_the_snapshot(tmp_path: Path) -> None:
    node = made_node(tmp_path, 3, {**TEST_PROPERTIES, **PROPERTIES, **SECURITY})
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        with old_broker(node, "ours", zookeeper.connect) as bootstrap:
            kctl("topics", "create", "orders", "--partitions", "7", "--bootstrap-server", bootstrap, "--yes")
            set_up_security(bootstrap, tmp_path)
        plan = make_plan(tmp_path, [node], zookeeper.connect, [f"3@127.0.0.1:{probe.free_port()}"])
        kctl("migrate", "convert", "--plan", plan, "--node", 3, "--yes")
    snapshot = node.log_dirs[0] / METADATA_FOLDER / FILE_NAME
    dumped = apache_kafka.run_java_tool(
        apache_kafka.TOOLS_FOR_NEWEST,
        "org.apache.kafka.tools.DumpLogSegments",
        ["--cluster-metadata-decoder", "--files", snapshot],
    )
    assert dumped.stdout.count("PARTITION_RECORD") == 7
    assert "SnapshotHeader" in dumped.stdout
    assert "SnapshotFooter" in dumped.stdout
    assert dumped.stderr == ""
    info = apache_kafka.run_broker_tool(NEWEST, "kafka.tools.StorageTool", ["info", "-c", node.new_settings])
    assert "Found problem" not in info.stdout, info.stdout
    assert "node.id=3" in info.stdout


@pytest.mark.matrix
def test_logs_that_4_has_renamed_are_put_back(tmp_path: Path) -> None:
    """4.x is started on directories that were not converted, and comes up as an empty cluster with the same id.

    It forgets the log start offsets, so that records that were deleted are there again.
    """
    data = BrokerData(deletes_records=False)
    node = made_node(tmp_path, 3, {**TEST_PROPERTIES, **PROPERTIES})
    log_dir = node.log_dirs[0]
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        with old_broker(node, "ours", zookeeper.connect) as bootstrap:
            data.create(bootstrap)
            data.write(bootstrap)
        node.write_settings(zookeeper.connect)
        controller = f"127.0.0.1:{probe.free_port()}"
        properties = {
            **apache_kafka.KRAFT_PROPERTIES,
            "node.id": "3",
            "listeners": f"PLAINTEXT://{node.bootstrap},CONTROLLER://{controller}",
            "controller.quorum.voters": f"3@{controller}",
            "log.dirs": str(log_dir),
        }
        node.new_settings.write_text(format_properties(properties))
        with new_nodes({node.new_settings: node.bootstrap}):
            pass
        assert not (log_dir / "codecs-0").exists()
        assert [path for path in log_dir.iterdir() if path.name.endswith("-stray")]
        kctl("migrate", "rescue", "--log-dir", log_dir, "--dry-run")
        kctl("migrate", "rescue", "--log-dir", log_dir, "--yes")
        with old_broker(node, "ours", zookeeper.connect) as bootstrap:
            data.check(bootstrap)

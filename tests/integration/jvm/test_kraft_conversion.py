"""A stopped cluster with ZooKeeper is converted to KRaft, and Apache Kafka 4 serves everything that it stored."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from kctl.config.properties import format_properties
from tests.integration.jvm.broker_data import CODECS, CODECS_BEFORE_2_1, PROPERTIES, BrokerData
from tests.integration.jvm.conversion import (
    SECURITY,
    change_on_4,
    compared,
    different,
    has_all_replicas,
    is_explained,
    kctl,
    made_node,
    make_plan,
    new_nodes,
    old_broker,
    release_of,
    security_of,
    set_up_security,
    write_lines,
)
from tests.peers import apache_kafka, probe
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import TEST_PROPERTIES, kctl_broker

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]


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
BEFORE_TOPIC_IDS = (apache_kafka.OLDEST_BROKER, "1.1.1", "2.0.1", "2.4.1")


@pytest.mark.matrix
@pytest.mark.parametrize("version", [*OLD, *BEFORE_TOPIC_IDS])
def test_4_serves_several_log_directories_of_each_version_which_continues_afterwards(
    version: str, tmp_path: Path
) -> None:
    """With two log directories, and a controller of its own that is the voter of a dynamic quorum.

    Topics have messages of all formats: `oldest` of magic 0, `old` of magic 1 (from 3.0 on they are of magic 2).
    """
    codecs = CODECS if release_of(version) >= (2, 1) else CODECS_BEFORE_2_1
    data = BrokerData(deletes_records=True, codecs=codecs)
    node = made_node(tmp_path, 3, {**TEST_PROPERTIES, **PROPERTIES, **security_of(version)}, directories=2)
    before, written = tmp_path / "before.json", tmp_path / "written.json"
    lines = tmp_path / "lines"
    lines.write_text("".join(f"key {number}:value {number}\n" for number in range(100)))
    folder = tmp_path / "controller" / "metadata"
    address = f"127.0.0.1:{probe.free_port()}"
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        with old_broker(node, version, zookeeper.connect) as bootstrap:
            data.create(bootstrap)
            data.write(bootstrap)
            at = ("--bootstrap-server", bootstrap)
            kctl("topics", "create", "oldest", "--set", "message.format.version=0.9.0", "--yes", *at)
            write_lines(lines, *at, topic="oldest", acks="1")
            set_up_security(bootstrap, tmp_path, version, zookeeper.connect)
            kctl("migrate", "verify", "--bootstrap-server", bootstrap, "--save", before)
        options = ("--dynamic-quorum",)
        plan = make_plan(tmp_path, [node], zookeeper.connect, [f"100@{address}={folder}"], *options)
        for number in (3, 100):
            kctl("migrate", "convert", "--plan", plan, "--node", number, "--yes")
        with new_nodes({folder / "controller.properties": "", node.new_settings: node.bootstrap}):
            data.wait_for_leaders(node.bootstrap)
            found = compared(node.bootstrap, before)
            assert is_explained(found, "oldest message.format.version"), found
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
@pytest.mark.parametrize("version", [*OLD, *BEFORE_TOPIC_IDS])
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

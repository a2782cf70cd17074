"""Tools of Apache Kafka read what was written on the way to KRaft, and on the way back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kctl.migration.target.snapshot import FILE_NAME, METADATA_FOLDER
from tests.integration.jvm.conversion import (
    NEWEST,
    SECURITY,
    kctl,
    made_node,
    make_plan,
    new_nodes,
    old_broker,
    set_up_security,
)
from tests.integration.transactions.writing import producer, read, transact
from tests.peers import apache_kafka, probe
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.kctl_broker import TEST_PROPERTIES

pytestmark = [pytest.mark.jvm, pytest.mark.matrix, pytest.mark.timeout(600)]

NEW_DUMP = (apache_kafka.TOOLS_FOR_NEWEST, "org.apache.kafka.tools.DumpLogSegments")
OLD_DUMP = (apache_kafka.OLDEST_JUDGE, "kafka.tools.DumpLogSegments")


def dump(tool: tuple[str, str], *words: str | Path) -> str:
    dumped = apache_kafka.run_java_tool(*tool, words)
    assert dumped.stderr == ""
    assert "isvalid: false" not in dumped.stdout.lower()
    return dumped.stdout


def test_tools_of_apache_kafka_read_the_snapshot_the_quorum_and_what_is_taken_back(tmp_path: Path) -> None:
    """kafka-dump-log, kafka-storage and kafka-metadata-quorum of 4.3.1, then kafka-dump-log of 2.8.2."""
    transactions = {"num.partitions": "1", "replication.factor": "1", "min.isr": "1"}
    properties = {f"transaction.state.log.{name}": value for name, value in transactions.items()}
    node = made_node(tmp_path, 3, {**TEST_PROPERTIES, **SECURITY, **properties})
    (log_dir,) = node.log_dirs
    address = f"127.0.0.1:{probe.free_port()}"
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        with old_broker(node, "ours", zookeeper.connect) as bootstrap:
            at = ("--bootstrap-server", bootstrap, "--yes")
            kctl("topics", "create", "orders", "--partitions", "7", *at)
            set_up_security(bootstrap, tmp_path)
        plan = make_plan(tmp_path, [node], zookeeper.connect, [f"3@{address}"], "--dynamic-quorum")
        kctl("migrate", "convert", "--plan", plan, "--node", 3, "--yes")
        snapshot = dump(NEW_DUMP, "--cluster-metadata-decoder", "--files", log_dir / METADATA_FOLDER / FILE_NAME)
        assert snapshot.count("PARTITION_RECORD") == 7
        for name in ("SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"):
            assert name in snapshot
        info = apache_kafka.run_broker_tool(NEWEST, "kafka.tools.StorageTool", ["info", "-c", node.new_settings])
        assert "Found problem" not in info.stdout, info.stdout
        assert "node.id=3" in info.stdout
        with new_nodes({node.new_settings: node.bootstrap}):
            quorum = ["--bootstrap-server", node.bootstrap, "describe"]
            tool = (apache_kafka.TOOLS_FOR_NEWEST, "org.apache.kafka.tools.MetadataQuorumCommand")
            status = apache_kafka.run_java_tool(*tool, [*quorum, "--status"]).stdout
            assert re.search(r"^LeaderId: +3$", status, re.MULTILINE), status
            assert address in status, status
            replication = apache_kafka.run_java_tool(*tool, [*quorum, "--replication"]).stdout
            assert [line.split()[-1] for line in replication.splitlines()[1:]] == ["Leader"], replication
            kctl("groups", "reset-offsets", "readers", "--topic", "orders", "--to-earliest", *at)
            transact(producer(node.bootstrap, "dealer"), "orders", [b"one", b"two"])
            # The last in-sync replica of a partition leaves it now when its broker is stopped (KIP-966).
            kctl("features", "upgrade", "--feature", "eligible.leader.replicas.version=1", *at)
        kctl("migrate", "revert", "--plan", plan, "--node", 3, "--yes")
        with old_broker(node, "ours", zookeeper.connect) as bootstrap:
            assert read(bootstrap, "orders") == [b"one", b"two"]
    offsets = [path for path in sorted(log_dir.glob("__consumer_offsets-*/*.log")) if path.stat().st_size]
    text = dump(OLD_DUMP, "--offsets-decoder", "--files", ",".join(map(str, offsets)))
    assert text.count("readers") >= 7
    states = dump(OLD_DUMP, "--transaction-log-decoder", "--files", log_dir / f"__transaction_state-0/{0:020d}.log")
    assert "transactionalId=dealer" in states
    assert "state=CompleteCommit" in states

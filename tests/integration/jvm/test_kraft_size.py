"""A cluster of thousands of partitions is converted and taken back by the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.jvm.conversion import (
    compared,
    different,
    kctl,
    made_node,
    make_plan,
    new_nodes,
    old_broker,
    write_lines,
)
from tests.peers import java, probe
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import TEST_PROPERTIES

pytestmark = [pytest.mark.jvm, pytest.mark.matrix, pytest.mark.timeout(600)]

TOPICS, PARTITIONS = 10, 500
"""5,000 in all."""


def test_5000_partitions_are_served_by_4_and_by_the_old_broker_afterwards(tmp_path: Path) -> None:
    node = made_node(tmp_path, 3, {**TEST_PROPERTIES})
    before, written, lines = tmp_path / "before.json", tmp_path / "written.json", tmp_path / "lines"
    lines.write_text("".join(f"key {number}:value {number}\n" for number in range(10 * PARTITIONS)))
    at = ("--bootstrap-server", node.bootstrap)
    names = [f"orders-{number}" for number in range(TOPICS)]
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        with old_broker(node, "ours", zookeeper.connect):
            for name in names:
                kctl("topics", "create", name, "--partitions", PARTITIONS, "--yes", *at)
            write_lines(lines, *at, topic=names[0])
            kctl("migrate", "verify", "--save", before, *at)
        plan = make_plan(tmp_path, [node], zookeeper.connect, [f"3@127.0.0.1:{probe.free_port()}"])
        kctl("migrate", "convert", "--plan", plan, "--node", 3, "--yes")
        # By default the log cleaner takes 128 MB of the heap.
        with new_nodes({node.new_settings: node.bootstrap}, jvm_flags=(*java.JVM_FLAGS, "-Xmx1g")):
            probe.wait_until(lambda: have_leaders(*at), what="all leaders", timeout_s=120)
            # A broker of 4.x syncs files of each partition before it serves it, long after metadata has its leader.
            assert different(compared(node.bootstrap, before, "--timeout", "4m")) == {}
            write_lines(lines, *at, topic=names[-1])
            kctl("migrate", "verify", "--save", written, *at)
        kctl("migrate", "revert", "--plan", plan, "--node", 3, "--yes")
        with old_broker(node, "ours", zookeeper.connect):
            probe.wait_until(lambda: have_leaders(*at), what="all leaders", timeout_s=120)
            assert different(compared(node.bootstrap, written, "--timeout", "4m")) == {}


def have_leaders(*at: object) -> bool:
    """Whether all partitions have a leader."""
    ran = run_kctl("topics", "describe", "--format", "json", *map(str, at))
    topics = json.loads(ran.stdout) if ran.returncode == 0 else []
    partitions = [partition for topic in topics for partition in topic["partitions"]]
    return len(partitions) >= TOPICS * PARTITIONS and all(partition["leader"] is not None for partition in partitions)

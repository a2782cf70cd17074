"""The way back of a quorum of three controllers carries the newest metadata log, and no other."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from tests.integration.jvm.conversion import (
    compared,
    different,
    has_all_replicas,
    kctl,
    made_node,
    make_plan,
    new_nodes,
    old_broker,
    write_lines,
)
from tests.peers import apache_kafka, probe
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import TEST_PROPERTIES

pytestmark = [pytest.mark.jvm, pytest.mark.matrix, pytest.mark.timeout(600)]


@pytest.mark.parametrize("version", ["ours", apache_kafka.OLDEST_JUDGE])
def test_revert_refuses_the_controller_that_was_left_behind(version: str, tmp_path: Path) -> None:
    """The third node is stopped before the others make a topic and raise leader epochs."""
    replicated = {"offsets.topic.replication.factor": "3", "min.insync.replicas": "1"}
    nodes = [made_node(tmp_path, number, {**TEST_PROPERTIES, **replicated}) for number in (1, 2, 3)]
    written, lines = tmp_path / "written.json", tmp_path / "lines"
    lines.write_text("".join(f"key {number}:value {number}\n" for number in range(1000)))
    at = ("--bootstrap-server", nodes[0].bootstrap)
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        with contextlib.ExitStack() as stack:
            for node in nodes:
                stack.enter_context(old_broker(node, version, zookeeper.connect))
            kctl("topics", "create", "orders", "--partitions", 6, "--replication-factor", 3, "--yes", *at)
            write_lines(lines, *at)
        controllers = [f"{node.number}@127.0.0.1:{probe.free_port()}" for node in nodes]
        plan = make_plan(tmp_path, nodes, zookeeper.connect, controllers)
        for node in nodes:
            kctl("migrate", "convert", "--plan", plan, "--node", node.number, "--yes")
        with new_nodes({node.new_settings: node.bootstrap for node in nodes}) as running:
            probe.wait_until(lambda: has_all_replicas(*at), what="all in-sync replicas", timeout_s=60)
            running[2].stop()
            kctl("topics", "create", "made-on-4", "--replication-factor", 2, "--yes", *at)
            write_lines(lines, *at)
            kctl("groups", "reset-offsets", "readers", "--topic", "orders", "--to-latest", "--yes", *at)
            kctl("migrate", "verify", "--save", written, *at)

        ends = {node.number: end_of(plan, node.number) for node in nodes}
        assert ends[3] < ends[1]
        newest, other = (1, 2) if ends[1] >= ends[2] else (2, 1)
        known = [word for number in (other, 3) for word in metadata_end(number, ends)]
        assert "give what it shows: --metadata-end" in refusal(plan, newest)
        assert f"controller {newest} ends at" in refusal(plan, 3, *metadata_end(newest, ends))
        kctl("migrate", "revert", "--plan", plan, "--node", newest, *known, "--yes")
        for number in (other, 3):
            kctl("migrate", "revert", "--plan", plan, "--node", number, "--files-only", "--yes")

        with contextlib.ExitStack() as stack:
            for node in nodes:
                stack.enter_context(old_broker(node, version, zookeeper.connect))
            probe.wait_until(lambda: has_all_replicas(*at), what="all in-sync replicas", timeout_s=60)
            found = compared(nodes[0].bootstrap, written)
            assert different(found) == {}, found
            write_lines(lines, *at)


def end_of(plan: Path, node: int) -> tuple[int, int]:
    """The epoch and the offset that --dry-run shows."""
    rows = json.loads(kctl("migrate", "revert", "--plan", plan, "--node", node, "--dry-run", "--format", "json"))
    (status,) = (row["status"] for row in rows if row["status"].startswith("ends at "))
    epoch, offset = status.removeprefix("ends at ").split(":")
    return int(epoch), int(offset)


def metadata_end(node: int, ends: dict[int, tuple[int, int]]) -> tuple[str, str]:
    epoch, offset = ends[node]
    return "--metadata-end", f"{node}={epoch}:{offset}"


def refusal(plan: Path, node: int, *words: str) -> str:
    ran = run_kctl("migrate", "revert", "--plan", str(plan), "--node", str(node), *words, "--yes")
    assert ran.returncode == 2
    return ran.stderr

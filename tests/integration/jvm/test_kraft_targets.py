"""Each release of Kafka 4 serves what was converted for it, and the old broker what it has written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kctl.migration.planning.making import TARGETS
from tests.integration.jvm.broker_data import PROPERTIES, BrokerData
from tests.integration.jvm.conversion import (
    SECURITY,
    change_on_4,
    compared,
    different,
    is_explained,
    kctl,
    made_node,
    make_plan,
    new_nodes,
    old_broker,
    set_up_security,
)
from tests.peers import probe
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.kctl_broker import TEST_PROPERTIES

pytestmark = [pytest.mark.jvm, pytest.mark.matrix, pytest.mark.timeout(600)]


@pytest.mark.parametrize("version", ["4.0.1", "4.1.1", "4.2.0", "4.4.0"])
def test_target_serves_what_was_converted_for_it_and_the_old_broker_what_it_has_written(
    version: str, tmp_path: Path
) -> None:
    """The usual target, 4.3, has tests of its own."""
    target = version.rpartition(".")[0]
    data = BrokerData(deletes_records=True)
    node = made_node(tmp_path, 3, {**TEST_PROPERTIES, **PROPERTIES, **SECURITY})
    before, written = tmp_path / "before.json", tmp_path / "written.json"
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        with old_broker(node, "ours", zookeeper.connect) as bootstrap:
            data.create(bootstrap)
            data.write(bootstrap)
            set_up_security(bootstrap, tmp_path)
            kctl("migrate", "verify", "--bootstrap-server", bootstrap, "--save", before)
        controllers = [f"3@127.0.0.1:{probe.free_port()}"]
        plan = make_plan(tmp_path, [node], zookeeper.connect, controllers, "--target", target)
        of_node = ("--plan", plan, "--node", 3, "--yes")
        kctl("migrate", "convert", *of_node)
        with new_nodes({node.new_settings: node.bootstrap}, version):
            data.wait_for_leaders(node.bootstrap)
            found = compared(node.bootstrap, before)
            assert is_explained(found), found
            features = json.loads(
                kctl("features", "describe", "--bootstrap-server", node.bootstrap, "--format", "json")
            )
            levels = {row["feature"]: row["finalized"] for row in features if row["finalized"]}
            assert levels == TARGETS[target]
            data.check(node.bootstrap)
            data.write(node.bootstrap, waits_for_compaction=False)
            change_on_4(node.bootstrap)
            data.check(node.bootstrap)
            kctl("migrate", "verify", "--bootstrap-server", node.bootstrap, "--save", written)
        kctl("migrate", "revert", *of_node)
        with old_broker(node, "ours", zookeeper.connect) as bootstrap:
            data.wait_for_leaders(bootstrap)
            found = compared(bootstrap, written, status=3)
            assert different(found) == {("topic config", "differs"): {"compacted segment.bytes"}}, found
            data.check(bootstrap)
            data.write(bootstrap)
            data.check(bootstrap)

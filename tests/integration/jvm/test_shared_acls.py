"""Our broker and Apache Kafka 2.8.2 on one ensemble share their ACLs, and both tools show the same."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.peers import probe
from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, OLDEST_JUDGE, TOOLS_FOR_NEWEST, apache_kafka, run_java_tool
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import kctl_broker

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

AUTHORIZATION = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    # All clients, so that the brokers can connect to each other without TLS or SASL.
    "super.users": "User:ANONYMOUS",
}
TOOLS = {
    "kafka-2.8": (OLDEST_JUDGE, "kafka.admin.AclCommand"),
    "kafka-3": (LAST_WITH_ZOOKEEPER, "kafka.admin.AclCommand"),
    "kafka-4": (TOOLS_FOR_NEWEST, "org.apache.kafka.tools.AclCommand"),
}


class Cluster(NamedTuple):
    apache: str
    ours: str


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("shared-acls")
    with contextlib.ExitStack() as stack:
        zookeeper = stack.enter_context(embedded_zookeeper(folder / "zookeeper")).connect
        ours = stack.enter_context(
            kctl_broker(folder / "ours" / "data", zookeeper=zookeeper, properties={"broker.id": "1", **AUTHORIZATION})
        )
        apache = stack.enter_context(
            apache_kafka(OLDEST_JUDGE, folder / "apache", zookeeper=zookeeper, properties=AUTHORIZATION)
        )
        yield Cluster(apache, ours.bootstrap)


def kctl(bootstrap: str, line: str) -> str:
    done = run_kctl("--bootstrap-server", bootstrap, *line.split())
    assert done.returncode == 0, done.stderr
    return done.stdout


def acls(bootstrap: str) -> list[str]:
    """Operation and resource of all ACLs, as the broker at this address has them."""
    listed = json.loads(kctl(bootstrap, "acls list --format json"))
    return sorted(f"{acl['operation']} {acl['pattern_type']} {acl['resource_name']}" for acl in listed)


def wait_for_acls(cluster: Cluster, expected: list[str]) -> None:
    probe.wait_until(lambda: all(acls(broker) == expected for broker in cluster), what=str(expected), timeout_s=60)


def test_acls_of_both_brokers_are_those_of_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    kctl(cluster.ours, "acls add --allow User:bob --operation read --operation write --operation delete --topic orders")
    kctl(cluster.apache, "acls add --deny User:eve --operation all --topic o --prefix")
    everything = ["All Prefixed o", "Delete Literal orders", "Read Literal orders", "Write Literal orders"]
    wait_for_acls(cluster, everything)

    for compat, (version, tool) in TOOLS.items():
        printed = run_java_tool(version, tool, ["--bootstrap-server", cluster.ours, "--list"])
        assert printed.returncode == 0, printed.stderr
        ours = kctl(cluster.apache, f"acls list --compat {compat}")
        # Kafka's order is that of identity hash codes, which differ from run to run.
        assert sorted(map(str.strip, printed.stdout.splitlines())) == sorted(map(str.strip, ours.splitlines()))
        assert len(printed.stdout) == len(ours)
        more = ["--add", "--allow-principal", "User:bob", "--operation", "read", "--topic", "orders"]
        printed = run_java_tool(version, tool, ["--bootstrap-server", cluster.ours, *more])
        ours = kctl(cluster.ours, f"acls add --allow User:bob --operation read --topic orders --compat {compat}")
        assert sorted(map(str.strip, printed.stdout.splitlines())) == sorted(map(str.strip, ours.splitlines()))

    # Removing one of three through the other broker leaves the rest (CVE-2024-27309).
    kctl(cluster.apache, "acls remove --topic orders --operation write --yes")
    wait_for_acls(cluster, [acl for acl in everything if not acl.startswith("Write")])

    document = tmp_path / "acls.json"
    document.write_text(kctl(cluster.ours, "acls export"))
    kctl(cluster.ours, "acls remove --any-resource --deny User:eve --yes")
    wait_for_acls(cluster, ["Delete Literal orders", "Read Literal orders"])
    kctl(cluster.apache, f"acls apply {document} --yes")
    wait_for_acls(cluster, [acl for acl in everything if not acl.startswith("Write")])
    kctl(cluster.ours, f"acls apply {document} --check")

"""Measures what quotas and authorization cost a broker.

    python -m benchmarks.access_cost [--runs 100]

ACLs that decide each request, and quotas for bytes and request time that are never reached, are switched on and off in
one broker (benchmarks/harness/turns.py), for requests with 1 MB and, as the worst case, for small ones that arrive
together.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from kazoo.client import KazooClient

from benchmarks.harness import librdkafka
from benchmarks.harness.report import report
from benchmarks.harness.subject import Subject, pin
from benchmarks.harness.turns import costs
from kctl.security.acls import AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from kctl.zookeeper import paths, security_znodes
from tests.peers import probe
from tests.peers.kctl_broker import KctlBroker, kctl_broker

PLENTY = str(10**15)
QUOTAS = {"producer_byte_rate": PLENTY, "consumer_byte_rate": PLENTY, "request_percentage": "1000000"}
ACLS = (
    (ResourceType.TOPIC, "*", PatternType.LITERAL),
    (ResourceType.GROUP, "*", PatternType.LITERAL),
    (ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL),
)
SWITCHED = (sys.executable, "-m", "benchmarks.harness.switched_broker")
AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=100)
    given = options.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="kctl-bench-") as folder,
        kctl_broker(Path(folder) / "data", properties=AUTHORIZER, run_by=SWITCHED) as broker,
    ):
        limit(broker)
        pin(broker.pid)
        subject = Subject(broker.bootstrap, broker.pid)
        figures = costs(subject, signal.SIGRTMIN + 2, "quotas and ACLs", runs=given.runs, goal="< 3")
    report("access_cost", figures, runs=given.runs)


def limit(broker: KctlBroker) -> None:
    """Stores ACLs for the clients of the benchmark and quotas in the broker's ZooKeeper, and waits for both."""
    running = json.loads((broker.data_dir / "broker.json").read_text())
    zookeeper = KazooClient(running["zookeeper"])
    zookeeper.start(60)
    try:
        entry = AclEntry("User:ANONYMOUS", "*", Operation.ALL, Permission.ALLOW)
        for pattern in (ResourcePattern(*arguments) for arguments in ACLS):
            zookeeper.create(
                security_znodes.pattern_path(pattern), security_znodes.encode_entries([entry]), makepath=True
            )
            zookeeper.create(
                security_znodes.change_path(pattern), security_znodes.encode_change(pattern), sequence=True
            )
        entity = "clients/<default>"
        quotas = json.dumps({"version": 1, "config": QUOTAS}).encode()
        zookeeper.create(paths.config_entity(entity), quotas, makepath=True)
        change = json.dumps({"version": 2, "entity_path": entity}).encode()
        zookeeper.create(paths.CONFIG_CHANGES + "/config_change_", change, sequence=True)
    finally:
        zookeeper.stop()
        zookeeper.close()
    probe.wait_until(lambda: _may_create(broker.bootstrap), what="the ACLs", timeout_s=60)


def _may_create(bootstrap: str) -> bool:
    try:
        librdkafka.create_topic(bootstrap, "permitted")
    except Exception:
        return False
    return True


if __name__ == "__main__":
    main()

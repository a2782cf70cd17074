"""What do quotas and authorization cost a broker, end to end?

    python -m benchmarks.access_cost [--runs 10]

Two brokers take short turns in changing order, so that other load on the machine affects both: one without, and one
with ACLs that decide each request and quotas for bytes and request time that are never reached.  librdkafka writes and
reads messages of 1 KB and 100 B over plaintext; the cost is the processor time of the broker per GB.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from kazoo.client import KazooClient

from benchmarks.harness import librdkafka
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject, pin
from kctl.security.acls import AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from kctl.zookeeper import acl_znodes, paths
from tests.peers import probe
from tests.peers.kctl_broker import KctlBroker, kctl_broker

SIZES = {"1 KB": (1024, 300_000), "100 B": (100, 1_000_000)}
PLENTY = str(10**15)
QUOTAS = {"producer_byte_rate": PLENTY, "consumer_byte_rate": PLENTY, "request_percentage": "1000000"}
ACLS = (
    (ResourceType.TOPIC, "*", PatternType.LITERAL),
    (ResourceType.GROUP, "*", PatternType.LITERAL),
    (ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL),
)
GOAL_PERCENT = "<= 3"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=10)
    given = options.parse_args()
    authorizer = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    with (
        tempfile.TemporaryDirectory(prefix="kctl-bench-") as folder,
        kctl_broker(Path(folder) / "off") as off,
        kctl_broker(Path(folder) / "on", properties=authorizer) as on,
    ):
        limit(on)
        pin(off.pid, on.pid)
        brokers = {"off": Subject(off.bootstrap, off.pid), "on": Subject(on.bootstrap, on.pid)}
        samples: dict[tuple[str, str, str], list[float]] = {}
        for run in range(given.runs + 1):
            order = list(brokers) if run % 2 else list(reversed(brokers))
            for size in SIZES:
                for name in order:
                    for work, cost in measure(brokers[name], f"cost-{run}", size).items():
                        if run:  # The first one warms up caches.
                            samples.setdefault((work, size, name), []).append(cost)
    figures = [
        Figure(f"{work} {size}, quotas and ACLs {name}", "CPU s/GB", values)
        for (work, size, name), values in samples.items()
    ]
    for work, size in dict.fromkeys((work, size) for work, size, _ in samples):
        # Pairs of one run, because the load of the machine changes between runs.
        pairs = zip(samples[work, size, "on"], samples[work, size, "off"], strict=True)
        percent = statistics.median((on_s / off_s - 1) * 100 for on_s, off_s in pairs)
        figures.append(Figure(f"{work} {size}, difference", "%", [percent], GOAL_PERCENT))
    report("access_cost", figures, client=librdkafka.client_name(), runs=given.runs)


def measure(broker: Subject, topic: str, size: str) -> dict[str, float]:
    """Processor seconds per GB of writing a topic and of reading it."""
    message_bytes, count = SIZES[size]
    gigabytes = message_bytes * count / 1e9
    librdkafka.create_topic(broker.bootstrap, topic)
    start_s = broker.cpu_s()
    librdkafka.produce(broker.bootstrap, topic, count=count, size=message_bytes)
    middle_s = broker.cpu_s()
    librdkafka.consume(broker.bootstrap, topic, count=count)
    end_s = broker.cpu_s()
    librdkafka.delete_topic(broker.bootstrap, topic)
    return {"produce": (middle_s - start_s) / gigabytes, "consume": (end_s - middle_s) / gigabytes}


def limit(broker: KctlBroker) -> None:
    """Stores ACLs for the clients of the benchmark and quotas in the broker's ZooKeeper, and waits for both."""
    running = json.loads((broker.data_dir / "broker.json").read_text())
    zookeeper = KazooClient(running["zookeeper"])
    zookeeper.start(60)
    try:
        entry = AclEntry("User:ANONYMOUS", "*", Operation.ALL, Permission.ALLOW)
        for pattern in (ResourcePattern(*each) for each in ACLS):
            zookeeper.create(acl_znodes.pattern_path(pattern), acl_znodes.encode_entries([entry]), makepath=True)
            zookeeper.create(acl_znodes.change_path(pattern), acl_znodes.encode_change(pattern), sequence=True)
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

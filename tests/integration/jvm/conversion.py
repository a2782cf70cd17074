"""Clusters with ZooKeeper that tests convert to KRaft and back: their nodes, commands, and what is compared."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kctl.config.properties import format_properties
from tests.peers import apache_kafka, java, probe
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import kctl_broker
from tests.peers.process import Process

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
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            **self.properties,
            "broker.id": str(self.number),
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
def new_nodes(
    nodes: Mapping[Path, str], version: str = NEWEST, *, jvm_flags: Sequence[str] = java.JVM_FLAGS
) -> Iterator[list[Process]]:
    """The nodes of 4.x with these properties; each with the address of its broker, empty for a controller."""
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(apache_kafka.launched_node(version, settings, jvm_flags=jvm_flags))
            for settings in nodes
        ]
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


def release_of(version: str) -> tuple[int, ...]:
    """Of a version of Apache Kafka; our broker has the APIs of 2.8."""
    return (2, 8) if version == "ours" else tuple(map(int, version.split(".")))


def security_of(version: str) -> dict[str, str]:
    """The authorizer of a version."""
    is_newer = release_of(version) >= (2, 4)
    return SECURITY if is_newer else {**SECURITY, "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer"}


def set_up_security(bootstrap: str, folder: Path, version: str = "ours", zookeeper: str = "") -> None:
    """ACLs, a user and a quota.  Kafka before 2.7 writes the latter into ZooKeeper, by its own command."""
    at = ["--bootstrap-server", bootstrap, "--yes"]
    password = folder / "password"
    password.write_text(PASSWORD)
    kctl("acls", "add", "--allow", "User:alice", "--operation", "read", "--topic", "codecs", *at)
    # Patterns with a prefix are of 2.0 (KIP-290).
    prefixed = ("--group", "team-", "--prefix") if release_of(version) >= (2,) else ("--group", "team-a")
    kctl("acls", "add", "--allow", "User:bob", "--operation", "read", *prefixed, *at)
    if release_of(version) >= (2, 7):
        kctl("users", "create", "alice", "--password-file", password, *at)
        kctl("quotas", "alter", "--user", "alice", "--producer-rate", "1MB", *at)
        return
    change = f"SCRAM-SHA-256=[password={PASSWORD}],producer_byte_rate=1048576"
    words = ["--zookeeper", zookeeper, "--alter", "--add-config", change, "--entity-type", "users"]
    ran = apache_kafka.run_broker_tool(version, "kafka.admin.ConfigCommand", [*words, "--entity-name", "alice"])
    assert "Completed" in ran.stdout, ran.stdout + ran.stderr


def compared(bootstrap: str, saved: Path, *options: object, status: int = 0) -> dict[tuple[str, str], set[str]]:
    """What 'kctl migrate verify' finds: the names of the items of each subject and status that are not equal."""
    words = ("migrate", "verify", "--bootstrap-server", bootstrap, "--compare", saved, "--format", "json", *options)
    found: dict[tuple[str, str], set[str]] = {}
    rows = json.loads(kctl(*words, status=status))
    print(json.dumps([row for row in rows if row["status"] not in {"equal", "new"}], indent=1))  # noqa: T201 - if it fails
    for row in rows:
        if row["name"] is not None or row["status"] != "equal":
            found.setdefault((row["subject"], row["status"]), set()).add(row["name"] or "")
    return found


TRANSLATED = {"compacted segment.bytes", "old message.format.version"}
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


def is_explained(found: Mapping[tuple[str, str], set[str]], *more: str) -> bool:
    """Whether nothing but what the plan says differs, and nothing but the contents of internal topics is unread."""
    others = {key: names for key, names in found.items() if key[1] not in {"not compared", "new"}}
    return others == {("topic config", "translated"): {*TRANSLATED, *more}}


def write_lines(lines: Path, *at: object, topic: str = "orders", acks: str = "all") -> None:
    """Topics with messages of magic 0 and 1 accept no idempotent producer, and so not the acks of one."""
    kctl("produce", topic, "--key-separator", ":", "--acks", acks, "--file", lines, *at)


def has_all_replicas(*at: object) -> bool:
    ran = run_kctl("topics", "describe", "orders", "--format", "json", *map(str, at))
    topics = json.loads(ran.stdout) if ran.returncode == 0 else []
    return bool(topics) and all(len(partition["isr"]) == 3 for partition in topics[0]["partitions"])

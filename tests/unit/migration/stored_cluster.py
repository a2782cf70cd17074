"""A stopped cluster in memory: its znodes, and the log directories of two brokers on a simulated disk."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from uuid import UUID

from kctl.migration.planning.making import Choices, ControllerSpec, make_plan
from kctl.migration.planning.plan import MigrationPlan, parse_plan, plan_text
from kctl.migration.source.cluster import StoredCluster, Znode, parse_cluster
from kctl.migration.source.inventory import NodeInventory, take_inventory
from kctl.migration.target.records import Findings
from kctl.model import LeaderAndIsr
from kctl.output.documents import parse_json
from kctl.security.acls import AclEntry, Operation, Permission
from kctl.security.scram import ScramCredential, credential_text
from kctl.storage.state.checkpoints import epochs_text, partition_metadata_text, snapshot_bytes
from kctl.storage.state.leader_epochs import EpochEntry
from kctl.storage.state.producer_state import SnapshotEntry
from kctl.testing.sim_files import SimFiles
from kctl.zookeeper import paths, security_znodes, znodes

CLUSTER_ID = "hlZvm3HcREaNlFbi3Oavtw"
ORDERS = UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479")
READ = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
CREDENTIAL = ScramCredential(b"salt", b"k" * 32, b"s" * 32, 4096)
PRODUCER_ID = 4321
SEGMENT = f"{0:020d}.log"


def state_of(leader: int, isr: tuple[int, ...], epoch: int = 4) -> bytes:
    return znodes.encode_partition_state(LeaderAndIsr(leader, epoch, isr, 2, 0))


ZNODES: dict[str, Znode] = {
    path: Znode(data)
    for path, data in {
        "/": b"",
        paths.CLUSTER_ID: znodes.encode_cluster_id(CLUSTER_ID),
        paths.CONTROLLER_EPOCH: b"7",
        "/brokers": b"",
        "/brokers/topics": b"",
        paths.topic("orders"): znodes.encode_topic(znodes.TopicAssignment({0: (1, 2), 1: (2, 1)}, ORDERS)),
        paths.topic_partitions("orders"): b"",
        paths.partition("orders", 0): b"",
        paths.partition("orders", 1): b"",
        paths.partition_state("orders", 0): state_of(1, (1, 2)),
        paths.partition_state("orders", 1): state_of(2, (2,)),
        paths.topic("old"): znodes.encode_topic(znodes.TopicAssignment({0: (1,)})),
        paths.topic_partitions("old"): b"",
        paths.partition("old", 0): b"",
        paths.partition_state("old", 0): state_of(1, (1,)),
        "/config": b"",
        "/config/topics": b"",
        "/config/topics/orders": znodes.encode_config({"segment.bytes": "4096", "message.format.version": "2.8"}),
        "/config/users": b"",
        "/config/users/alice": znodes.encode_config(
            {"SCRAM-SHA-256": credential_text(CREDENTIAL), "producer_byte_rate": "5"}
        ),
        "/kafka-acl": b"",
        "/kafka-acl/Topic": b"",
        "/kafka-acl/Topic/orders": security_znodes.encode_entries([READ]),
        paths.LATEST_PRODUCER_ID_BLOCK: znodes.encode_producer_id_block(znodes.ProducerIdBlock(1, 1000, 1999)),
    }.items()
}
LOGS = {1: {"/a": ["orders-0", "old-0"], "/b": ["orders-1"]}, 2: {"/c": ["orders-0", "orders-1"]}}
"""The logs of each broker by log directory: the first has two."""


def disk(logs: dict[int, dict[str, list[str]]] | None = None) -> SimFiles:
    """The log directories of all brokers, after a clean shutdown."""
    files = SimFiles()
    for broker, directories in (LOGS if logs is None else logs).items():
        for path, names in directories.items():
            files.make_directory(path)
            meta = f"#\nversion=0\nbroker.id={broker}\ncluster.id={CLUSTER_ID}\n"
            files.write_atomically(f"{path}/meta.properties", meta.encode())
            files.write_atomically(f"{path}/.kafka_cleanshutdown", b"")
            for name in names:
                folder = f"{path}/{name}"
                files.make_directory(folder)
                files.write_atomically(f"{folder}/{SEGMENT}", b"records of " + name.encode())
                files.write_atomically(f"{folder}/leader-epoch-checkpoint", epochs_text([EpochEntry(6, 0)]))
                snapshot = snapshot_bytes([SnapshotEntry(PRODUCER_ID, 0, 0, 0, 0, 0, 0, -1)])
                files.write_atomically(f"{folder}/{1:020d}.snapshot", snapshot)
                if name.startswith("orders"):
                    files.write_atomically(f"{folder}/partition.metadata", partition_metadata_text(ORDERS))
    return files


def inventories(files: SimFiles, logs: dict[int, dict[str, list[str]]] | None = None) -> list[NodeInventory]:
    return [
        take_inventory(
            files,
            {
                "broker.id": str(broker),
                "log.dirs": ",".join(directories),
                "listeners": f"PLAINTEXT://kafka-{broker}:9092",
                "zookeeper.connect": "zk:2181",
                "ssl.key.password": "hunter2",
            },
            config_path=f"/etc/kafka/{broker}.properties",
            config_data=b"",
        )
        for broker, directories in (LOGS if logs is None else logs).items()
    ]


def new_ids() -> Callable[[], UUID]:
    numbers = itertools.count(1)
    return lambda: UUID(int=next(numbers), version=4)


CONTROLLERS = (ControllerSpec(1, "kafka-1", 9093),)


def planned(
    files: SimFiles,
    changed: dict[str, Znode] | None = None,
    *,
    controllers: tuple[ControllerSpec, ...] = CONTROLLERS,
    is_dynamic: bool = False,
    nodes: list[NodeInventory] | None = None,
) -> tuple[MigrationPlan, Findings]:
    """The plan, as it is read from its document."""
    plan, findings = make_plan(
        stored(changed),
        inventories(files) if nodes is None else nodes,
        Choices(controllers, "zk:2181", "4.3", is_dynamic),
        new_id=new_ids(),
        now_ms=1_000,
    )
    return parse_plan(parse_json(plan_text(plan)), "plan.json"), findings


def stored(changed: dict[str, Znode] | None = None) -> StoredCluster:
    return parse_cluster(ZNODES | (changed or {}))


def contents(files: SimFiles, folder: str = "/") -> dict[str, bytes]:
    """All files below a folder, by path."""
    whole: dict[str, bytes] = {}
    for entry in files.list(folder):
        path = f"{folder.rstrip('/')}/{entry.name}"
        whole |= contents(files, path) if entry.is_directory else {path: files.read(path)}
    return whole

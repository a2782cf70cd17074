"""Makes the plan of a migration from what a cluster stores in ZooKeeper and the inventories of its nodes.

Pure.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kctl.config.addresses import address_text
from kctl.config.redaction import HIDDEN
from kctl.errors import UsageError
from kctl.migration.planning.controller_security import check_controller_security
from kctl.migration.planning.plan import MigrationPlan, NodePlan, PlannedDirectory
from kctl.migration.source.cluster import StoredCluster
from kctl.migration.source.inventory import NodeInventory
from kctl.migration.target.properties import CONTROLLER_LISTENER, PLAINTEXT, translate_server, translate_topic
from kctl.migration.target.property_table import PROPERTIES, Scope, refusal_of
from kctl.migration.target.records import Findings, Places, build_records, directory_key, places_of
from kctl.migration.target.snapshot import encode_snapshot, voter
from kctl.model import parse_uuid, uuid_text
from kctl.storage.names import META_PROPERTIES, PARTITION_METADATA
from kctl.storage.state.checkpoints import partition_metadata_text

TARGETS: dict[str, dict[str, int]] = {
    "4.0": {"metadata.version": 25, "group.version": 1, "transaction.version": 2},
    "4.1": {"metadata.version": 27, "group.version": 1, "transaction.version": 2},
    "4.2": {
        "metadata.version": 29,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    },
    "4.3": {
        "metadata.version": 30,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    },
}
"""The levels of features by version: those that it finalizes for a new cluster, without eligible leader replicas."""
TARGETS["4.4"] = TARGETS["4.3"]  # A newer version runs with older levels.

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OF_CONTROLLERS = (
    "allow.everyone.if.no.acl.found",
    "authorizer.class.name",
    "auto.create.topics.enable",
    "auto.leader.rebalance.enable",
    "default.replication.factor",
    "delegation.token.expiry.time.ms",
    "delegation.token.max.lifetime.ms",
    "delete.topic.enable",
    "min.insync.replicas",
    "num.partitions",
    "principal.builder.class",
    "super.users",
    "unclean.leader.election.enable",
)
"""Properties of the brokers that a controller of its own needs as well."""


class ControllerSpec(NamedTuple):
    """A controller of the new cluster: a broker, or with a directory that no broker has, a node of its own."""

    node_id: int
    host: str
    port: int
    directory: str | None = None

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return address_text(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Choices:
    """What the operator chooses."""

    controllers: Sequence[ControllerSpec]
    zookeeper: str
    target: str
    is_dynamic: bool = False
    controller_protocol: str = PLAINTEXT


def make_plan(
    cluster: StoredCluster,
    nodes: Sequence[NodeInventory],
    choices: Choices,
    *,
    new_id: Callable[[], UUID],
    now_ms: int,
) -> tuple[MigrationPlan, Findings]:
    """Return the plan, and what the operator has to know; with problems it must not be carried out.

    Raises UsageError for choices that contradict the inventories.
    """
    check_choices(nodes, choices)
    findings = Findings()
    _check_cluster(cluster, nodes, findings)
    _check_topic_values(cluster, choices.target, findings)
    places = places_of(nodes, findings)
    directory_ids = {
        directory_key(node.node_id, directory.path): _directory_id(directory.meta, new_id)
        for node in nodes
        for directory in node.directories
    }
    controller_ids = {spec.node_id: _controller_id(spec, nodes, directory_ids, new_id) for spec in choices.controllers}
    records = build_records(
        cluster,
        nodes,
        places,
        directory_ids=directory_ids,
        features=TARGETS[choices.target],
        new_id=new_id,
        findings=findings,
    )
    voters = [voter(spec.node_id, controller_ids[spec.node_id], spec.host, spec.port) for spec in choices.controllers]
    planner = _NodePlanner(
        cluster.cluster_id or "", choices, directory_ids, controller_ids, records.topic_ids, findings
    )
    plans = [planner.of_broker(node, places) for node in nodes]
    brokers = {node.node_id for node in nodes}
    plans += [planner.of_controller(spec, nodes[0]) for spec in choices.controllers if spec.node_id not in brokers]
    plan = MigrationPlan(
        created_ms=now_ms,
        cluster_id=cluster.cluster_id or "",
        zookeeper=choices.zookeeper,
        zookeeper_digest=cluster.digest,
        target=choices.target,
        features=TARGETS[choices.target],
        nodes={node.node_id: node for node in plans},
        snapshot=encode_snapshot(records.messages, time_ms=now_ms, voters=voters if choices.is_dynamic else ()),
        notes=findings.notes,
    )
    return plan, findings


def check_choices(nodes: Sequence[NodeInventory], choices: Choices) -> None:
    """Raise UsageError for choices that contradict each other or the inventories."""
    if not nodes:
        raise UsageError("no inventory is given; take one of each broker with 'kctl migrate inventory'")
    twice = [number for number, count in Counter(node.node_id for node in nodes).items() if count > 1]
    if twice:
        raise UsageError(f"two inventories are of broker {twice[0]}")
    twice = [number for number, count in Counter(spec.node_id for spec in choices.controllers).items() if count > 1]
    if twice:
        raise UsageError(f"--controller {twice[0]} is given twice")
    if not choices.controllers:
        raise UsageError("no --controller is given; a KRaft cluster has one, or three for safety")
    brokers = {node.node_id for node in nodes}
    homeless = [spec.node_id for spec in choices.controllers if spec.node_id not in brokers and spec.directory is None]
    if homeless:
        raise UsageError(
            f"--controller {homeless[0]}: no broker with this id has an inventory; for a controller of its own add its "
            "directory: ID@HOST:PORT=DIR"
        )


def _check_cluster(cluster: StoredCluster, nodes: Sequence[NodeInventory], findings: Findings) -> None:
    if cluster.cluster_id is None:
        findings.problems.append("ZooKeeper has no /cluster/id: check the address, with its chroot")
    if cluster.brokers:
        running = ", ".join(map(str, sorted(cluster.brokers)))
        findings.problems.append(f"brokers are running: {running}; stop them, take the inventories, and plan again")
    elif cluster.controller is not None:
        findings.problems.append("the session of a controller is open; wait until ZooKeeper has expired it")
    for node in nodes:
        for directory in node.directories:
            other = directory.meta.get("cluster.id")
            if other is not None and other != cluster.cluster_id:
                findings.problems.append(f"{directory.path} of node {node.node_id} belongs to cluster {other}")
            if not directory.meta:
                findings.notes.append(f"node {node.node_id}: {directory.path} has no meta.properties; it gets one")
            if not directory.is_clean:
                findings.notes.append(
                    f"node {node.node_id}: {directory.path} was not shut down cleanly; 4.x recovers its logs at the "
                    "first start"
                )
            if directory.left:
                names = ", ".join(directory.left[:5])
                findings.notes.append(f"node {node.node_id}: left as they are in {directory.path}: {names}")


def _check_topic_values(cluster: StoredCluster, target: str, findings: Findings) -> None:
    """Brokers of the target do not start with a value that it refuses."""
    for name, topic in sorted(cluster.topics.items()):
        carried, _ = translate_topic(topic.config)
        for key, value in carried.items():
            row = PROPERTIES[Scope.TOPIC].get(key)
            refusal = None if row is None else refusal_of(row, value, target)
            if refusal is not None:
                findings.problems.append(f"topic {name}: {target} refuses {key}={value}: {refusal}; change it first")


def _directory_id(meta: Mapping[str, str], new_id: Callable[[], UUID]) -> UUID:
    """Return the id that 3.7 and newer have given to the directory, or a new one."""
    try:
        return parse_uuid(meta["directory.id"])
    except (KeyError, ValueError):
        return new_id()


def _controller_id(
    spec: ControllerSpec, nodes: Sequence[NodeInventory], directory_ids: Mapping[str, UUID], new_id: Callable[[], UUID]
) -> UUID:
    for node in nodes:
        if node.node_id == spec.node_id:
            path = spec.directory or node.directories[0].path
            return directory_ids.get(directory_key(node.node_id, path)) or new_id()
    return new_id()


class _NodePlanner:
    def __init__(
        self,
        cluster_id: str,
        choices: Choices,
        directory_ids: Mapping[str, UUID],
        controller_ids: Mapping[int, UUID],
        topic_ids: Mapping[str, UUID],
        findings: Findings,
    ) -> None:
        self._cluster_id = cluster_id
        self._choices = choices
        self._directory_ids = directory_ids
        self._controller_ids = controller_ids
        self._topic_ids = topic_ids
        self._findings = findings

    def of_broker(self, node: NodeInventory, places: Places) -> NodePlan:
        spec = next((spec for spec in self._choices.controllers if spec.node_id == node.node_id), None)
        settings = self._common(node.node_id, "broker" if spec is None else "broker,controller", node.properties)
        settings["log.dirs"] = ",".join(directory.path for directory in node.directories)
        settings["listeners"] = _listeners(node.properties)
        if spec is not None:
            settings["listeners"] += f",{CONTROLLER_LISTENER}://{spec.address}"
        files = {
            f"{directory.path}/{META_PROPERTIES}": self._meta(
                node.node_id, self._directory_ids[directory_key(node.node_id, directory.path)]
            )
            for directory in node.directories
        }
        metadata_dir = None if spec is None else spec.directory or node.directories[0].path
        if spec is not None and metadata_dir not in {directory.path for directory in node.directories}:
            settings["metadata.log.dir"] = str(metadata_dir)
            files[f"{metadata_dir}/{META_PROPERTIES}"] = self._meta(node.node_id, self._controller_ids[node.node_id])
        for tp, place in places[node.node_id].items():
            topic_id = self._topic_ids.get(tp.topic)
            if topic_id is not None and place.log.topic_id is None:
                files[f"{place.directory}/{tp}/{PARTITION_METADATA}"] = partition_metadata_text(topic_id).decode()
        check_controller_security(
            node.node_id,
            node.properties,
            protocol=self._choices.controller_protocol,
            controllers=len(self._choices.controllers),
            findings=self._findings,
        )
        _, changes = translate_server(node.properties, settings)
        return NodePlan(
            node_id=node.node_id,
            roles=settings["process.roles"],
            old_config=node.config_path,
            old_config_sha256=node.config_sha256,
            new_config=_new_config(node.config_path),
            settings=settings,
            changes=[(change.name, change.reason) for change in changes],
            directories=[PlannedDirectory(directory.path, directory.digest) for directory in node.directories],
            files=files,
            metadata_dir=metadata_dir,
        )

    def of_controller(self, spec: ControllerSpec, like: NodeInventory) -> NodePlan:
        """Return the plan of a node that is a controller only; `like` is a broker with the properties to share."""
        settings = self._common(spec.node_id, "controller", like.properties)
        settings |= {"log.dirs": str(spec.directory), "listeners": f"{CONTROLLER_LISTENER}://{spec.address}"}
        shared = {name: like.properties[name] for name in _OF_CONTROLLERS if name in like.properties}
        carried, _ = translate_server({name: value for name, value in shared.items() if value != HIDDEN}, settings)
        hidden = [
            name for name in ("delegation.token.master.key", "delegation.token.secret.key") if name in like.properties
        ]
        if hidden:
            self._findings.notes.append(
                f"controller {spec.node_id}: add delegation.token.secret.key to its properties, as brokers have it"
            )
        if self._choices.controller_protocol != PLAINTEXT:
            self._findings.notes.append(
                f"controller {spec.node_id}: add the properties of {self._choices.controller_protocol}, such as its "
                "keystore"
            )
        return NodePlan(
            node_id=spec.node_id,
            roles="controller",
            old_config=None,
            old_config_sha256=None,
            new_config=f"{spec.directory}/controller.properties",
            settings=carried,
            changes=(),
            directories=(),
            files={f"{spec.directory}/{META_PROPERTIES}": self._meta(spec.node_id, self._controller_ids[spec.node_id])},
            metadata_dir=spec.directory,
        )

    def _common(self, node_id: int, roles: str, properties: Mapping[str, str]) -> dict[str, str]:
        choices = self._choices
        protocols = properties.get("listener.security.protocol.map") or ",".join(
            f"{name}:{name}" for name in _PROTOCOLS
        )
        settings = {
            "node.id": str(node_id),
            "process.roles": roles,
            "controller.listener.names": CONTROLLER_LISTENER,
            "listener.security.protocol.map": f"{protocols},{CONTROLLER_LISTENER}:{choices.controller_protocol}",
        }
        if choices.is_dynamic:
            servers = ",".join(spec.address for spec in choices.controllers)
            settings["controller.quorum.bootstrap.servers"] = servers
        else:
            voters = ",".join(f"{spec.node_id}@{spec.address}" for spec in choices.controllers)
            settings["controller.quorum.voters"] = voters
        if choices.controller_protocol.startswith("SASL"):
            settings["sasl.mechanism.controller.protocol"] = properties.get(
                "sasl.mechanism.inter.broker.protocol", "GSSAPI"
            )
        return settings

    def _meta(self, node_id: int, directory_id: UUID) -> str:
        lines = (
            "version=1",
            f"node.id={node_id}",
            f"cluster.id={self._cluster_id}",
            f"directory.id={uuid_text(directory_id)}",
        )
        return "\n".join(lines) + "\n"


def _listeners(properties: Mapping[str, str]) -> str:
    """Return the listeners of a broker, also of one with host.name and port, as before 0.9."""
    given = properties.get("listeners", "").strip()
    return given or f"PLAINTEXT://{properties.get('host.name', '')}:{properties.get('port', '9092')}"


def _new_config(path: str) -> str:
    stem, suffix = posixpath.splitext(path)
    return f"{stem}-kraft{suffix or '.properties'}"

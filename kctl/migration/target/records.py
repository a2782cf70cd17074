"""The metadata records of a KRaft cluster, from what a cluster stores in ZooKeeper and has in its log directories.

Kafka: the images of its metadata module, and ZkMigrationClient of 3.9, which reads the same znodes.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kctl.config.redaction import is_secret
from kctl.migration.source.cluster import StoredCluster, StoredTopic
from kctl.migration.source.inventory import LogFolder, NodeInventory
from kctl.migration.target.properties import Change, translate_dynamic, translate_topic
from kctl.model import NO_LEADER, ZERO_UUID, TopicPartition, uuid_text
from kctl.records.internal.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
_PARTITION_VERSION = 1
"""With directories, and without eligible leader replicas: with those, brokers that 4.x has not shut down are removed
from the ISR at their first start, and partitions have no leader (KIP-966)."""
_NO_BROKER = -1

Message = tuple[Any, int]


@dataclass(slots=True)
class Findings:
    """What a plan has to say: problems prevent the conversion, notes do not."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node has the log of a partition."""

    directory: str
    log: LogFolder


Places = Mapping[int, Mapping[TopicPartition, Place]]
"""By node and partition."""


def places_of(nodes: Sequence[NodeInventory], findings: Findings) -> dict[int, dict[TopicPartition, Place]]:
    """Return where each node has each log; two logs of one partition are a problem."""
    places: dict[int, dict[TopicPartition, Place]] = {}
    for node in nodes:
        of_node = places.setdefault(node.node_id, {})
        for directory in node.directories:
            for log in directory.logs:
                other = of_node.setdefault(log.tp, Place(directory.path, log))
                if other.directory != directory.path:
                    findings.problems.append(
                        f"node {node.node_id} has {log.tp} in {other.directory} and in {directory.path}: move the older"
                        " one out of the log directories"
                    )
    return places


@dataclass(frozen=True, slots=True)
class Records:
    """The records, and the ids of the topics in them."""

    messages: list[Message]
    topic_ids: dict[str, UUID]


def build_records(
    cluster: StoredCluster,
    nodes: Sequence[NodeInventory],
    places: Places,
    *,
    directory_ids: Mapping[str, UUID],
    features: Mapping[str, int],
    new_id: Callable[[], UUID],
    findings: Findings,
) -> Records:
    """Return all records of the cluster, with `features` first.  Adds to `findings`.

    `directory_ids` has the id of each log directory by its `directory_key`; `new_id` returns ids for topics without
    one, and for ACLs.
    """
    building = _Building(cluster, places, directory_ids, new_id, findings)
    messages: list[Message] = [
        (FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in features.items()
    ]
    messages += building.topics()
    messages += building.brokers()
    messages += building.quotas()
    messages += building.producer_ids(nodes)
    messages += building.security()
    building.note_the_rest()
    return Records(messages, building.topic_ids)


def directory_key(node_id: int, path: str) -> str:
    """Return the key of a log directory: two hosts may have the same path."""
    return f"{node_id}:{path}"


class _Building:
    def __init__(
        self,
        cluster: StoredCluster,
        places: Places,
        directory_ids: Mapping[str, UUID],
        new_id: Callable[[], UUID],
        findings: Findings,
    ) -> None:
        self._cluster = cluster
        self._places = places
        self._directory_ids = directory_ids
        self._new_id = new_id
        self._findings = findings
        self.topic_ids: dict[str, UUID] = {}

    def topics(self) -> Iterator[Message]:
        for name, topic in sorted(self._cluster.topics.items()):
            if name in self._cluster.pending_deletions:
                self._note(f"topic {name}: its deletion was pending; it is left out, and its logs are not read by 4.x")
                continue
            topic_id = self._topic_id(name, topic)
            self.topic_ids[name] = topic_id
            yield TopicRecord(name=name, topic_id=topic_id), 0
            for partition, replicas in sorted(topic.assignment.replicas.items()):
                yield self._partition(TopicPartition(name, partition), topic, replicas, topic_id), _PARTITION_VERSION
            config, changes = translate_topic(topic.config)
            self._note_changes(f"topic {name}", changes)
            yield from self._configs(TOPIC_RESOURCE, name, config)

    def _topic_id(self, name: str, topic: StoredTopic) -> UUID:
        in_logs = {
            log.topic_id
            for of_node in self._places.values()
            for partition in topic.assignment.replicas
            if (place := of_node.get(TopicPartition(name, partition))) is not None
            and (log := place.log).topic_id is not None
        }
        stored = topic.assignment.topic_id
        others = in_logs - {stored}
        if stored is not None and others:
            texts = ", ".join(sorted(uuid_text(other) for other in others if other is not None))
            self._problem(
                f"topic {name} has the id {uuid_text(stored)} in ZooKeeper and {texts} in log directories: they are of "
                "an older topic of this name; move them out of the log directories"
            )
        if stored is not None:
            return stored
        if len(in_logs) > 1:
            self._problem(f"topic {name} has no id in ZooKeeper and several in log directories; move the older logs")
        chosen = next((topic_id for topic_id in in_logs if topic_id is not None), None) or self._new_id()
        self._note(f"topic {name}: had no id in ZooKeeper; {uuid_text(chosen)}")
        return chosen

    def _partition(
        self, tp: TopicPartition, topic: StoredTopic, replicas: tuple[int, ...], topic_id: UUID
    ) -> PartitionRecord:
        state = topic.states.get(tp.partition)
        missing = [replica for replica in replicas if replica not in self._places]
        if missing:
            self._problem(
                f"{tp} has replicas on nodes {missing}, which have no inventory: take them, or start the brokers and "
                "move the replicas away ('kctl cluster remove-broker')"
            )
        if state is None:
            self._note(f"{tp}: never had a leader; all replicas become in-sync replicas")
        isr = list(replicas if state is None else state.isr)
        strangers = [replica for replica in isr if replica not in replicas]
        if strangers or not isr:
            self._problem(f"{tp}: its in-sync replicas {isr} are not among its replicas {list(replicas)}")
        homes = {replica: self._places.get(replica, {}).get(tp) for replica in replicas}
        absent = [replica for replica in isr if replica in self._places and homes.get(replica) is None]
        if absent and state is not None:
            text = f"{tp}: in-sync replicas {absent} have no log"
            if len(absent) == len(isr):
                self._note(f"{text}; the partition is empty, or its log directory is missing from log.dirs")
            else:
                self._problem(f"{text}, others have: add the log directory of theirs to log.dirs, or restore it")
        epochs = [home.log.last_epoch for home in homes.values() if home is not None]
        return PartitionRecord(
            partition_id=tp.partition,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=isr,
            removing_replicas=list(topic.assignment.removing_replicas.get(tp.partition, ())),
            adding_replicas=list(topic.assignment.adding_replicas.get(tp.partition, ())),
            leader=NO_LEADER,
            leader_epoch=max(0 if state is None else state.leader_epoch, *epochs, 0),
            partition_epoch=0 if state is None else state.partition_epoch,
            directories=[self._directory(replica, homes[replica]) for replica in replicas],
        )

    def _directory(self, replica: int, home: Place | None) -> UUID:
        return ZERO_UUID if home is None else self._directory_ids[directory_key(replica, home.directory)]

    def brokers(self) -> Iterator[Message]:
        for broker, config in sorted(self._cluster.broker_configs.items(), key=lambda item: (item[0] or 0, str(item))):
            where = "all brokers" if broker is None else f"broker {broker}"
            secrets = sorted(name for name in config if is_secret(name))
            if secrets:
                self._problem(
                    f"dynamic properties of {where} are encrypted: {', '.join(secrets)}; write them into "
                    "server.properties and delete them with 'kctl configs alter' while a broker runs"
                )
            carried, changes = translate_dynamic({name: config[name] for name in config if name not in secrets})
            self._note_changes(f"dynamic properties of {where}", changes)
            yield from self._configs(BROKER_RESOURCE, "" if broker is None else str(broker), carried)

    @staticmethod
    def _configs(kind: int, name: str, config: Mapping[str, str]) -> Iterator[Message]:
        for key, value in sorted(config.items()):
            yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value), 0

    def quotas(self) -> Iterator[Message]:
        for entity, config in self._cluster.quotas.items():
            parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts]
            for key, text in sorted(config.items()):
                try:
                    value = float(text)
                except ValueError:
                    self._problem(f"the quota {key} of {entity.parts} is not a number")
                    continue
                yield ClientQuotaRecord(entity=parts, key=key, value=value, remove=False), 0

    def producer_ids(self, nodes: Sequence[NodeInventory]) -> Iterator[Message]:
        """Yield the next id: above all in use, else acknowledged records would be taken for duplicates."""
        block = self._cluster.producer_id_block
        used = max((directory.producer_id_max for node in nodes for directory in node.directories), default=-1)
        following = max(-1 if block is None else block.block_end, used) + 1
        if block is not None and used > block.block_end:
            self._note(
                f"producer ids up to {used} are in use, although ZooKeeper has them up to {block.block_end} only"
            )
        if following > 0:
            yield (
                ProducerIdsRecord(broker_id=_NO_BROKER, broker_epoch=_NO_BROKER, next_producer_id=following),
                0,
            )

    def security(self) -> Iterator[Message]:
        for (user, mechanism), credential in self._cluster.scram.items():
            yield (
                UserScramCredentialRecord(
                    name=user,
                    mechanism=int(mechanism),
                    salt=credential.salt,
                    stored_key=credential.stored_key,
                    server_key=credential.server_key,
                    iterations=credential.iterations,
                ),
                0,
            )
        for pattern, entry in self._cluster.acls:
            yield (
                AccessControlEntryRecord(
                    id=self._new_id(),
                    resource_type=int(pattern.type),
                    resource_name=pattern.name,
                    pattern_type=int(pattern.pattern_type),
                    principal=entry.principal,
                    host=entry.host,
                    operation=int(entry.operation),
                    permission_type=int(entry.permission),
                ),
                0,
            )
        for token in self._cluster.tokens:
            yield (
                DelegationTokenRecord(
                    owner=token.owner,
                    requester=token.owner,
                    renewers=list(token.renewers),
                    issue_timestamp=token.issue_ms,
                    max_timestamp=token.max_ms,
                    expiration_timestamp=token.expiry_ms,
                    token_id=token.token_id,
                ),
                0,
            )

    def note_the_rest(self) -> None:
        """Note what is in ZooKeeper or in log directories and is not carried."""
        cluster = self._cluster
        for problem in cluster.problems:
            self._problem(f"znode {problem.path}: {problem.message}")
        if cluster.unknown:
            self._note(f"znodes that Kafka does not use are not carried: {', '.join(cluster.unknown)}")
        if cluster.group_offsets:
            groups = sorted({offset.group for offset in cluster.group_offsets})
            self._note(f"offsets that groups stored in ZooKeeper are not carried: {', '.join(groups)}")
        if cluster.topic_configs_without_topic:
            topics = ", ".join(sorted(cluster.topic_configs_without_topic))
            self._note(f"configurations of topics that do not exist are not carried: {topics}")
        if cluster.pending_reassignment:
            moves = ", ".join(map(str, sorted(cluster.pending_reassignment)))
            self._note(f"requested reassignments that have not begun are not carried: {moves}")
        if cluster.is_migrating:
            self._problem("Apache's own migration has begun (znode /migration): complete it, or revert it first")
        for node, logs in sorted(self._places.items()):
            orphans = [str(tp) for tp in logs if tp.topic not in self.topic_ids or not self._is_replica(tp, node)]
            if orphans:
                self._note(f"node {node}: logs without a partition, which 4.x renames to -stray: {_shortened(orphans)}")

    def _is_replica(self, tp: TopicPartition, node: int) -> bool:
        topic = self._cluster.topics.get(tp.topic)
        return topic is not None and node in topic.assignment.replicas.get(tp.partition, ())

    def _note_changes(self, where: str, changes: Sequence[Change]) -> None:
        for change in changes:
            self._note(f"{where}: {change.name} {change.reason}")

    def _note(self, text: str) -> None:
        self._findings.notes.append(text)

    def _problem(self, text: str) -> None:
        self._findings.problems.append(text)


def _shortened(names: Sequence[str]) -> str:
    shown = ", ".join(sorted(names)[:10])
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"

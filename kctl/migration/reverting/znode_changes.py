"""The changes of znodes that carry a metadata log back to ZooKeeper, and what cannot be carried.

Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from kctl.migration.reverting.image import Image, ImageTopic
from kctl.migration.source.cluster import Entity, ScramUser, StoredCluster, StoredTopic
from kctl.migration.target.properties import translate_dynamic, translate_topic
from kctl.migration.target.records import BROKER_RESOURCE, TOPIC_RESOURCE
from kctl.security.acls import AclEntry, ResourcePattern
from kctl.security.scram import credential_text
from kctl.zookeeper import paths
from kctl.zookeeper.security_znodes import encode_entries, encode_token, pattern_path, stored_problem
from kctl.zookeeper.znodes import (
    ProducerIdBlock,
    TopicAssignment,
    encode_config,
    encode_partition_state,
    encode_producer_id_block,
    encode_topic,
)

_OTHER_RESOURCES = {16: "client metrics", 32: "group"}
_NEWER_TOPIC_PROPERTIES = (
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "local.retention.bytes",
    "local.retention.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
)
"""Kafka 2.8 does not have them."""
_ENTITY_FOLDERS = {"user": "users", "client-id": "clients", "ip": "ips"}


@dataclass(slots=True)
class ZnodeChanges:
    """What is written, and what cannot be carried."""

    writes: list[tuple[str, bytes | None]] = field(default_factory=list, repr=False)
    """Paths and data, in order.  Parents are made where they are missing; None deletes a znode with its children."""
    not_carried: list[str] = field(default_factory=list)


def znode_changes(image: Image, cluster: StoredCluster) -> ZnodeChanges:
    """Return what makes ZooKeeper have the state of the image; nothing if it has it already."""
    return _Comparison(image, cluster).changes


class _Comparison:
    def __init__(self, image: Image, cluster: StoredCluster) -> None:
        self._image = image
        self._cluster = cluster
        self._controller_epoch = cluster.controller_epoch or 0
        self._has_ids = not cluster.topics or any(topic.assignment.topic_id for topic in cluster.topics.values())
        self.changes = ZnodeChanges()
        self._topics()
        self._brokers()
        self._clients()
        self._acls()
        self._tokens()
        self._producer_ids()
        for (kind, name), config in sorted(image.configs.items()):
            if kind not in {TOPIC_RESOURCE, BROKER_RESOURCE} and config:
                self._lose(f"configuration of {_OTHER_RESOURCES.get(kind, f'type {kind}')} {name}")

    def _write(self, path: str, data: bytes | None) -> None:
        self.changes.writes.append((path, data))

    def _lose(self, text: str) -> None:
        self.changes.not_carried.append(text)

    def _topics(self) -> None:
        names = {topic.name for topic in self._image.topics.values()}
        for name in sorted(self._cluster.topics.keys() - names - self._cluster.pending_deletions):
            self._write(paths.topic(name), None)
            self._write(paths.topic_config(name), None)
        for topic in sorted(self._image.topics.values(), key=lambda topic: topic.name):
            stored = self._cluster.topics.get(topic.name)
            if stored is not None and stored.assignment.topic_id not in {None, topic.topic_id}:
                self._write(paths.topic(topic.name), None)  # It was deleted and created again.
                stored = None
            self._topic_config(topic, stored)
            self._topic(topic, stored)

    def _topic(self, topic: ImageTopic, stored: StoredTopic | None) -> None:
        partitions = sorted(topic.partitions.items())
        topic_id = (topic.topic_id if self._has_ids else None) if stored is None else stored.assignment.topic_id
        assignment = TopicAssignment(
            {number: tuple(partition.replicas) for number, partition in partitions},
            topic_id,
            {number: tuple(partition.adding) for number, partition in partitions if partition.adding},
            {number: tuple(partition.removing) for number, partition in partitions if partition.removing},
        )
        path = paths.topic(topic.name)
        if stored is None or _lists(stored.assignment) != _lists(assignment):
            self._write(path, encode_topic(assignment))
        for number, partition in partitions:
            if not partition.isr and not partition.elr:
                self._lose(
                    f"{topic.name}-{number}: no replica is known to have all records; the last leader is elected"
                )
            state = partition.state(self._controller_epoch)
            old = None if stored is None else stored.states.get(number)
            if old is None or old.leader_epoch < state.leader_epoch or old.isr != state.isr:
                self._write(paths.partition_state(topic.name, number), encode_partition_state(state))

    def _topic_config(self, topic: ImageTopic, stored: StoredTopic | None) -> None:
        config = self._image.configs.get((TOPIC_RESOURCE, topic.name), {})
        before = {} if stored is None else dict(stored.config)
        carried, _ = translate_topic(before)
        if carried != config:
            self._write(paths.topic_config(topic.name), encode_config(_with_changes(before, carried, config)))
        elif stored is None:
            self._write(paths.topic_config(topic.name), encode_config({}))
        newer = [name for name in config if name in _NEWER_TOPIC_PROPERTIES and name not in before]
        if newer and carried != config:
            self._lose(f"topic {topic.name}: Kafka 2.8 ignores {', '.join(sorted(newer))}, which was set on 4.x")

    def _brokers(self) -> None:
        names: dict[int | None, str] = {None: ""} | {
            int(name): name for kind, name in self._image.configs if kind == BROKER_RESOURCE and name.isdigit()
        }
        for broker in names.keys() | self._cluster.broker_configs.keys():
            config = self._image.configs.get((BROKER_RESOURCE, "" if broker is None else str(broker)), {})
            before = dict(self._cluster.broker_configs.get(broker, {}))
            carried, _ = translate_dynamic(before)
            if carried != config:
                self._write(paths.broker_config(broker), encode_config(_with_changes(before, carried, config)))
            if broker is None and config and not before and not self._has_ids:
                path = paths.broker_config(None)
                self._lose(f"defaults of all brokers: Kafka before 1.1 does not start with {path}; there, delete it")

    def _clients(self) -> None:
        """Quotas and SCRAM credentials are properties of the same znodes."""
        wanted: dict[Entity, dict[str, str]] = defaultdict(dict)
        present: dict[Entity, dict[str, str]] = defaultdict(dict)
        for entity, quotas in self._image.quotas.items():
            wanted[entity] |= {key: _number_text(value) for key, value in quotas.items()}
        for entity, texts in self._cluster.quotas.items():
            present[entity] |= {key: _usual_number(text) for key, text in texts.items()}
        for target, credentials in ((wanted, self._image.scram), (present, self._cluster.scram)):
            for user, credential in credentials.items():
                target[_user_entity(user)][user.mechanism.config_key] = credential_text(credential)
        for entity in sorted(wanted.keys() | present.keys(), key=str):
            if wanted.get(entity, {}) != present.get(entity, {}):
                self._write(_entity_path(entity), encode_config(wanted.get(entity, {})))

    def _acls(self) -> None:
        wanted: dict[ResourcePattern, set[AclEntry]] = defaultdict(set)
        present: dict[ResourcePattern, set[AclEntry]] = defaultdict(set)
        for binding in self._image.acls.values():
            problem = stored_problem(binding)
            if problem is None:
                wanted[binding.pattern].add(binding.entry)
            else:
                self._lose(f"ACL {binding}: {problem}")
        for binding in self._cluster.acls:
            present[binding.pattern].add(binding.entry)
        for pattern in sorted(wanted.keys() | present.keys()):
            if wanted[pattern] != present[pattern]:
                entries = sorted(wanted[pattern])
                self._write(pattern_path(pattern), encode_entries(entries) if entries else None)

    def _tokens(self) -> None:
        present = {token.token_id: token for token in self._cluster.tokens}
        for token_id in sorted(present.keys() | self._image.tokens.keys()):
            token = self._image.tokens.get(token_id)
            if token is None:
                self._write(paths.delegation_token(token_id), None)
            elif token != present.get(token_id):
                self._write(paths.delegation_token(token_id), encode_token(token))

    def _producer_ids(self) -> None:
        """Write a block up to the next id of 4.x, else an id would be given twice, and records taken for duplicates."""
        block, following = self._cluster.producer_id_block, self._image.next_producer_id
        if following > (0 if block is None else block.block_end + 1):
            last = ProducerIdBlock(0 if block is None else block.broker_id, max(0, following - 1000), following - 1)
            self._write(paths.LATEST_PRODUCER_ID_BLOCK, encode_producer_id_block(last))


def _lists(assignment: TopicAssignment) -> tuple[object, ...]:
    """Return the replicas, and the reassignment without empty lists, which Kafka may write."""
    moving = (assignment.adding_replicas, assignment.removing_replicas)
    return dict(assignment.replicas), *({key: ids for key, ids in lists.items() if ids} for lists in moving)


def _with_changes(before: Mapping[str, str], carried: Mapping[str, str], config: Mapping[str, str]) -> dict[str, str]:
    """Return the properties before the migration with what was changed since: `carried` became `config`."""
    changed = {name: value for name, value in config.items() if carried.get(name) != value}
    removed = {name for name in carried if name not in config}
    return {name: value for name, value in before.items() if name not in removed} | changed


def _user_entity(user: ScramUser) -> Entity:
    return Entity((("user", user.user),))


def _entity_path(entity: Entity) -> str:
    return paths.CONFIG + "".join(
        f"/{_ENTITY_FOLDERS[kind]}/{paths.DEFAULT_ENTITY if name is None else paths.sanitize(name)}"
        for kind, name in entity.parts
    )


def _number_text(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)


def _usual_number(text: str) -> str:
    try:
        return _number_text(float(text))
    except ValueError:
        return text

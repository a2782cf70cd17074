"""All that a cluster stores in ZooKeeper, as one value: parsed from its znodes.

A znode that cannot be parsed is left out and named in `problems`, so that one report can name all of them.

Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from kctl.model import LeaderAndIsr, TopicPartition, topic_name_problem
from kctl.security.acls import AclBinding, PatternType, ResourcePattern, ResourceType
from kctl.security.scram import Mechanism, ScramCredential, ScramError, parse_credential
from kctl.zookeeper import paths
from kctl.zookeeper.broker_znodes import BrokerRegistration, decode_broker
from kctl.zookeeper.security_znodes import STORES, TokenZnode, decode_entries, decode_token
from kctl.zookeeper.znodes import (
    Controller,
    Features,
    ProducerIdBlock,
    TopicAssignment,
    decode_cluster_id,
    decode_config,
    decode_controller,
    decode_controller_epoch,
    decode_features,
    decode_partition_state,
    decode_partitions,
    decode_producer_id_block,
    decode_reassignment,
    decode_topic,
)

KNOWN_ROOTS = frozenset(
    {
        "/admin",
        "/brokers",
        "/cluster",
        "/config",
        "/consumers",
        "/controller",
        "/controller_epoch",
        "/delegation_token",
        "/feature",
        "/isr_change_notification",
        "/kafka-acl",
        "/kafka-acl-changes",
        "/kafka-acl-extended",
        "/kafka-acl-extended-changes",
        "/latest_producer_id_block",
        "/log_dir_event_notification",
        "/migration",
    }
)
UNREAD_ROOTS = frozenset({"/zookeeper"})
"""ZooKeeper's own."""

_ENTITY_TYPES = {"clients": "client-id", "ips": "ip", "users": "user"}
_NOT_IN_DIGEST = (paths.CONFIG_CHANGES, paths.DELEGATION_TOKEN_CHANGES, paths.BROKER_ID_SEQUENCE, "/consumers")
"""What changes without a change of the cluster, or is not carried."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Znode:
    """The data of a znode; its repr has no data, which may be secret."""

    data: bytes = field(repr=False)
    version: int = 0
    is_ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class ZnodeProblem:
    """A znode that is not what Kafka writes there.  The message contains no secret."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic: its assignment and reassignment, the states of its partitions, and its own properties."""

    assignment: TopicAssignment
    states: Mapping[int, LeaderAndIsr]
    """Without an entry for a partition that never had a leader."""
    config: Mapping[str, str]


class Entity(NamedTuple):
    """What a quota applies to: (type, name) of each part; types are user, client-id and ip, None is the default."""

    parts: tuple[tuple[str, str | None], ...]


class ScramUser(NamedTuple):
    """The key of a stored SCRAM credential."""

    user: str
    mechanism: Mechanism


class GroupOffset(NamedTuple):
    """The key of an offset that a group of an old client committed to ZooKeeper."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class StoredCluster:
    """All that is stored in ZooKeeper; names are decoded.  Without an entry where there is no znode."""

    cluster_id: str | None
    controller: Controller | None
    controller_epoch: int | None
    brokers: Mapping[int, BrokerRegistration]
    """The brokers that run, by id."""
    topics: Mapping[str, StoredTopic]
    topic_configs_without_topic: Mapping[str, Mapping[str, str]]
    broker_configs: Mapping[int | None, Mapping[str, str]] = field(repr=False)
    """Dynamic properties by broker, None for the default of all.  Passwords in them are encrypted."""
    quotas: Mapping[Entity, Mapping[str, str]]
    scram: Mapping[ScramUser, ScramCredential]
    acls: tuple[AclBinding, ...]
    tokens: tuple[TokenZnode, ...]
    producer_id_block: ProducerIdBlock | None
    """The last block that a broker has; None before the first."""
    features: Features | None
    pending_deletions: frozenset[str]
    """Topics that are being deleted, also those that have no znode any more."""
    pending_reassignment: Mapping[TopicPartition, tuple[int, ...]]
    """What /admin/reassign_partitions requests, as tools before KIP-455 write it; see also StoredTopic.assignment."""
    pending_elections: tuple[TopicPartition, ...]
    group_offsets: Mapping[GroupOffset, int]
    is_migrating: bool
    """Whether Apache's own migration to KRaft (KIP-866) has begun."""
    unknown: tuple[str, ...]
    """Paths of znodes that Kafka does not use."""
    problems: tuple[ZnodeProblem, ...]
    digest: str
    """SHA-256 of what is carried to KRaft, in hexadecimal; without the registrations of brokers."""


def parse_cluster(znodes: Mapping[str, Znode]) -> StoredCluster:
    """Return the cluster in these znodes, by their paths below the chroot; see StoredCluster.problems."""
    return _Parser(znodes).cluster()


def digest_of(znodes: Mapping[str, Znode]) -> str:
    """Return a hash of the znodes that are carried to KRaft, with the versions that become partition epochs."""
    digest = hashlib.sha256()
    for path in sorted(znodes):
        znode = znodes[path]
        if znode.is_ephemeral or _root(path) not in KNOWN_ROOTS or path.startswith(_NOT_IN_DIGEST):
            continue
        version = znode.version if path.endswith("/state") else 0
        digest.update(f"{path}\0{version}\0{len(znode.data)}\0".encode() + znode.data)
    return digest.hexdigest()


def _root(path: str) -> str:
    return "/" + path.split("/", 2)[1]


class _Parser:
    def __init__(self, znodes: Mapping[str, Znode]) -> None:
        self._znodes = znodes
        self._problems: list[ZnodeProblem] = []
        self._unknown: list[str] = []
        self._children: dict[str, list[str]] = {}
        for path in znodes:
            if path != "/":
                self._children.setdefault(paths.parent(path), []).append(path.rpartition("/")[2])

    def cluster(self) -> StoredCluster:
        self._unknown.extend(f"/{name}" for name in self._names("/") if f"/{name}" not in KNOWN_ROOTS | UNREAD_ROOTS)
        configs = {name: self._config(paths.topic_config(name)) for name in self._names(f"{paths.CONFIG}/topics")}
        topics = self._topics(configs)
        scram, quotas = self._clients()
        return StoredCluster(
            cluster_id=self._decoded(paths.CLUSTER_ID, decode_cluster_id),
            controller=self._decoded(paths.CONTROLLER, decode_controller),
            controller_epoch=self._decoded(paths.CONTROLLER_EPOCH, decode_controller_epoch),
            brokers=self._brokers(),
            topics=topics,
            topic_configs_without_topic={name: config for name, config in configs.items() if name not in topics},
            broker_configs=self._broker_configs(),
            quotas=quotas,
            scram=scram,
            acls=tuple(self._acls()),
            tokens=tuple(self._tokens()),
            producer_id_block=self._decoded(paths.LATEST_PRODUCER_ID_BLOCK, decode_producer_id_block),
            features=self._decoded(paths.FEATURE, decode_features),
            pending_deletions=frozenset(self._names(paths.DELETE_TOPICS)),
            pending_reassignment=self._decoded(paths.REASSIGN_PARTITIONS, decode_reassignment) or {},
            pending_elections=tuple(self._decoded(paths.PREFERRED_REPLICA_ELECTION, decode_partitions) or ()),
            group_offsets=self._group_offsets(),
            is_migrating="/migration" in self._znodes,
            unknown=tuple(sorted(self._unknown)),
            problems=tuple(self._problems),
            digest=digest_of(self._znodes),
        )

    def _names(self, path: str) -> list[str]:
        return sorted(self._children.get(path, ()))

    def _problem(self, path: str, message: object) -> None:
        self._problems.append(ZnodeProblem(path, str(message)))

    def _decoded(self, path: str, decode: Callable[[str, bytes], T]) -> T | None:
        znode = self._znodes.get(path)
        if znode is None:
            return None
        try:
            return decode(path, znode.data)
        except ValueError as error:
            self._problem(path, error)
            return None

    def _config(self, path: str) -> dict[str, str]:
        return self._decoded(path, decode_config) or {}

    def _numbers(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield the children that are numbers, as brokers and partitions are."""
        for name in self._names(path):
            if name.isascii() and name.isdigit():
                yield int(name), f"{path}/{name}"
            elif name != paths.DEFAULT_ENTITY:
                self._problem(f"{path}/{name}", "its name is not a number")

    def _brokers(self) -> dict[int, BrokerRegistration]:
        registered = ((number, self._decoded(path, decode_broker)) for number, path in self._numbers(paths.BROKER_IDS))
        return {number: broker for number, broker in registered if broker is not None}

    def _topics(self, configs: Mapping[str, Mapping[str, str]]) -> dict[str, StoredTopic]:
        topics = {}
        for name in self._names(paths.TOPICS):
            path = paths.topic(name)
            problem = topic_name_problem(name)
            if problem is not None:
                self._problem(path, problem)
                continue
            assignment = self._decoded(path, decode_topic)
            if assignment is not None:
                topics[name] = StoredTopic(assignment, self._states(name, assignment), configs.get(name, {}))
        return topics

    def _states(self, topic: str, assignment: TopicAssignment) -> dict[int, LeaderAndIsr]:
        states = {}
        for partition, _ in self._numbers(paths.topic_partitions(topic)):
            path = paths.partition_state(topic, partition)
            znode = self._znodes.get(path)
            if znode is None:
                continue
            if partition not in assignment.replicas:
                self._problem(path, "the topic has no such partition")
                continue
            try:
                states[partition] = decode_partition_state(path, znode.data, znode.version)
            except ValueError as error:
                self._problem(path, error)
        return states

    def _broker_configs(self) -> dict[int | None, dict[str, str]]:
        root = f"{paths.CONFIG}/brokers"
        configs: dict[int | None, dict[str, str]] = {}
        if paths.broker_config(None) in self._znodes:
            configs[None] = self._config(paths.broker_config(None))
        configs |= {number: self._config(path) for number, path in self._numbers(root)}
        return {broker: config for broker, config in configs.items() if config}

    def _clients(self) -> tuple[dict[ScramUser, ScramCredential], dict[Entity, dict[str, str]]]:
        """Return SCRAM credentials, and quotas; both are properties of users."""
        scram: dict[ScramUser, ScramCredential] = {}
        quotas: dict[Entity, dict[str, str]] = {}
        for parts, path in self._entities():
            config = self._config(path)
            for mechanism in Mechanism:
                text = config.pop(mechanism.config_key, None)
                if text is None:
                    continue
                user = parts[0][1]
                if len(parts) > 1 or parts[0][0] != "user" or user is None:
                    self._problem(path, f"{mechanism.config_key} of an entity that is not one user")
                    continue
                try:
                    scram[ScramUser(user, mechanism)] = parse_credential(mechanism, text)
                except ScramError as error:
                    self._problem(path, error)
            if config:
                quotas[Entity(parts)] = config
        return scram, quotas

    def _entities(self) -> Iterator[tuple[tuple[tuple[str, str | None], ...], str]]:
        for folder, kind in _ENTITY_TYPES.items():
            for element in self._names(f"{paths.CONFIG}/{folder}"):
                path = f"{paths.CONFIG}/{folder}/{element}"
                part = (kind, _entity_name(element))
                yield (part,), path
                for client in self._names(f"{path}/clients"):
                    yield (part, ("client-id", _entity_name(client))), f"{path}/clients/{client}"

    def _acls(self) -> Iterator[AclBinding]:
        for pattern_type, store in STORES.items():
            for label in self._names(store):
                try:
                    kind = ResourceType.of_label(label)
                except ValueError:
                    self._problem(f"{store}/{label}", "not a type of resources")
                    continue
                yield from self._acls_of(f"{store}/{label}", kind, pattern_type)
        prefixed = paths.parent(STORES[PatternType.PREFIXED])
        self._unknown.extend(
            f"{prefixed}/{name}" for name in self._names(prefixed) if f"{prefixed}/{name}" not in STORES.values()
        )

    def _acls_of(self, folder: str, kind: ResourceType, pattern_type: PatternType) -> Iterator[AclBinding]:
        for name in self._names(folder):
            for entry in self._decoded(f"{folder}/{name}", decode_entries) or ():
                yield AclBinding(ResourcePattern(kind, name, pattern_type), entry)

    def _tokens(self) -> Iterator[TokenZnode]:
        for name in self._names(paths.DELEGATION_TOKENS):
            token = self._decoded(paths.delegation_token(name), decode_token)
            if token is not None:
                yield token

    def _group_offsets(self) -> dict[GroupOffset, int]:
        offsets = {}
        for group in self._names("/consumers"):
            root = f"/consumers/{group}/offsets"
            for topic in self._names(root):
                for partition, path in self._numbers(f"{root}/{topic}"):
                    try:
                        offsets[GroupOffset(group, topic, partition)] = int(self._znodes[path].data)
                    except ValueError:
                        self._problem(path, "not an offset")
        return offsets


def _entity_name(element: str) -> str | None:
    return None if element == paths.DEFAULT_ENTITY else paths.desanitize(element)

"""What Kafka's znodes hold: JSON in UTF-8, as brokers of the ZooKeeper era write it, but for the order of keys.

Encoders write the newest version that a 2.8 broker writes; decoders read every version since 0.10 that may be found, in
any order of keys, and raise ValueError with the path when the data is not what its place promises.  Numbers that Kafka
writes as strings (timestamps, producer id blocks, the cluster id's version) are strings on the wire and ints here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from kctl.model import INT32_MAX, Endpoint, LeaderAndIsr, TopicPartition, partition_problem

PRODUCER_ID_BLOCK_SIZE = 1000
LOG_DIR_FAILURE = 1
FEATURES_DISABLED, FEATURES_ENABLED = 0, 1

_BROKER_VERSION = 5
_TOPIC_VERSION = 3
_CONFIG_CHANGE_VERSION = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """/brokers/ids/N: where a broker listens.  Version 4 lacks the features, version 5 is written from IBP 2.7 on."""

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Finalizable features, each with the lowest and highest version supported; brokers on ZooKeeper have none."""
    version: int = _BROKER_VERSION


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """/brokers/topics/T: which brokers replicate each partition, and the reassignment that is under way (KIP-455)."""

    replicas: Mapping[int, tuple[int, ...]]
    topic_id: UUID | None = None
    adding_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Controller:
    """/controller: who won the election, an ephemeral node of the winner."""

    broker_id: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """/latest_producer_id_block: the producer ids handed out last, both ends included."""

    broker_id: int
    block_start: int
    block_end: int


@dataclass(frozen=True, slots=True)
class LogDirEvent:
    """/log_dir_event_notification/...: a broker tells the controller about its disks."""

    broker_id: int
    event: int = LOG_DIR_FAILURE


@dataclass(frozen=True, slots=True)
class Features:
    """/feature: finalized cluster features (KIP-584); the node's ZooKeeper version is the features epoch."""

    status: int = FEATURES_ENABLED
    levels: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def encode_cluster_id(cluster_id: str) -> bytes:
    return _json({"version": "1", "id": cluster_id})


def decode_cluster_id(path: str, data: bytes) -> str:
    return _decode(path, data, lambda znode: str(znode["id"]))


def encode_broker(broker: BrokerRegistration) -> bytes:
    """host and port repeat the first PLAINTEXT endpoint for readers older than 0.9, or say null and -1."""
    plain = next((each for each in broker.endpoints if each.security_protocol == "PLAINTEXT"), None)
    znode: dict[str, object] = {
        "version": broker.version,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "jmx_port": broker.jmx_port,
        "timestamp": str(broker.timestamp_ms),
        "endpoints": [_endpoint_text(each) for each in broker.endpoints],
        "listener_security_protocol_map": {each.listener: each.security_protocol for each in broker.endpoints},
    }
    if broker.rack is not None:
        znode["rack"] = broker.rack
    if broker.version >= 5:
        znode["features"] = {
            name: {"min_version": low, "max_version": high} for name, (low, high) in broker.features.items()
        }
    return _json(znode)


def decode_broker(path: str, data: bytes) -> BrokerRegistration:
    return _decode(path, data, _broker_of)


def _broker_of(znode: dict[str, Any]) -> BrokerRegistration:
    version = int(znode["version"])
    if version < 1:
        raise ValueError(f"version {version} of a broker registration is not known")
    if version == 1:
        endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", str(znode["host"]), int(znode["port"])),)
    else:
        protocols = znode.get("listener_security_protocol_map") or {}
        endpoints = tuple(_endpoint_of(text, protocols) for text in znode["endpoints"])
    features = znode.get("features") or {}
    return BrokerRegistration(
        endpoints=endpoints,
        timestamp_ms=int(znode.get("timestamp", -1)),
        rack=znode.get("rack"),
        jmx_port=int(znode.get("jmx_port", -1)),
        features={name: (int(each["min_version"]), int(each["max_version"])) for name, each in features.items()},
        version=version,
    )


def _endpoint_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def _endpoint_of(text: str, protocols: Mapping[str, str]) -> Endpoint:
    """Without a map the listener's name is its protocol, as before KIP-103."""
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(listener, host.removeprefix("[").removesuffix("]"), int(port), protocols.get(listener, listener))


def encode_topic(topic: TopicAssignment) -> bytes:
    """Always version 3; the topic id is left out when there is none, as with IBP < 2.8."""
    znode: dict[str, object] = {"version": _TOPIC_VERSION}
    if topic.topic_id is not None:
        znode["topic_id"] = encode_uuid(topic.topic_id)
    znode["partitions"] = _replica_lists(topic.replicas)
    znode["adding_replicas"] = _replica_lists(topic.adding_replicas)
    znode["removing_replicas"] = _replica_lists(topic.removing_replicas)
    return _json(znode)


def decode_topic(path: str, data: bytes) -> TopicAssignment:
    return _decode(path, data, _topic_of)


def _topic_of(znode: dict[str, Any]) -> TopicAssignment:
    _check_version(znode, _TOPIC_VERSION)
    replicas = _replicas_of(znode["partitions"])
    for partition, ids in replicas.items():
        if not ids or len(set(ids)) != len(ids):
            raise ValueError(f"partition {partition} has replicas {list(ids)}")
    topic_id = znode.get("topic_id")
    return TopicAssignment(
        replicas=replicas,
        topic_id=decode_uuid(topic_id) if topic_id else None,
        adding_replicas=_replicas_of(znode.get("adding_replicas") or {}),
        removing_replicas=_replicas_of(znode.get("removing_replicas") or {}),
    )


def encode_partition_state(state: LeaderAndIsr) -> bytes:
    """The partition epoch is not written: it is the version of the node."""
    return _json(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
    )


def decode_partition_state(path: str, data: bytes, version: int) -> LeaderAndIsr:
    """`version` is the node's ZooKeeper version; it becomes the partition epoch."""
    return _decode(
        path,
        data,
        lambda znode: LeaderAndIsr(
            leader=int(znode["leader"]),
            leader_epoch=int(znode["leader_epoch"]),
            isr=_ids(znode["isr"]),
            controller_epoch=int(znode["controller_epoch"]),
            partition_epoch=version,
        ),
    )


def encode_controller(controller: Controller) -> bytes:
    return _json({"version": 1, "brokerid": controller.broker_id, "timestamp": str(controller.timestamp_ms)})


def decode_controller(path: str, data: bytes) -> Controller:
    return _decode(path, data, lambda znode: Controller(int(znode["brokerid"]), int(znode.get("timestamp", -1))))


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(path: str, data: bytes) -> int:
    """Plain decimal text, the one znode of Kafka's that is not JSON."""
    try:
        epoch = int(data)
        if not 0 <= epoch <= INT32_MAX:
            raise ValueError
    except ValueError:
        raise ValueError(f"znode {path} is not a controller epoch: {data[:80]!r}") from None
    return epoch


def encode_config(config: Mapping[str, str]) -> bytes:
    return _json({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Null data counts as no configuration: the node may have been made only to hold children."""
    if not data:
        return {}
    return _decode(path, data, lambda znode: {str(name): str(value) for name, value in znode["config"].items()})


def encode_config_change(entity_path: str) -> bytes:
    """`entity_path` is `topics/T`, `brokers/<default>`, `users/U/clients/C`, with sanitized names."""
    return _json({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    """The entity path; version 1 named a topic or a client by type and name."""
    return _decode(path, data, _entity_path_of)


def _entity_path_of(znode: dict[str, Any]) -> str:
    if _check_version(znode, _CONFIG_CHANGE_VERSION) == 1:
        return f"{znode['entity_type']}/{znode['entity_name']}"
    return str(znode["entity_path"])


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return _json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.block_start),
            "block_end": str(block.block_end),
        }
    )


def decode_producer_id_block(path: str, data: bytes) -> ProducerIdBlock | None:
    """None for null data: the node exists before the first block is taken."""
    if not data:
        return None
    return _decode(
        path,
        data,
        lambda znode: ProducerIdBlock(int(znode["broker"]), int(znode["block_start"]), int(znode["block_end"])),
    )


def encode_reassignment(replicas: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    return _json(
        {
            "version": 1,
            "partitions": [
                {"topic": tp.topic, "partition": tp.partition, "replicas": list(ids)} for tp, ids in replicas.items()
            ],
        }
    )


def decode_reassignment(path: str, data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """/admin/reassign_partitions, written by the tools of old."""
    return _decode(path, data, _reassignment_of)


def _reassignment_of(znode: dict[str, Any]) -> dict[TopicPartition, tuple[int, ...]]:
    _check_version(znode, 1)
    return {_partition_of(each): _ids(each["replicas"]) for each in znode["partitions"]}


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """The body of an ISR change notification and of /admin/preferred_replica_election."""
    listed = [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
    return _json({"version": 1, "partitions": listed})


def decode_partitions(path: str, data: bytes) -> list[TopicPartition]:
    return _decode(path, data, _partitions_of)


def _partitions_of(znode: dict[str, Any]) -> list[TopicPartition]:
    _check_version(znode, 1)
    return [_partition_of(each) for each in znode["partitions"]]


def encode_log_dir_event(event: LogDirEvent) -> bytes:
    return _json({"version": 1, "broker": event.broker_id, "event": event.event})


def decode_log_dir_event(path: str, data: bytes) -> LogDirEvent:
    return _decode(path, data, lambda znode: LogDirEvent(int(znode["broker"]), int(znode["event"])))


def encode_features(features: Features) -> bytes:
    levels = {
        name: {"min_version_level": low, "max_version_level": high} for name, (low, high) in features.levels.items()
    }
    return _json({"version": 1, "status": features.status, "features": levels})


def decode_features(path: str, data: bytes) -> Features:
    """Version 2 (IBP 3.3) has no lowest level; it counts as 1."""
    return _decode(
        path,
        data,
        lambda znode: Features(
            int(znode["status"]),
            {
                name: (int(each.get("min_version_level", 1)), int(each["max_version_level"]))
                for name, each in (znode.get("features") or {}).items()
            },
        ),
    )


def encode_uuid(value: UUID) -> str:
    """Kafka's text form of a topic or cluster id: 22 characters of URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> UUID:
    """ValueError when the text is not 16 bytes of base64."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def _check_version(znode: dict[str, Any], newest: int) -> int:
    """The version, 1 where none is given; ValueError for one that nobody knows."""
    version = int(znode.get("version", 1))
    if not 1 <= version <= newest:
        raise ValueError(f"version {version} is not known, only 1 to {newest}")
    return version


def _replica_lists(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(partition): list(ids) for partition, ids in replicas.items()}


def _replicas_of(lists: dict[str, list[int]]) -> dict[int, tuple[int, ...]]:
    return {_number(partition): _ids(ids) for partition, ids in lists.items()}


def _partition_of(entry: dict[str, Any]) -> TopicPartition:
    topic, partition = str(entry["topic"]), int(entry["partition"])
    problem = partition_problem(topic, partition)
    if problem is not None:
        raise ValueError(problem)
    return TopicPartition(topic, partition)


def _ids(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is not a list of numbers")
    return tuple(_number(each) for each in values)


def _number(value: int | str) -> int:
    """A broker id or a partition."""
    number = int(value)
    if not 0 <= number <= INT32_MAX:
        raise ValueError(f"{number} is not between 0 and {INT32_MAX}")
    return number


def _json(znode: Mapping[str, object]) -> bytes:
    return json.dumps(znode, separators=(",", ":"), ensure_ascii=False).encode()


def _decode(path: str, data: bytes, build: Callable[[dict[str, Any]], T]) -> T:
    try:
        znode = json.loads(data)
        if not isinstance(znode, dict):
            raise TypeError("not a JSON object")
        return build(znode)
    except KeyError as missing:
        raise ValueError(f"znode {path} lacks {missing}: {data[:200]!r}") from None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as wrong:
        raise ValueError(f"znode {path} does not hold what belongs there ({wrong}): {data[:200]!r}") from None

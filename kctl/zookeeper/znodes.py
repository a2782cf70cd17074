"""The content of Kafka's znodes: JSON in UTF-8, as brokers of the ZooKeeper era write it, except for the order of keys.

Encoders write the newest version that a 2.8 broker writes.  Decoders read every version since 0.10, with keys in any
order, and raise ValueError with the path if the data is invalid.  Numbers that Kafka writes as strings (timestamps,
producer id blocks, the cluster id's version) are strings in JSON and ints here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kctl.limits import CONFIG_PROPERTIES_MAX, PARTITIONS_PER_TOPIC_MAX
from kctl.model import (
    INT32_MAX,
    LEADER_DURING_DELETE,
    LeaderAndIsr,
    TopicPartition,
    parse_uuid,
    partition_problem,
    uuid_text,
)
from kctl.output.documents import parse_json
from kctl.output.quantities import INT64_MAX
from kctl.zookeeper.broker_znodes import check_version, decode_json, encode_json

PRODUCER_ID_BLOCK_SIZE = 1000
LOG_DIR_FAILURE = 1
FEATURES_DISABLED, FEATURES_ENABLED = 0, 1

_TOPIC_VERSION = 3
_CONFIG_CHANGE_VERSION = 2


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """/brokers/topics/T: the replicas of each partition, and the reassignment in progress (KIP-455)."""

    replicas: Mapping[int, tuple[int, ...]]
    topic_id: UUID | None = None
    adding_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Controller:
    """/controller: the active controller, an ephemeral znode."""

    broker_id: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """/latest_producer_id_block: the last allocated block of producer ids, both ends included."""

    broker_id: int
    block_start: int
    block_end: int


@dataclass(frozen=True, slots=True)
class LogDirEvent:
    """/log_dir_event_notification/...: a broker reports a failed log directory to the controller (KIP-112)."""

    broker_id: int
    event: int = LOG_DIR_FAILURE


@dataclass(frozen=True, slots=True)
class Features:
    """/feature: finalized features (KIP-584); the version of the znode is the features epoch."""

    status: int = FEATURES_ENABLED
    levels: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return the content of /cluster/id."""
    return encode_json({"version": "1", "id": cluster_id})


def decode_cluster_id(path: str, data: bytes) -> str:
    """Return the cluster id."""
    return decode_json(path, data, lambda znode: str(znode["id"]))


def encode_topic(topic: TopicAssignment) -> bytes:
    """Return the content of /brokers/topics/T, version 3; without a topic id if there is none, as with IBP < 2.8."""
    znode: dict[str, object] = {"version": _TOPIC_VERSION}
    if topic.topic_id is not None:
        znode["topic_id"] = uuid_text(topic.topic_id)
    znode["partitions"] = _replica_lists(topic.replicas)
    znode["adding_replicas"] = _replica_lists(topic.adding_replicas)
    znode["removing_replicas"] = _replica_lists(topic.removing_replicas)
    return encode_json(znode)


def decode_topic(path: str, data: bytes) -> TopicAssignment:
    """Return the assignment of the topic in the path."""
    return decode_json(path, data, _parse_topic)


def _parse_topic(znode: dict[str, Any]) -> TopicAssignment:
    check_version(znode, _TOPIC_VERSION)
    replicas = _parse_replicas(znode["partitions"])
    if len(replicas) > PARTITIONS_PER_TOPIC_MAX:
        raise ValueError(f"{len(replicas)} partitions are more than the {PARTITIONS_PER_TOPIC_MAX} of a topic")
    for partition, ids in replicas.items():
        if not ids or len(set(ids)) != len(ids):
            raise ValueError(f"partition {partition} has replicas {list(ids)}")
    topic_id = znode.get("topic_id")
    return TopicAssignment(
        replicas=replicas,
        topic_id=parse_uuid(topic_id) if topic_id else None,
        adding_replicas=_parse_replicas(znode.get("adding_replicas") or {}),
        removing_replicas=_parse_replicas(znode.get("removing_replicas") or {}),
    )


def encode_partition_state(state: LeaderAndIsr) -> bytes:
    """Return the content of a partition's state, without the partition epoch, which is the version of the znode."""
    return encode_json(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
    )


def decode_partition_state(path: str, data: bytes, version: int) -> LeaderAndIsr:
    """Return a partition's state; `version` is the znode's version and becomes the partition epoch."""
    return decode_json(
        path,
        data,
        lambda znode: LeaderAndIsr(
            leader=_number(znode["leader"], low=LEADER_DURING_DELETE),
            leader_epoch=_number(znode["leader_epoch"]),
            isr=_ids(znode["isr"]),
            controller_epoch=_number(znode["controller_epoch"]),
            partition_epoch=version,
        ),
    )


def encode_controller(controller: Controller) -> bytes:
    """Return the content of /controller."""
    return encode_json({"version": 1, "brokerid": controller.broker_id, "timestamp": str(controller.timestamp_ms)})


def decode_controller(path: str, data: bytes) -> Controller:
    """Return the active controller."""
    return decode_json(
        path, data, lambda znode: Controller(_number(znode["brokerid"]), int(znode.get("timestamp", -1)))
    )


def encode_controller_epoch(epoch: int) -> bytes:
    """Return the content of /controller_epoch."""
    return str(epoch).encode()


def decode_controller_epoch(path: str, data: bytes) -> int:
    """Return the controller epoch: decimal text, the only one of Kafka's znodes that is not JSON.

    Raises ValueError also for the last number, after which there is no next epoch.
    """
    if not data.isdigit() or len(data) > len(str(INT32_MAX)) or int(data) >= INT32_MAX:
        raise ValueError(f"znode {path} is not a controller epoch: {data[:80]!r}")
    return int(data)


def encode_config(config: Mapping[str, str]) -> bytes:
    """Return the content of a configuration znode."""
    return encode_json({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Return the configuration; null data means none, because a znode may exist only for its children.

    Errors do not contain the data, because it may be secret.
    """
    if not data:
        return {}
    try:
        config = parse_json(data)["config"]
        overrides = {str(name): str(value) for name, value in config.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"znode {path} is not a configuration: {type(error).__name__}") from None
    if len(overrides) > CONFIG_PROPERTIES_MAX:
        raise ValueError(f"znode {path} has {len(overrides)} properties, more than the {CONFIG_PROPERTIES_MAX} allowed")
    return overrides


def encode_config_change(entity_path: str) -> bytes:
    """Return the content of a change notification; `entity_path` is `topics/T`, `brokers/<default>`,
    `users/U/clients/C`, with sanitized names.
    """
    return encode_json({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    """Return the entity path; version 1 had the type and the name of a topic or client instead."""
    return decode_json(path, data, _parse_entity_path)


def _parse_entity_path(znode: dict[str, Any]) -> str:
    if check_version(znode, _CONFIG_CHANGE_VERSION) == 1:
        return f"{znode['entity_type']}/{znode['entity_name']}"
    return str(znode["entity_path"])


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Return the content of /latest_producer_id_block."""
    return encode_json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.block_start),
            "block_end": str(block.block_end),
        }
    )


def decode_producer_id_block(path: str, data: bytes) -> ProducerIdBlock | None:
    """Return the block; None for null data, before the first block is allocated."""
    if not data:
        return None
    return decode_json(
        path,
        data,
        lambda znode: ProducerIdBlock(
            int(znode["broker"]),
            _number(znode["block_start"], high=INT64_MAX),
            _number(znode["block_end"], high=INT64_MAX),
        ),
    )


def encode_reassignment(replicas: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    """Return the content of /admin/reassign_partitions."""
    return encode_json(
        {
            "version": 1,
            "partitions": [
                {"topic": tp.topic, "partition": tp.partition, "replicas": list(ids)} for tp, ids in replicas.items()
            ],
        }
    )


def decode_reassignment(path: str, data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the target replicas in /admin/reassign_partitions, which tools before KIP-455 write."""
    return decode_json(path, data, _parse_reassignment)


def _parse_reassignment(znode: dict[str, Any]) -> dict[TopicPartition, tuple[int, ...]]:
    check_version(znode, 1)
    return {_parse_partition(entry): _ids(entry["replicas"]) for entry in znode["partitions"]}


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the content of an ISR change notification or of /admin/preferred_replica_election."""
    listed = [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
    return encode_json({"version": 1, "partitions": listed})


def decode_partitions(path: str, data: bytes) -> list[TopicPartition]:
    """Return the partitions."""
    return decode_json(path, data, _parse_partitions)


def _parse_partitions(znode: dict[str, Any]) -> list[TopicPartition]:
    check_version(znode, 1)
    return [_parse_partition(entry) for entry in znode["partitions"]]


def encode_log_dir_event(event: LogDirEvent) -> bytes:
    """Return the content of a log directory event."""
    return encode_json({"version": 1, "broker": event.broker_id, "event": event.event})


def decode_log_dir_event(path: str, data: bytes) -> LogDirEvent:
    """Return the id of the broker with a failed log directory."""
    return decode_json(path, data, lambda znode: LogDirEvent(int(znode["broker"]), int(znode["event"])))


def encode_features(features: Features) -> bytes:
    """Return the content of /feature."""
    levels = {
        name: {"min_version_level": low, "max_version_level": high} for name, (low, high) in features.levels.items()
    }
    return encode_json({"version": 1, "status": features.status, "features": levels})


def decode_features(path: str, data: bytes) -> Features:
    """Return the features; version 2 (IBP 3.3) has no minimum level, which is 1 then."""
    return decode_json(
        path,
        data,
        lambda znode: Features(
            int(znode["status"]),
            {
                name: (int(levels.get("min_version_level", 1)), int(levels["max_version_level"]))
                for name, levels in (znode.get("features") or {}).items()
            },
        ),
    )


def _replica_lists(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(partition): list(ids) for partition, ids in replicas.items()}


def _parse_replicas(lists: dict[str, list[int]]) -> dict[int, tuple[int, ...]]:
    return {_number(partition): _ids(ids) for partition, ids in lists.items()}


def _parse_partition(entry: dict[str, Any]) -> TopicPartition:
    topic, partition = str(entry["topic"]), int(entry["partition"])
    problem = partition_problem(topic, partition)
    if problem is not None:
        raise ValueError(problem)
    return TopicPartition(topic, partition)


def _ids(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is not a list of numbers")
    return tuple(_number(value) for value in values)


def _number(value: int | str, *, low: int = 0, high: int = INT32_MAX) -> int:
    """Return a number that a response can contain, a broker id for example."""
    number = int(value)
    if not low <= number <= high:
        raise ValueError(f"{number} is not between {low} and {high}")
    return number

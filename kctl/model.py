"""Value types and names that all layers use."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})

NO_LEADER = -1
LEADER_DURING_DELETE = -2
TOPIC_NAME_LENGTH_MAX = 249
CLUSTER_ID_LENGTH_MAX = 200
INT32_MAX = 2**31 - 1
ZERO_UUID = UUID(int=0)

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


class TopicPartition(NamedTuple):
    """One partition of one topic; `str()` is Kafka's `topic-partition`, also its directory name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerIdAndEpoch(NamedTuple):
    """Identity of an idempotent or transactional producer; a newer epoch of an id fences older ones.  KIP-98."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of one listener of a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Leader and in-sync replicas of a partition, as in its ZooKeeper state node."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int = 0
    partition_epoch: int = 0
    """ZooKeeper version of the state node (zkVersion), for conditional writes."""


def topic_name_problem(name: str) -> str | None:
    """Return why `name` is not a valid topic name, or None if it is valid.  Kafka's Topic.validate."""
    if not name:
        return "topic name is empty"
    if name in {".", ".."}:
        return f"topic name cannot be '{name}'"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"topic name is longer than {TOPIC_NAME_LENGTH_MAX} characters"
    if not _TOPIC_NAME.match(name):
        return f"topic name '{name}' has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def partition_problem(topic: str, partition: int) -> str | None:
    """Return why `topic` and `partition` are not a valid name of a partition, or None if they are valid."""
    problem = topic_name_problem(topic)
    if problem is None and not 0 <= partition <= INT32_MAX:
        problem = f"partition {partition} is not between 0 and {INT32_MAX}"
    return problem


def cluster_id_problem(cluster_id: str) -> str | None:
    """Return why `cluster_id` cannot be the id of a cluster, or None if it can.

    Kafka's are base64 of a UUID, those of others are names; all of them can be parts of a path.
    """
    if len(cluster_id) > CLUSTER_ID_LENGTH_MAX:
        return f"the id of the cluster is longer than {CLUSTER_ID_LENGTH_MAX} characters"
    if cluster_id in {".", ".."} or not cluster_id.isprintable() or {"/", "\\"} & set(cluster_id):
        return f"the id of the cluster is {cluster_id!r}"
    return None


def topic_names_collide(name: str, other: str) -> bool:
    """Return whether two topics would have equal metric names, where '.' is replaced by '_'.

    Kafka's Topic.hasCollision.
    """
    return name.replace(".", "_") == other.replace(".", "_")


def java_hash(text: str) -> int:
    """Java's String.hashCode: 32 bits, signed, over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for_key(key: str, partition_count: int) -> int:
    """Return the partition of an internal topic for `key`, a group or a transactional id.

    Kafka's GroupMetadataManager.partitionFor; its Utils.abs returns 0 for the smallest integer.
    """
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partition_count


def uuid_text(value: UUID) -> str:
    """Return a topic, cluster or directory id as Kafka writes it: 22 characters of URL-safe base64.  Kafka:
    Uuid.toString.
    """
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_uuid(text: str) -> UUID:
    """Return the id in a text that `uuid_text` returns.  Raises ValueError if the text is not 16 bytes in base64."""
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except binascii.Error as error:
        raise ValueError(str(error)) from error

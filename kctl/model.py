"""Values that every layer shares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})

NO_LEADER = -1
LEADER_DURING_DELETE = -2
TOPIC_NAME_LENGTH_MAX = 249
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
    """Who writes idempotently or in transactions; a newer epoch of the same id shuts out the older ones."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one listener of a broker is reached."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Who leads a partition and who is in sync, as kept in its ZooKeeper state node."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int = 0
    partition_epoch: int = 0
    """ZooKeeper version of the state node; conditional writes compare it."""


def topic_name_problem(name: str) -> str | None:
    """Why `name` cannot be a topic's name, or None when it can.  Kafka's Topic.validate."""
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
    """Why `topic` and `partition` cannot name a partition, or None when they can."""
    problem = topic_name_problem(topic)
    if problem is None and not 0 <= partition <= INT32_MAX:
        problem = f"partition {partition} is not between 0 and {INT32_MAX}"
    return problem


def topic_names_collide(one: str, other: str) -> bool:
    """Whether two names become one in metric names, where '.' turns into '_'."""
    return one.replace(".", "_") == other.replace(".", "_")


def java_hash(text: str) -> int:
    """Java's String.hashCode: 32 bits, signed, over UTF-16 code units.  Decides which partition coordinates a group."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for_key(key: str, partition_count: int) -> int:
    """The internal-topic partition that owns `key`.  Source: Kafka's Utils.abs, for which the least integer is 0."""
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partition_count

"""The document with which a test fills its broker: topics, ACLs, users, groups and records.

    topics:
      orders: {partitions: 3, configs: {cleanup.policy: compact}}
    acls:
    - {resource_type: Topic, resource_name: orders, principal: "User:alice", operation: Read, permission: Allow}
    users:
    - {name: alice, password: secret}
    groups:
      billing: {orders: {0: 2}}
    records:
      orders:
      - {key: a, value: {id: 1}, partition: 0, timestamp_ms: 1700000000000, headers: {source: web}}

JSON is YAML too.  The fields of topics and ACLs are those of `kctl apply`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from kctl.admin.security.acls import binding_of
from kctl.commands.produce.input import json_record
from kctl.commands.record_format.reading import ReadRecord
from kctl.errors import KctlError, UsageError
from kctl.limits import Subject, bound
from kctl.model import TopicPartition
from kctl.security.acls import AclBinding
from kctl.security.scram import Mechanism

SEED_BYTES_MAX = bound(
    Subject.TESTS,
    "document or file with which a broker is filled",
    64 << 20,
    "bytes",
    on_excess="it is refused",
)
_NODES_MAX = 1_000_000
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
_SECTIONS = ("topics", "acls", "users", "groups", "records")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SeedError(ValueError):
    """A document that is wrong; the text begins with its name and the line."""


@dataclass(frozen=True, slots=True)
class SeedTopic:
    """A topic to create."""

    partitions: int = 1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeedUser:
    """A user with a SCRAM password."""

    name: str
    password: str = field(repr=False)
    mechanism: Mechanism


@dataclass(frozen=True, slots=True)
class SeedRecord:
    """A record; partition None lets its key decide."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Seed:
    """All that a document has."""

    topics: Mapping[str, SeedTopic] = field(default_factory=dict)
    acls: tuple[AclBinding, ...] = ()
    users: tuple[SeedUser, ...] = ()
    groups: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    records: tuple[SeedRecord, ...] = ()


def parse_seed(text: str, name: str) -> Seed:
    """Return a YAML or JSON document.  Raises SeedError, which names the line and the field."""
    if len(text) > SEED_BYTES_MAX:
        raise SeedError(f"{name} has more than {SEED_BYTES_MAX} bytes")
    try:
        node = yaml.compose(text, Loader=_LOADER)
        return _Document(name).seed(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = name if mark is None else f"{name}, line {mark.line + 1}"
        raise SeedError(f"{where}: {getattr(error, 'problem', None) or error}") from None
    except RecursionError:
        raise SeedError(f"{name}: too many levels") from None


def parse_jsonl(data: bytes, name: str) -> Seed:
    """Return the records that `kctl consume --format jsonl` has written, and their topics with their partitions.

    Raises SeedError, which names the line.
    """
    if len(data) > SEED_BYTES_MAX:
        raise SeedError(f"{name} has more than {SEED_BYTES_MAX} bytes")
    records: list[SeedRecord] = []
    partitions: dict[str, int] = {}
    for number, line in enumerate(data.split(b"\n"), start=1):
        try:
            read = json_record(line)
        except UsageError as error:
            raise SeedError(f"{name}, line {number}: {error}") from None
        if read is None:
            continue
        records.append(_record_of_line(read, f"{name}, line {number}"))
        partitions[records[-1].topic] = max(partitions.get(records[-1].topic, 1), (read.partition or 0) + 1)
    return Seed(topics={topic: SeedTopic(count) for topic, count in partitions.items()}, records=tuple(records))


def _record_of_line(read: ReadRecord, where: str) -> SeedRecord:
    if read.topic is None:
        raise SeedError(f"{where}: the record has no topic")
    return SeedRecord(read.topic, read.key, read.value, read.headers, read.partition, read.timestamp_ms)


class _Document:
    """Reads the nodes of one document, whose name is in errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes = 0

    def seed(self, node: Any) -> Seed:
        sections = self._fields(node, "the document", _SECTIONS)
        topics = {topic: self._topic(topic, value) for topic, value in self._items(sections.get("topics"), "topics")}
        records = tuple(self._records(sections.get("records"), topics))
        groups: dict[str, dict[TopicPartition, int]] = {}
        for group, value in self._items(sections.get("groups"), "groups"):
            groups[group] = dict(self._offsets(group, value))
        return Seed(
            topics=topics,
            acls=tuple(self._acl(acl) for acl in self._list(sections.get("acls"), "acls")),
            users=tuple(self._user(user) for user in self._list(sections.get("users"), "users")),
            groups=groups,
            records=records,
        )

    def _topic(self, topic: str, node: Any) -> SeedTopic:
        what = f"topic {topic}"
        fields = self._fields(node, what, ("partitions", "replication_factor", "configs"))
        configs = self._items(fields.get("configs"), f"configs of {what}")
        return SeedTopic(
            partitions=self._number(fields.get("partitions"), f"partitions of {what}", 1, low=1),
            replication_factor=self._number(
                fields.get("replication_factor"), f"replication_factor of {what}", -1, low=1, high=32_767
            ),
            configs={key: self._text(value, f"{key} of {what}") for key, value in configs},
        )

    def _acl(self, node: Any) -> AclBinding:
        texts = {key: self._text(value, key) for key, value in self._items(node, "an ACL")}
        try:
            return binding_of(texts)
        except (ValueError, KctlError) as error:
            raise self._error(node, f"ACL: {error}") from None

    def _user(self, node: Any) -> SeedUser:
        fields = self._fields(node, "a user", ("name", "password", "mechanism"))
        texts = {key: self._text(value, f"{key} of a user") for key, value in fields.items()}
        for key in ("name", "password"):
            if key not in texts:
                raise self._error(node, f"a user has no {key}")
        mechanism = Mechanism.named(texts.get("mechanism", "SCRAM-SHA-512"))
        if mechanism is None:
            raise self._error(fields["mechanism"], "mechanism of a user: SCRAM-SHA-256 or SCRAM-SHA-512")
        return SeedUser(texts["name"], texts["password"], mechanism)

    def _offsets(self, group: str, node: Any) -> Iterator[tuple[TopicPartition, int]]:
        for topic, partitions in self._items(node, f"group {group}"):
            for partition, offset in self._items(partitions, f"topic {topic} of group {group}"):
                if not re.fullmatch(r"\d{1,9}", partition):
                    raise self._error(partitions, f"{partition!r} of topic {topic} of group {group} is no partition")
                what = f"offset of partition {partition} of {topic} in group {group}"
                yield TopicPartition(topic, int(partition)), self._number(offset, what, 0, high=_INT64_MAX)

    def _records(self, node: Any, topics: Mapping[str, SeedTopic]) -> Iterator[SeedRecord]:
        for topic, records in self._items(node, "records"):
            for number, record in enumerate(self._list(records, f"records of {topic}"), start=1):
                what = f"record {number} of {topic}"
                fields = self._fields(record, what, ("key", "value", "partition", "timestamp_ms", "headers"))
                partition = fields.get("partition")
                chosen = None if partition is None else self._number(partition, f"partition of {what}", 0)
                if chosen is not None and topic in topics and chosen >= topics[topic].partitions:
                    raise self._error(
                        partition, f"partition of {what}: {topic} has {topics[topic].partitions} partitions"
                    )
                time = fields.get("timestamp_ms")
                yield SeedRecord(
                    topic,
                    self._data(fields.get("key"), f"key of {what}"),
                    self._data(fields.get("value"), f"value of {what}"),
                    tuple(
                        (name, self._data(value, f"header {name} of {what}"))
                        for name, value in self._items(fields.get("headers"), f"headers of {what}")
                    ),
                    chosen,
                    None if time is None else self._number(time, f"timestamp_ms of {what}", 0, high=_INT64_MAX),
                )

    def _data(self, node: Any, what: str) -> bytes | None:
        """Return a text in UTF-8, and anything else as JSON; null is null."""
        if node is None or node.tag.endswith(":null"):
            return None
        if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":str"):
            return str(node.value).encode()
        self._count(node)
        constructor = yaml.constructor.SafeConstructor()
        try:
            value = constructor.construct_document(node)
            return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, TypeError, yaml.YAMLError):
            raise self._error(node, f"{what} cannot be written as JSON; put a text into quotation marks") from None

    def _count(self, node: Any) -> None:
        """Count the nodes: aliases make many of few lines."""
        waiting = [node]
        while waiting:
            each = waiting.pop()
            self._nodes += 1
            if self._nodes > _NODES_MAX:
                raise self._error(node, f"more than {_NODES_MAX} values")
            if isinstance(each, yaml.MappingNode):
                waiting += [part for pair in each.value for part in pair]
            elif isinstance(each, yaml.SequenceNode):
                waiting += each.value

    def _fields(self, node: Any, what: str, known: tuple[str, ...]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for key, value in self._items(node, what):
            if key not in known:
                raise self._error(value, f"{what} has no field {key!r}; it has {', '.join(known)}")
            fields[key] = value
        return fields

    def _items(self, node: Any, what: str) -> Iterator[tuple[str, Any]]:
        if node is None or node.tag.endswith(":null"):
            return
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, f"{what} must be a mapping")
        seen: set[str] = set()
        for key, value in node.value:
            self._nodes += 1
            if self._nodes > _NODES_MAX:
                raise self._error(node, f"more than {_NODES_MAX} values")
            name = self._text(key, f"a name in {what}")
            if name in seen:
                raise self._error(key, f"{name} is given twice in {what}")
            seen.add(name)
            yield name, value

    def _list(self, node: Any, what: str) -> list[Any]:
        if node is None or node.tag.endswith(":null"):
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise self._error(node, f"{what} must be a list")
        return list(node.value)

    def _text(self, node: Any, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null"):
            raise self._error(node, f"{what} must be a text")
        return str(node.value)

    def _number(self, node: Any, what: str, default: int, *, low: int = 0, high: int = _INT32_MAX) -> int:
        if node is None:
            return default
        text = self._text(node, what)
        if not re.fullmatch(r"\d{1,19}", text) or not low <= int(text) <= high:
            raise self._error(node, f"{what} must be a whole number from {low} to {high}, not {text!r}")
        return int(text)

    def _error(self, node: Any, problem: str) -> SeedError:
        return SeedError(f"{self._name}, line {node.start_mark.line + 1}: {problem}")

"""What a test writes into a broker or a cluster at its begin, and reads from it at its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from kctl.admin import AdminClient, AdminConfig, NewTopic
from kctl.admin.security.users import NewPassword
from kctl.client import Consumer, ConsumerConfig, ConsumerRecord, Producer, ProducerConfig
from kctl.client.registry import SchemaError
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.server.process.test_control.failures import KIT_CLIENT_ID
from kctl.testing.brokers.seed import Seed, parse_jsonl, parse_seed

READ_TIMEOUT_S = 30.0
_ITERATIONS = 4_096
_POLL_S = 0.05
_DESCRIBE_MS = 5_000
_POLL_MS = 200

VALUES: Mapping[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "text": lambda value: value.decode(),
    "json": json.loads,
}
"""How values are returned."""
REGISTERED_VALUES: Mapping[str, str] = {
    "avro": "AvroDeserializer",
    "json-schema": "JsonDeserializer",
    "protobuf": "ProtobufDeserializer",
}
"""The classes of kctl.client.registry that read values with a schema of the broker's registry."""


class BrokerState:
    """The methods of brokers and clusters that need only their address."""

    schema_registry_url: str | None = None
    """The registry with the schemas of values."""

    @property
    def client_properties(self) -> dict[str, str]:
        """Kafka's properties for a client that may do everything."""
        raise NotImplementedError

    def seed(self, document: Mapping[str, Any] | str | Path) -> None:
        """Create the topics, ACLs, users, groups and records of a document (docs/testing/state.md).

        The document is a mapping, a text of YAML or JSON with line ends, or the path of a file; a file whose name ends
        in .jsonl has records as `kctl consume --format jsonl` writes them.  Raises SeedError with the line and the
        field that is wrong, and KctlError, such as ApiError for a topic that exists; nothing of the document is left
        then.
        """
        seed = _parsed(document)
        with self._admin() as admin, ExitStack() as undo:
            self._create(seed, admin, undo)
            undo.pop_all()

    def records(
        self, topic: str, *, value: str = "bytes", timeout_s: float = READ_TIMEOUT_S
    ) -> list[ConsumerRecord[bytes | None, Any]]:
        """Return all committed records of a topic, by partition and offset.

        `value` is "bytes", "text" or "json", or with the broker's registry "avro", "json-schema" or "protobuf"; a null
        value is None.  Raises ValueError for another one and for values that are none, ApiError for an unknown topic,
        RegistryUnreachable, and TimeoutError.
        """
        decode = self._decoder(value)
        config = ConsumerConfig.from_properties(
            {**self.client_properties, "isolation.level": "read_committed"}, client_id=KIT_CLIENT_ID
        )
        deadline_s = time.monotonic() + timeout_s
        found: list[ConsumerRecord[Any, Any]] = []
        with self._admin() as admin, Consumer(config) as consumer:
            partitions = admin.describe_topics([topic]).require()[topic].partitions
            names = [TopicPartition(topic, partition.partition) for partition in partitions]
            ends = {
                name: at.offset
                for name, at in admin.list_offsets(dict.fromkeys(names, "latest"), isolation_level="read_committed")
                .require()
                .items()
            }
            begins = {
                name: at.offset for name, at in admin.list_offsets(dict.fromkeys(names, "earliest")).require().items()
            }
            consumer.assign({name: begins[name] for name in names})
            while any(consumer.position(name) < end for name, end in ends.items()):
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"the records of {topic} cannot be read in {timeout_s:.0f} s")
                found += consumer.poll(_POLL_MS)
        converted = []
        for record in sorted(found, key=lambda record: (record.partition, record.offset)):
            if record.offset >= ends[TopicPartition(topic, record.partition)]:
                continue
            try:
                made = None if record.value is None else decode(record.value)
            except (ValueError, SchemaError) as error:
                where = f"{topic}-{record.partition} at offset {record.offset}"
                raise ValueError(f"the value of {where} is no {value}: {error}") from None
            converted.append(record._replace(value=made))
        return converted

    def assert_records(
        self, topic: str, expected: Sequence[Any], *, value: str = "bytes", timeout_s: float = READ_TIMEOUT_S
    ) -> None:
        """Wait until a topic has these values, each partition in its order; raise AssertionError if it has others.

        `expected` has values, or pairs of key and value.  With several partitions their order among each other does
        not count.
        """
        wanted = list(expected)
        deadline_s = time.monotonic() + timeout_s
        while True:
            have = self.records(topic, value=value, timeout_s=timeout_s)
            if len(have) >= len(wanted) or time.monotonic() > deadline_s:
                break
            time.sleep(_POLL_S)
        has_keys = any(isinstance(item, tuple) for item in wanted)
        by_partition: dict[int, list[Any]] = {}
        for record in have:
            by_partition.setdefault(record.partition, []).append(
                (record.key, record.value) if has_keys else record.value
            )
        problem = _difference(by_partition, wanted)
        if problem:
            raise AssertionError(f"topic {topic}: {problem}")

    def wait_until_consumed(self, group: str, *, timeout_s: float = READ_TIMEOUT_S) -> None:
        """Return when a group has committed the end of all partitions of which it has committed any.

        Raises TimeoutError, which names what is missing.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._admin() as admin:
            while True:
                found = admin.group_offsets([group])[group]
                if isinstance(found, ApiError) and found.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise found
                offsets = {} if isinstance(found, ApiError) else found
                ends = admin.list_offsets(dict.fromkeys(offsets, "latest")).require() if offsets else {}
                behind = {
                    name: ends[name].offset - committed.offset
                    for name, committed in offsets.items()
                    if committed.offset < ends[name].offset
                }
                if offsets and not behind:
                    return
                if time.monotonic() > deadline_s:
                    missing = ", ".join(
                        f"{counted(count, 'record')} of {name}" for name, count in sorted(behind.items())
                    )
                    what = missing or "it has not committed anything"
                    raise TimeoutError(f"group {group} in {timeout_s:.0f} s: {what}")
                time.sleep(_POLL_S)

    def describe(self) -> str:
        """Return the topics and groups with their offsets, for the report of a test that has failed."""
        lines = []
        with self._admin(default_api_timeout_ms=_DESCRIBE_MS, request_timeout_ms=_DESCRIBE_MS) as admin:
            topics = admin.list_topics()
            names = [TopicPartition(topic.name, part.partition) for topic in topics for part in topic.partitions]
            ends = admin.list_offsets(dict.fromkeys(names, "latest")) if names else {}
            for name in sorted(names):
                end = ends[name]
                lines.append(f"{name}: end offset {end.offset if hasattr(end, 'offset') else end}")
            groups = [group.group_id for group in admin.list_groups()]
            for group, offsets in sorted(admin.group_offsets(groups).items()):
                if not isinstance(offsets, dict):
                    lines.append(f"group {group}: {offsets}")
                    continue
                committed = ", ".join(f"{name} {offset.offset}" for name, offset in sorted(offsets.items()))
                lines.append(f"group {group}: {committed or 'nothing committed'}")
        return "\n".join(lines)

    def _decoder(self, value: str) -> Callable[[bytes], Any]:
        """Return what makes a value of bytes.  Raises ValueError for an unknown name, and without a registry."""
        if value in VALUES:
            return VALUES[value]
        if value not in REGISTERED_VALUES:
            raise ValueError(f"value must be one of {', '.join([*VALUES, *REGISTERED_VALUES])}, not {value!r}")
        if self.schema_registry_url is None:
            raise ValueError(f"{value} needs a registry: start the broker with schema_registry=True")
        registry = import_module("kctl.client.registry")
        decode: Callable[[bytes], Any] = getattr(registry, REGISTERED_VALUES[value])(
            registry.SchemaRegistry(self.schema_registry_url)
        )
        return decode

    def _create(self, seed: Seed, admin: AdminClient, undo: ExitStack) -> None:
        topics = [
            NewTopic(name, topic.partitions, topic.replication_factor, configs=topic.configs)
            for name, topic in seed.topics.items()
        ]
        if topics:
            created = admin.create_topics(topics)
            undo.callback(admin.delete_topics, [name for name in seed.topics if name not in created.errors])
            created.require()
        if seed.acls:
            present = set(admin.list_acls())
            new = [acl for acl in seed.acls if acl not in present]
            undo.callback(admin.delete_acls, new)
            admin.create_acls(list(seed.acls)).require()
        for user in seed.users:
            undo.callback(admin.delete_credentials, user.name, [user.mechanism])
            admin.set_password(user.name, NewPassword(user.password, (user.mechanism,), _ITERATIONS)).require()
        self._produce(seed)
        for group, offsets in seed.groups.items():
            undo.callback(admin.delete_groups, [group])
            admin.alter_group_offsets(group, offsets).require()

    def _produce(self, seed: Seed) -> None:
        if not seed.records:
            return
        config = ProducerConfig.from_properties(self.client_properties, client_id=KIT_CLIENT_ID)
        with Producer(config) as producer:
            sent = [
                producer.send(
                    record.topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in seed.records
            ]
            for future in sent:
                future.result()

    def _admin(self, **settings: int) -> AdminClient:
        return AdminClient(AdminConfig.from_properties(self.client_properties, client_id=KIT_CLIENT_ID, **settings))


def _parsed(document: Mapping[str, Any] | str | Path) -> Seed:
    if isinstance(document, Mapping):
        return parse_seed(json.dumps(document), "the document")
    if isinstance(document, Path) or "\n" not in document:
        path = Path(document)
        if path.suffix == ".jsonl":
            return parse_jsonl(path.read_bytes(), str(path))
        return parse_seed(path.read_text(encoding="utf-8"), str(path))
    return parse_seed(document, "the document")


def _difference(by_partition: Mapping[int, Sequence[Any]], wanted: Sequence[Any]) -> str:
    """Return how the values differ from the wanted ones; empty if each partition has a part of them, in order."""
    have = [value for values in by_partition.values() for value in values]
    if len(by_partition) <= 1:
        for index, (value, expected) in enumerate(zip(have, wanted, strict=False)):
            if value != expected:
                return f"record {index} is {value!r}, not {expected!r}"
    left = list(wanted)
    for values in by_partition.values():
        for value in values:
            if value not in left:
                return f"{value!r} was not expected, or not so often; expected were {list(wanted)!r}"
            left.remove(value)
    if left:
        return f"{left[0]!r} is missing; there are {have!r}"
    orders = [[wanted.index(value) for value in values if wanted.count(value) == 1] for values in by_partition.values()]
    if any(order != sorted(order) for order in orders):
        return f"another order in a partition: {dict(by_partition)!r}"
    return ""

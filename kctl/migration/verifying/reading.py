"""Reads the fingerprint of a running cluster."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from kctl.admin.groups.groups import list_groups, look_up_groups
from kctl.admin.security.acls import list_acls
from kctl.admin.security.quotas import describe_quotas, entity_text
from kctl.admin.security.tokens import describe_tokens
from kctl.admin.security.users import describe_users
from kctl.admin.state.document import number_text
from kctl.admin.topics.configs import BROKER_DEFAULTS, ConfigResource, ResourceType, describe_configs
from kctl.admin.topics.offsets import OffsetRange, find_offset_ranges
from kctl.admin.topics.transactions import describe_transactions, list_transactions
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.consumer import Consumer
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.metadata import Topic
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.limits import Subject as LimitSubject
from kctl.limits import bound
from kctl.migration.verifying.fingerprint import Fingerprint, Item, Range, Subject
from kctl.model import ZERO_UUID, TopicPartition, uuid_text
from kctl.records.header import Record

KEYS_MAX = bound(
    LimitSubject.COMMANDS,
    "different keys of one partition of a compacted topic that `kctl migrate verify` compares",
    1_000_000,
    "keys",
    on_excess="the partition is not compared, which its row says",
)
_PARTITIONS_AT_A_TIME = 200
_LEVELS = {
    Subject.RECORDS: IsolationLevel.READ_UNCOMMITTED,
    Subject.COMMITTED_RECORDS: IsolationLevel.READ_COMMITTED,
}
_HEAD = struct.Struct(">qqii")

Ranges = Mapping[Subject, Mapping[TopicPartition, Range]]
T = TypeVar("T")


async def read_fingerprint(
    client: ClusterClient,
    *,
    earlier: Fingerprint | None = None,
    with_records: bool = True,
    note: Callable[[str], None] = lambda _: None,
) -> Fingerprint:
    """Return the fingerprint; with an `earlier` one, only the records that it had are hashed, without later ones.

    What cannot be read is named in `unread`.  Raises ApiError and ClusterUnreachable for the list of topics.
    """
    reading = _Reading(client, earlier)
    topics = await reading.topics()
    await reading.configs(topics)
    for subject, read in (
        (Subject.GROUP_OFFSET, reading.groups),
        (Subject.ACL, reading.acls),
        (Subject.SCRAM, reading.scram),
        (Subject.QUOTA, reading.quotas),
        (Subject.TOKEN, reading.tokens),
        (Subject.TRANSACTION, reading.transactions),
    ):
        await reading.if_possible(subject, read())
    if with_records:
        await reading.records([topic for topic in topics if not topic.is_internal], note)
    else:
        reading.unread |= dict.fromkeys(_LEVELS, "--no-records was given")
    for topic in topics:
        if topic.is_internal:
            reading.unread[f"records of {topic.name}"] = "its contents are compared as group offsets and transactions"
    return Fingerprint(reading.values, reading.unread, reading.ranges)


class _Reading:
    def __init__(self, client: ClusterClient, earlier: Fingerprint | None) -> None:
        self._client = client
        self._earlier = earlier
        self.values: dict[Item, str] = {}
        self.unread: dict[str, str] = {}
        self.ranges: dict[Subject, dict[TopicPartition, Range]] = {}
        self._compacted: set[str] = set()

    async def if_possible(self, subject: Subject, reading: Awaitable[None]) -> None:
        """Note the reason why a subject cannot be read."""
        try:
            await reading
        except ApiError as error:
            self.unread[subject] = str(error)

    def _put(self, subject: Subject, name: str, value: object) -> None:
        self.values[Item(subject, name)] = str(value)

    async def topics(self) -> list[Topic]:
        metadata = await self._client.metadata()
        self._put(Subject.CLUSTER, "id", metadata.cluster_id)
        for topic in metadata.topics.values():
            if topic.topic_id != ZERO_UUID:
                self._put(Subject.TOPIC, f"{topic.name} id", uuid_text(topic.topic_id))
            else:
                self.unread[f"{Subject.TOPIC} {topic.name} id"] = "the broker has no topic ids"
            self._put(Subject.TOPIC, f"{topic.name} partitions", len(topic.partitions))
            for partition in topic.partitions:
                self._put(Subject.REPLICAS, f"{topic.name}-{partition.partition}", list(partition.replicas))
        return list(metadata.topics.values())

    async def configs(self, topics: Collection[Topic]) -> None:
        brokers = [str(number) for number in (await self._client.metadata([])).brokers]
        resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in topics]
        resources += [ConfigResource(ResourceType.BROKER, name) for name in (*brokers, BROKER_DEFAULTS)]
        described = await describe_configs(self._client, resources, own_only=True, synonyms=False)
        for resource, entries in described.items():
            subject = Subject.TOPIC_CONFIG if resource.type is ResourceType.TOPIC else Subject.BROKER_CONFIG
            if isinstance(entries, Outcome):
                self.unread[f"{subject} {resource.name}"] = entries.message or entries.error.name
                continue
            for entry in entries:
                self._put(subject, f"{resource.name} {entry.name}", "hidden" if entry.is_sensitive else entry.value)
                if (
                    subject is Subject.TOPIC_CONFIG
                    and entry.name == "cleanup.policy"
                    and "compact" in (entry.value or "")
                ):
                    self._compacted.add(resource.name)

    async def groups(self) -> None:
        """Read the offsets of groups, again while some of the earlier fingerprint are missing.

        A coordinator of 4.x that has just become the leader shows those below the high watermark, which follows soon.
        """
        earlier = {
            item for item in (self._earlier.values if self._earlier else ()) if item.subject is Subject.GROUP_OFFSET
        }
        deadline = self._client.deadline()
        await self._read_groups()
        while not earlier <= self.values.keys() and await deadline.pause():
            await self._read_groups()

    async def _read_groups(self) -> None:
        listed, failed = await list_groups(self._client)
        for outcome in failed:
            raise ApiError(outcome.error, f"broker {outcome.name}: {outcome.message or outcome.error.name}")
        # Coordinators that still load have no groups to list, and make those that are named wait.
        earlier = {name.rpartition(" ")[0] for name in self._earlier_names(Subject.GROUP_OFFSET)}
        for group in await look_up_groups(self._client, sorted(earlier | {group.group_id for group in listed})):
            name = group.outcome.name
            if not group.outcome.is_done and group.outcome.error is not ErrorCode.GROUP_ID_NOT_FOUND:
                self.unread[f"{Subject.GROUP_OFFSET} {name}"] = group.outcome.message or group.outcome.error.name
            for offset in group.offsets:
                if offset.committed_offset >= 0:
                    value = f"{offset.committed_offset} {offset.metadata!r}"
                    self._put(Subject.GROUP_OFFSET, f"{name} {offset.tp}", value)

    async def acls(self) -> None:
        for binding in await list_acls(self._client):
            self._put(Subject.ACL, str(binding), "yes")

    async def scram(self) -> None:
        for user in await describe_users(self._client):
            for mechanism, iterations in user.iterations.items():
                self._put(Subject.SCRAM, f"{user.outcome.name} {mechanism.config_key}", f"{iterations} iterations")

    async def quotas(self) -> None:
        for entry in (await describe_quotas(self._client))[0]:
            for name, value in entry.quotas.items():
                self._put(Subject.QUOTA, f"{entity_text(entry.entity)} {name}", number_text(value))

    async def tokens(self) -> None:
        for token in await describe_tokens(self._client):
            value = f"{token.owner} {sorted(token.renewers)} {token.issue_ms} {token.max_ms}"
            self._put(Subject.TOKEN, token.token_id, value)

    async def transactions(self) -> None:
        listed, failed = await list_transactions(self._client)
        for outcome in failed:
            raise ApiError(outcome.error, f"broker {outcome.name}: {outcome.message or outcome.error.name}")
        names = self._earlier_names(Subject.TRANSACTION) | {transaction.transactional_id for transaction in listed}
        for transaction in await describe_transactions(self._client, sorted(names)):
            name = transaction.outcome.name
            if transaction.outcome.is_done:
                self._put(Subject.TRANSACTION, name, f"producer {transaction.producer_id} {transaction.state}")
            elif transaction.outcome.error is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                self.unread[f"{Subject.TRANSACTION} {name}"] = transaction.outcome.message

    def _earlier_names(self, subject: Subject) -> set[str]:
        values = {} if self._earlier is None else self._earlier.values
        return {item.name for item in values if item.subject is subject}

    async def records(self, topics: Collection[Topic], note: Callable[[str], None]) -> None:
        tps = [TopicPartition(topic.name, partition.partition) for topic in topics for partition in topic.partitions]
        for subject, isolation in _LEVELS.items():
            ranges = self.ranges.setdefault(subject, {})
            for start in range(0, len(tps), _PARTITIONS_AT_A_TIME):
                some = tps[start : start + _PARTITIONS_AT_A_TIME]
                found = await find_offset_ranges(self._client, some, isolation=isolation)
                for tp in some:
                    chosen = self._range(subject, tp, found[tp])
                    if chosen is not None:
                        ranges[tp] = chosen
                await self._hash(subject, isolation, {tp: ranges[tp] for tp in some if tp in ranges})
                note(f"{subject}: {min(start + _PARTITIONS_AT_A_TIME, len(tps))} of {len(tps)} partitions read")

    def _range(self, subject: Subject, tp: TopicPartition, current: OffsetRange | ApiError) -> Range | None:
        """Return what is hashed: all, or what was hashed in the earlier fingerprint."""
        if isinstance(current, ApiError):
            self.unread[f"{subject} {tp}"] = str(current)
            return None
        earlier = None if self._earlier is None else self._earlier.ranges.get(subject, {}).get(tp)
        if earlier is None:
            return Range(current.start, current.end)
        if current.start > earlier.start:
            self.unread[f"{subject} {tp}"] = f"records below offset {current.start} were deleted since"
            return None
        if tp.topic in self._compacted and current.end > earlier.end:
            self.unread[f"{subject} {tp}"] = "the topic is compacted, and records were written since"
            return None
        return Range(earlier.start, min(earlier.end, current.end))

    async def _hash(self, subject: Subject, isolation: IsolationLevel, ranges: Mapping[TopicPartition, Range]) -> None:
        hashes = {tp: _Latest() if tp.topic in self._compacted else _InOrder() for tp in ranges}
        starts = {tp: range_.start for tp, range_ in ranges.items() if range_.start < range_.end}
        consumer = Consumer(self._client, starts, isolation=isolation)
        try:
            while consumer.positions:
                for tp, records in await consumer.poll():
                    for record in records:
                        if record.offset < ranges[tp].end:
                            hashes[tp].add(record)
                for tp in [tp for tp, position in consumer.positions.items() if position >= ranges[tp].end]:
                    consumer.drop(tp)
        except KctlError as error:
            for tp in list(consumer.positions):
                self.unread[f"{subject} {tp}"] = str(error)
        for tp, hashed in hashes.items():
            text = hashed.text()
            if text is None:
                self.unread[f"{subject} {tp}"] = f"more than {KEYS_MAX} keys"
            elif f"{subject} {tp}" not in self.unread:
                self._put(subject, str(tp), f"{ranges[tp].start}..{ranges[tp].end} {text}")


class _InOrder:
    """Hashes offset, timestamp, key, value and headers of each record."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._count = 0

    def add(self, record: Record) -> None:
        self._count += 1
        self._hash.update(_bytes_of(record))

    def text(self) -> str | None:
        return f"{self._count} records {self._hash.hexdigest()[:32]}"


class _Latest:
    """Hashes the last record of each key: a cleaner may remove the others at any time, and tombstones."""

    def __init__(self) -> None:
        self._latest: dict[bytes, bytes] = {}
        self._is_full = False

    def add(self, record: Record) -> None:
        key = hashlib.sha256(record.key or b"").digest()
        if record.value is None:
            self._latest.pop(key, None)
        elif len(self._latest) < KEYS_MAX or key in self._latest:
            self._latest[key] = hashlib.sha256(_bytes_of(record)).digest()
        else:
            self._is_full = True

    def text(self) -> str | None:
        if self._is_full:
            return None
        total = hashlib.sha256(b"".join(key + self._latest[key] for key in sorted(self._latest)))
        return f"{len(self._latest)} keys {total.hexdigest()[:32]}"


def _bytes_of(record: Record) -> bytes:
    parts = [_HEAD.pack(record.offset, record.timestamp, _size(record.key), _size(record.value))]
    parts += [record.key or b"", record.value or b""]
    for name, value in record.headers:
        encoded = name.encode()
        parts += [struct.pack(">ii", len(encoded), _size(value)), encoded, value or b""]
    return b"".join(parts)


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)

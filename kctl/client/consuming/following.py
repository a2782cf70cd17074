"""Follows topics that change while they are read: partitions are added, topics are deleted and created again, and
topics whose names are selected are created.

Kafka's consumer reads on at the old offsets when a topic was created again; here they are not carried over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from kctl.client.cluster import ClusterClient
from kctl.client.consuming.consumer import Consumer
from kctl.client.metadata import ClusterMetadata, Topic, TopicRecreated
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.records.header import Record

Begin = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
"""The offsets of the first records of partitions."""

Select = Callable[[list[TopicPartition]], list[TopicPartition]]
"""Which of all partitions of a topic are read.  Raises ApiError if one of them does not exist."""

Matches = Callable[[Iterable[str]], Collection[str]]
"""Which of these names are those of topics that are read."""

MISSING_PAUSE_MS = 500
"""How often a topic is looked up that does not exist, or has no leaders yet."""
MISSES_SHOWN = 2
"""A broker that has just started may not know the topic at the first look."""
DISCOVERY_MS = 10_000
"""How often topics are looked up by their names, unless metadata.max.age.ms is shorter."""
NAMES_SHOWN = 10
"""Names in one note."""

GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(slots=True)
class _Missing:
    """A topic that is not read at the moment, because it does not exist or is another one."""

    positions: dict[TopicPartition, int]
    looks: int = 0
    """How often the brokers have not known it."""


class TopicFollower:
    """Polls a consumer, and changes its partitions with those of the topics.  Owner: that of the consumer.

    Partitions that are added, and all of a topic that was created (again), are read from what `begin` returns.  With
    `matches`, topics that it selects are read too when they are created, and deleted ones are not awaited.  `note` gets
    a sentence about each change.
    """

    def __init__(
        self,
        client: ClusterClient,
        consumer: Consumer,
        topics: Collection[str],
        *,
        select: Select,
        begin: Begin,
        note: Callable[[str], None],
        matches: Matches | None = None,
    ) -> None:
        self._client = client
        self._consumer = consumer
        self._select = select
        self._begin = begin
        self._note = note
        self._matches = matches
        self._known: dict[str, set[TopicPartition]] = {
            name: {tp for tp in consumer.positions if tp.topic == name} for name in topics
        }
        """All partitions that are or were read, by topic."""
        self._seen: ClusterMetadata | None = None
        """The metadata whose partitions are all known."""
        self._missing: dict[str, _Missing] = {}
        self._look_ms = 0
        """When missing topics are looked up again."""
        self._discovery_ms = self._now_ms() + self._discovery_interval_ms

    @property
    def awaits_topics(self) -> bool:
        """Whether the consumer lacks partitions of topics that may be created again."""
        return bool(self._missing)

    async def poll(self) -> list[tuple[TopicPartition, list[Record]]]:
        """Return the next records, empty if none arrived in time.

        Raises as Consumer.poll, except for what it follows.
        """
        is_reading = len(self._missing) < len(self._known)
        if not is_reading:
            await self._client.transport.sleep(MISSING_PAUSE_MS)
        if self._missing and (not is_reading or self._now_ms() >= self._look_ms):
            await self._look_for_missing()
        if self._matches is not None and self._now_ms() >= self._discovery_ms:
            await self._discover(self._matches)
        if not self._consumer.positions:
            return []
        try:
            polled = await self._consumer.poll()
        except TopicRecreated as error:
            self._set_aside_another(error)
            return []
        except ApiError as error:
            await self._examine(error)
            return []
        await self._read_added_partitions()
        return polled

    def _now_ms(self) -> int:
        return self._client.transport.monotonic_ms()

    @property
    def _discovery_interval_ms(self) -> int:
        return min(DISCOVERY_MS, self._client.settings.metadata_max_age_ms)

    # Topics that do not exist, or are others.

    def _set_aside(self, topic: str, *, looks: int = 0) -> None:
        """Stop reading a topic until it exists; its positions are kept."""
        positions = {tp: offset for tp, offset in self._consumer.positions.items() if tp.topic == topic}
        self._missing[topic] = _Missing(positions, looks)
        for tp in positions:
            self._consumer.drop(tp)

    def _set_aside_another(self, error: TopicRecreated) -> None:
        self._note(f"{error}; reading the new topic from its start")
        self._set_aside(error.topic)

    async def _examine(self, error: ApiError) -> None:
        """Return if the error is due to a topic that was deleted or created again; raise it otherwise."""
        if error.code in GONE:
            await self._set_aside_deleted()
        elif error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                await self._consumer.check_topics()
            except TopicRecreated as change:
                self._set_aside_another(change)
                return
            raise error
        else:
            raise error

    async def _set_aside_deleted(self) -> None:
        """Find the topics that do not exist, or are others; a broker that lacks their metadata may have been wrong."""
        reading = self._known.keys() - self._missing.keys()
        topics = (await self._client.metadata(reading)).topics
        if deleted := [name for name in reading if topics[name].error in GONE]:
            for name in deleted:
                self._set_aside(name, looks=1)
            return
        try:
            await self._consumer.check_topics()
        except TopicRecreated as change:
            self._set_aside_another(change)
        else:
            await self._client.transport.sleep(MISSING_PAUSE_MS)

    async def _look_for_missing(self) -> None:
        """Read on with the topics that exist, from their start if they are others."""
        topics = (await self._client.metadata(self._missing)).topics
        for name, missing in list(self._missing.items()):
            topic = topics[name]
            if topic.error in GONE:
                missing.looks += 1
                if missing.looks == MISSES_SHOWN:
                    self._note_deletion(name)
            elif topic.error is ErrorCode.NONE:
                if await self._restart(topic, missing):
                    del self._missing[name]
            elif not topic.error.retriable:
                raise ApiError(topic.error, f"{name}: {topic.error.description}")
        self._look_ms = self._now_ms() + MISSING_PAUSE_MS

    def _note_deletion(self, name: str) -> None:
        """Await the topic, unless its name alone has selected it: then it is new when it is created."""
        if self._matches is None:
            self._note(f"{name} does not exist any more; waiting until it is created again")
            return
        self._note(f"{name} does not exist any more")
        del self._missing[name]
        self._known.pop(name)
        self._consumer.restart_topic(name, {})

    async def _restart(self, topic: Topic, missing: _Missing) -> bool:
        """Read all selected partitions, from their first records if the topic is another one.

        Return False if they have no leaders yet.
        """
        if self._consumer.is_of(topic):  # A broker without its metadata has said that the topic does not exist.
            self._consumer.assign({**self._consumer.positions, **missing.positions})
            return True
        if (starts := await self._starts(self._select(_partitions_of(topic)))) is None:
            return False
        if missing.looks >= MISSES_SHOWN:
            self._note(f"{topic.name} was created again; reading it from its start")
        self._consumer.restart_topic(topic.name, starts)
        self._known[topic.name] = set(starts)
        return True

    # What is added.

    async def _read_added_partitions(self) -> None:
        metadata = self._consumer.metadata
        if metadata is None or metadata is self._seen:
            return
        self._seen = metadata
        for name in self._known.keys() & metadata.topics.keys():
            known, topic = self._known[name], metadata.topics[name]
            has_more = len(topic.partitions) > len(known)
            added = sorted(set(self._select(_partitions_of(topic))) - known) if has_more else []
            if not added:
                continue
            if (starts := await self._starts(added)) is None:
                self._seen = None
                continue
            known.update(starts)
            numbers = ", ".join(str(tp.partition) for tp in starts)
            self._note(f"{name} has {counted(len(starts), 'more partition')}, read from the start: {numbers}")
            self._consumer.assign({**self._consumer.positions, **starts})

    async def _discover(self, matches: Matches) -> None:
        """Read the topics whose names match and that are not read yet; internal topics do not match, as in Java."""
        topics = (await self._client.metadata()).topics
        self._discovery_ms = self._now_ms() + self._discovery_interval_ms
        candidates = (name for name, topic in topics.items() if topic.error is ErrorCode.NONE and not topic.is_internal)
        begun: list[str] = []
        for name in sorted(set(matches(candidates)) - self._known.keys()):
            if (starts := await self._starts(self._select(_partitions_of(topics[name])))) is None:
                continue
            begun.append(name)
            self._known[name] = set(starts)
            self._consumer.restart_topic(name, starts)
        if begun:
            more = f" and {len(begun) - NAMES_SHOWN} more" if len(begun) > NAMES_SHOWN else ""
            names = ", ".join(begun[:NAMES_SHOWN]) + more
            self._note(f"{counted(len(begun), 'new topic')}, read from the start: {names}")

    async def _starts(self, tps: Collection[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """Return the offsets of the first records; None if the partitions have no leaders yet."""
        try:
            return await self._begin(tps)
        except ApiError as error:
            if error.code in GONE or error.code.retriable:
                return None
            raise


def _partitions_of(topic: Topic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition.partition) for partition in topic.partitions]

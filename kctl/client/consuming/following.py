"""Follows a topic that changes while it is read: partitions are added, the topic is deleted and created again.

Kafka's consumer reads on at the old offsets when a topic was created again; here they are not carried over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from kctl.client.cluster import ClusterClient
from kctl.client.consuming.consumer import Consumer
from kctl.client.metadata import Topic, TopicRecreated
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.records.header import Record

Begin = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
"""The offsets of the first records of partitions."""

Select = Callable[[list[TopicPartition]], list[TopicPartition]]
"""Which of all partitions of a topic are read.  Raises ApiError if one of them does not exist."""

MISSING_PAUSE_MS = 500
"""How often a topic is looked up that does not exist, or has no leaders yet."""
MISSES_SHOWN = 2
"""A broker that has just started may not know the topic at the first look."""

GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class TopicFollower:
    """Polls a consumer of one topic, and changes its partitions with those of the topic.  Owner: that of the consumer.

    Partitions that are added, and all of a topic that was created again, are read from what `begin` returns.  `note`
    gets a sentence about each change.
    """

    def __init__(
        self,
        client: ClusterClient,
        consumer: Consumer,
        topic: str,
        *,
        select: Select,
        begin: Begin,
        note: Callable[[str], None],
    ) -> None:
        self._client = client
        self._consumer = consumer
        self._topic = topic
        self._select = select
        self._begin = begin
        self._note = note
        self._known = set(consumer.positions)
        """All partitions that are or were read."""
        self._misses = 0
        self._must_restart = False

    async def poll(self) -> list[tuple[TopicPartition, list[Record]]]:
        """Return the next records, empty if none arrived in time.

        Raises as Consumer.poll, except for what it follows.
        """
        if self._must_restart or self._misses:
            await self._look_for_topic()
            return []
        try:
            polled = await self._consumer.poll()
        except TopicRecreated as error:
            self._note(f"{error}; reading the new topic from its start")
            self._must_restart = True
            return []
        except ApiError as error:
            await self._examine(error)
            return []
        await self._read_added_partitions()
        return polled

    async def _examine(self, error: ApiError) -> None:
        """Return if the error is due to a topic that was deleted or created again; raise it otherwise."""
        if error.code in GONE:
            self._misses = 1
        elif error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                await self._consumer.check_topics()
            except TopicRecreated as change:
                self._note(f"{change}; reading the new topic from its start")
                self._must_restart = True
                return
            raise error
        else:
            raise error

    async def _look_for_topic(self) -> None:
        """Continue when the topic exists, from its start if it is another one; else wait a moment."""
        found = (await self._client.metadata([self._topic])).topics[self._topic]
        if found.error in GONE:
            self._misses += 1
            self._must_restart = True  # also without topic ids, which brokers before Kafka 2.8 lack
            if self._misses == MISSES_SHOWN:
                self._note(f"{self._topic} does not exist any more; waiting until it is created again")
        elif found.error is ErrorCode.NONE and (not self._must_restart or await self._restart(found)):
            self._misses = 0
            return
        elif not found.error.retriable and found.error is not ErrorCode.NONE:
            raise ApiError(found.error, f"{self._topic}: {found.error.description}")
        await self._client.transport.sleep(MISSING_PAUSE_MS)

    async def _restart(self, topic: Topic) -> bool:
        """Read all selected partitions from their first records; return False if they have no leaders yet."""
        if self._consumer.is_of(topic):  # A broker without its metadata said that the topic does not exist.
            self._must_restart = False
            return True
        tps = self._select(_partitions_of(topic))
        try:
            starts = await self._begin(tps)
        except ApiError as error:
            if error.code in GONE or error.code.retriable:
                return False
            raise
        if self._misses >= MISSES_SHOWN:
            self._note(f"{self._topic} was created again; reading it from its start")
        self._consumer.restart_topic(self._topic, starts)
        self._known = set(starts)
        self._must_restart = False
        return True

    async def _read_added_partitions(self) -> None:
        metadata = self._consumer.metadata
        topic = None if metadata is None else metadata.topics.get(self._topic)
        if topic is None or len(topic.partitions) <= len(self._known):
            return
        added = sorted(set(self._select(_partitions_of(topic))) - self._known)
        if not added:
            return
        try:
            starts = await self._begin(added)
        except ApiError as error:
            if error.code in GONE or error.code.retriable:
                return  # They have no leaders yet; the next poll tries again.
            raise
        self._known.update(starts)
        numbers = ", ".join(str(tp.partition) for tp in starts)
        self._note(f"{self._topic} has {counted(len(starts), 'more partition')}, read from the start: {numbers}")
        self._consumer.assign({**self._consumer.positions, **starts})


def _partitions_of(topic: Topic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition.partition) for partition in topic.partitions]

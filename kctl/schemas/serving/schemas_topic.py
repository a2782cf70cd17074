"""The topic with the state of a registry: created, read from its start, followed, and written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from kctl.admin.topics.topics import NewTopic, create_topics
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.consumer import Consumer
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, list_offsets_at
from kctl.client.producing.producer import Delivery, Producer, ProducerSettings
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.schemas.topic_records import TopicRecord

logger = logging.getLogger(__name__)
_RETRY_S = 0.5
_BATCH_BYTES = 1 << 20
_REPLICAS = 3


class AnotherWriter(KctlError):
    """Another program has written to the topic between what this one has read and what it wrote."""


class SchemasTopic:
    """One partition.  Owner: event loop."""

    def __init__(self, client: ClusterClient, name: str, apply: Callable[[Sequence[TopicRecord]], None]) -> None:
        """`apply` receives the records in their order, in a thread."""
        self._client = client
        self._reader = ClusterClient(client.settings, client.transport)
        """With connections of its own: a fetch waits for records, and requests behind it would wait too."""
        self._tp = TopicPartition(name, 0)
        self._apply = apply
        self._applied = 0
        """The offset after the last record that was applied."""
        self._progress = asyncio.Condition()
        self._deliveries: list[Delivery] = []
        self._producer = Producer(
            client, ProducerSettings(linger_ms=0, batch_bytes=_BATCH_BYTES), self._deliveries.append
        )

    async def open(self) -> Consumer:
        """Create the topic if it does not exist, and read it to its end.  Raises KctlError."""
        await self._create()
        ends = (await list_offsets_at(self._client, [self._tp], [EARLIEST, LATEST]))[self._tp]
        if isinstance(ends, KctlError):
            raise ends
        start, end = (offset.offset for offset in ends)
        consumer = Consumer(self._reader, {self._tp: start})
        self._applied = start
        while self._applied < end:
            await self._take(consumer)
        return consumer

    async def _create(self) -> None:
        metadata = await self._client.metadata([self._tp.topic])
        topic = metadata.topics.get(self._tp.topic)
        if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            replicas = min(_REPLICAS, len(metadata.brokers))
            new = NewTopic(self._tp.topic, 1, replicas, configs={"cleanup.policy": "compact"})
            (created,) = await create_topics(self._client, [new])
            if not created.outcome.is_done and created.outcome.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise ApiError(created.outcome.error, f"the topic {new.name}: {created.outcome.message}")
            metadata = await self._client.metadata([self._tp.topic])
            topic = metadata.topics[self._tp.topic]
        if len(topic.partitions) != 1:
            raise KctlError(
                f"the topic {self._tp.topic} has {len(topic.partitions)} partitions; a schema registry needs one with 1"
            )

    async def _take(self, consumer: Consumer) -> None:
        for _, records in await consumer.poll():
            taken = [TopicRecord(record.key, record.value) for record in records if record.key is not None]
            await asyncio.to_thread(self._apply, taken)
        async with self._progress:
            self._applied = consumer.positions[self._tp]
            self._progress.notify_all()

    async def follow(self, consumer: Consumer) -> None:
        """Apply what is written, until the task is cancelled.  Raises KctlError if the topic is another one now."""
        while True:
            try:
                await self._take(consumer)
            except ApiError as error:
                if not error.code.retriable:
                    raise
                logger.warning("cannot read the topic of schemas topic=%s error=%s", self._tp.topic, error)
                await asyncio.sleep(_RETRY_S)
            except KctlError as error:
                logger.warning("cannot read the topic of schemas topic=%s error=%s", self._tp.topic, error)
                await asyncio.sleep(_RETRY_S)

    async def write(self, records: Sequence[TopicRecord]) -> None:
        """Write records, and return when they were read and applied.  One call at a time.

        Raises KctlError if they may not be in the topic, and AnotherWriter.
        """
        expected = self._applied
        self._deliveries.clear()
        for record in records:
            await self._producer.send(self._tp.topic, record.value, key=record.key, partition=0)
        await self._producer.flush()
        for delivery in self._deliveries:
            if delivery.error is not None:
                raise delivery.error
        end = max(delivery.base_offset + delivery.count for delivery in self._deliveries)
        async with self._progress:
            await self._progress.wait_for(lambda: self._applied >= end)
        if end != expected + len(records):
            raise AnotherWriter(
                f"another program writes to the topic {self._tp.topic}: stop the other schema registry, or use another "
                "topic with --topic"
            )

    async def close(self) -> None:
        """Stop the producer, and close the connections of the reader."""
        await self._producer.stop()
        await self._reader.close()

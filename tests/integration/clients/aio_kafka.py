"""aiokafka: the asyncio client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.integration.clients.family import TIMEOUT_S, Entry, Shared

POLL_MS = 100


class AioKafka:
    codecs: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
    settings: Mapping[str, Any] = {}
    """Settings of all its clients."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int) -> None:
        asyncio.run(self._create_topic(topic, partitions))

    def delete_topic(self, topic: str) -> None:
        asyncio.run(self._delete_topic(topic))

    def produce(self, topic: str, records: list[tuple[bytes, bytes]], codec: str = "none") -> None:
        asyncio.run(self._produce(topic, records, codec))

    def consume(self, topic: str, count: int, group: str | None = None) -> list[Entry]:
        return asyncio.run(self._consume(topic, count, group))

    def share(self, topic: str, group: str, records: list[tuple[bytes, bytes]], partitions: int) -> Shared:
        return asyncio.run(self._share(topic, group, records, partitions))

    async def _create_topic(self, topic: str, partitions: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap, **self.settings)
        await admin.start()
        response = await admin.create_topics([NewTopic(topic, partitions, 1)])
        await admin.close()
        assert [error[1] for error in response.topic_errors] == [0]

    async def _delete_topic(self, topic: str) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap, **self.settings)
        await admin.start()
        await admin.delete_topics([topic])
        await admin.close()

    async def _produce(self, topic: str, records: list[tuple[bytes, bytes]], codec: str) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            linger_ms=5,
            compression_type=None if codec == "none" else codec,
            **self.settings,
        )
        await producer.start()
        headers = [("codec", codec.encode()), ("null", None)]
        await asyncio.gather(*[await producer.send(topic, value, key, headers=headers) for key, value in records])
        await producer.stop()

    async def _consume(self, topic: str, count: int, group: str | None) -> list[Entry]:
        consumer = self._consumer(topic, group)
        await consumer.start()
        entries: list[Entry] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(entries) < count and time.monotonic() < deadline:
            entries += await _poll(consumer)
        if group is not None:
            await consumer.commit()
        await consumer.stop()
        return entries

    async def _share(self, topic: str, group: str, records: list[tuple[bytes, bytes]], partitions: int) -> Shared:
        consumers = [self._consumer(topic, group) for _ in range(2)]
        await asyncio.gather(*[consumer.start() for consumer in consumers])
        entries: list[Entry] = []
        owned = [0, 0]
        deadline = time.monotonic() + TIMEOUT_S

        async def poll() -> list[int]:
            for consumer in consumers:
                entries.extend(await _poll(consumer))
            return [len(consumer.assignment()) for consumer in consumers]

        while not (all(owned) and sum(owned) == partitions) and time.monotonic() < deadline:
            owned = await poll()
        await self._produce(topic, records, "none")
        while len(entries) < len(records) and time.monotonic() < deadline:
            await poll()
        for consumer in consumers:
            await consumer.commit()
        for consumer in consumers:
            await consumer.stop()
        return Shared(entries, owned)

    def _consumer(self, topic: str, group: str | None) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            **self.settings,
        )


async def _poll(consumer: AIOKafkaConsumer) -> list[Entry]:
    by_partition = await consumer.getmany(timeout_ms=POLL_MS)
    return [Entry(r.partition, r.offset, r.key, r.value) for records in by_partition.values() for r in records]

"""confluent-kafka: librdkafka from Python."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clients.family import TIMEOUT_S, Entry, Shared
from tests.peers.probe import wait_until


class Confluent:
    codecs: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
    settings: Mapping[str, Any] = {}
    """Settings of all its clients."""
    is_idempotent = True
    has_headers = True

    def __init__(self, bootstrap: str) -> None:
        self.common: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "broker.address.family": "v4",
            **self.settings,
        }

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = AdminClient(self.common)
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)
        wait_until(lambda: self._leaders(admin, topic) == partitions, what=f"leaders of {topic}", timeout_s=TIMEOUT_S)

    def delete_topic(self, topic: str) -> None:
        admin = AdminClient(self.common)
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def topics(self) -> set[str]:
        return set(AdminClient(self.common).list_topics(timeout=TIMEOUT_S).topics)

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        consumer = self._consumer(str(uuid.uuid4()))
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), TIMEOUT_S)[1] for p in range(partitions)]
        consumer.close()
        return ends

    def produce(self, topic: str, records: list[tuple[bytes, bytes]], codec: str = "none") -> None:
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        producer = Producer(
            {**self.common, "enable.idempotence": self.is_idempotent, "compression.type": codec, "linger.ms": 5}
        )
        headers: list[tuple[str, str | bytes | None]] | None = (
            [("codec", codec), ("null", None)] if self.has_headers else None
        )
        for key, value in records:
            producer.produce(topic, value, key, headers=headers, on_delivery=on_delivery)
        assert producer.flush(TIMEOUT_S) == 0
        assert not failures, failures[0]

    def consume(self, topic: str, count: int, group: str | None = None) -> list[Entry]:
        consumer = self._consumer(group or str(uuid.uuid4()))
        consumer.subscribe([topic])
        entries: list[Entry] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(entries) < count and time.monotonic() < deadline:
            entries += _entries(consumer.consume(count, 0.5))
        consumer.commit(asynchronous=False)
        consumer.close()
        return entries

    def share(self, topic: str, group: str, records: list[tuple[bytes, bytes]], partitions: int) -> Shared:
        consumers = [self._consumer(group) for _ in range(2)]
        for consumer in consumers:
            consumer.subscribe([topic])
        entries: list[Entry] = []
        owned = [0, 0]
        deadline = time.monotonic() + TIMEOUT_S

        def poll() -> list[int]:
            for consumer in consumers:
                entries.extend(_entries(consumer.consume(len(records), 0.1)))
            return [len(consumer.assignment()) for consumer in consumers]

        while not (all(owned) and sum(owned) == partitions) and time.monotonic() < deadline:
            owned = poll()
        self.produce(topic, records)
        while len(entries) < len(records) and time.monotonic() < deadline:
            poll()
        for consumer in consumers:
            consumer.commit(asynchronous=False)
        for consumer in consumers:
            consumer.close()
        return Shared(entries, owned)

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                **self.common,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 500,
                "check.crcs": True,
            }
        )

    @staticmethod
    def _leaders(admin: AdminClient, topic: str) -> int:
        metadata: Any = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
        return sum(partition.leader >= 0 for partition in metadata.partitions.values())


def _entries(messages: list[Message]) -> list[Entry]:
    entries: list[Entry] = []
    for message in messages:
        assert message.error() is None, message.error()
        partition, offset = message.partition(), message.offset()
        value: Any = message.value()  # None for a tombstone
        assert partition is not None
        assert offset is not None
        entries.append(Entry(partition, offset, message.key(), value))
    return entries

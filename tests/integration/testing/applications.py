"""An application on each of three clients, as another project has one; it repeats what its client does not."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka import KafkaError as ConfluentError
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonTopicPartition

TIMEOUT_S = 30
_PAUSE_S = 0.05

for name in ("aiokafka", "kafka"):
    logging.getLogger(name).setLevel(logging.CRITICAL)  # The faults are wanted.


class Application(Protocol):
    """Calls that return when they have succeeded, however often they have to be repeated."""

    client_id: str

    def send(self, topic: str, value: bytes) -> None:
        """Produce a record with acks=all."""

    def read(self, topic: str, count: int, group: str | None = None) -> list[bytes]:
        """Read the records of partition 0 from the beginning, or as the only member of a group."""

    def commit_in_transaction(self, topic: str, group: str, offset: int) -> None:
        """Commit an offset of partition 0 in a transaction."""


def repeat(work: Callable[[], Any], *errors: type[Exception]) -> Any:
    """The result of work that may fail with these errors, until it does not."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return work()
        except errors:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_PAUSE_S)


class Confluent:
    """confluent-kafka."""

    client_id = "confluent"

    def __init__(self, bootstrap: str) -> None:
        self._common: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": self.client_id,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "log_level": 0,
        }

    def send(self, topic: str, value: bytes) -> None:
        producer = Producer(self._common)

        def once() -> None:
            errors: list[ConfluentError] = []

            def delivered(error: ConfluentError | None, _: Message) -> None:
                if error is not None:
                    errors.append(error)

            producer.produce(topic, value, partition=0, on_delivery=delivered)
            assert producer.flush(TIMEOUT_S) == 0
            if errors:
                raise KafkaException(errors[0])

        repeat(once, KafkaException)

    def read(self, topic: str, count: int, group: str | None = None) -> list[bytes]:
        consumer = Consumer(
            {
                **self._common,
                "group.id": group or "none",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.error.backoff.ms": 10,
            }
        )
        if group is None:
            consumer.assign([TopicPartition(topic, 0, 0)])
        else:
            consumer.subscribe([topic])
        values: list[bytes] = []
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(values) < count and time.monotonic() < deadline_s:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        consumer.close()
        return values

    def commit_in_transaction(self, topic: str, group: str, offset: int) -> None:
        consumer = Consumer({**self._common, "group.id": group})
        metadata = consumer.consumer_group_metadata()
        producer = Producer({**self._common, "transactional.id": f"{self.client_id}-{topic}"})
        producer.init_transactions(TIMEOUT_S)

        def once() -> None:
            producer.begin_transaction()
            try:
                producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, TIMEOUT_S)
                producer.commit_transaction(TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    producer.abort_transaction(TIMEOUT_S)
                raise

        repeat(once, KafkaException)
        consumer.close()


class Python:
    """kafka-python."""

    client_id = "python"

    def __init__(self, bootstrap: str) -> None:
        self._common: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "client_id": self.client_id,
            "retry_backoff_ms": 20,
        }

    def send(self, topic: str, value: bytes) -> None:
        def once() -> None:
            producer = KafkaProducer(**self._common, acks="all")
            try:
                producer.send(topic, value, partition=0).get(TIMEOUT_S)
            finally:
                producer.close(timeout=1)

        repeat(once, PythonError)  # With another producer: this one may not continue after an error.

    def read(self, topic: str, count: int, group: str | None = None) -> list[bytes]:
        consumer = KafkaConsumer(**self._common, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False)
        if group is None:
            consumer.assign([PythonTopicPartition(topic, 0)])
        else:
            consumer.subscribe([topic])
        values: list[bytes] = []
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(values) < count and time.monotonic() < deadline_s:
            for records in repeat(lambda: consumer.poll(timeout_ms=100), PythonError).values():
                values += [record.value for record in records]
        consumer.close(autocommit=False)
        return values

    def commit_in_transaction(self, topic: str, group: str, offset: int) -> None:
        producer = KafkaProducer(**self._common, transactional_id=f"{self.client_id}-{topic}")
        producer.init_transactions()

        def once() -> None:
            producer.begin_transaction()
            try:
                position = {PythonTopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
                producer.send_offsets_to_transaction(position, group)
                producer.commit_transaction()
            except PythonError:
                producer.abort_transaction()
                raise

        repeat(once, PythonError)
        producer.close()


class AioKafka:
    """aiokafka."""

    client_id = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._common: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "client_id": self.client_id,
            "retry_backoff_ms": 20,
        }

    def send(self, topic: str, value: bytes) -> None:
        async def send() -> None:
            producer = AIOKafkaProducer(**self._common, acks="all")
            try:
                await _repeat(producer.start)  # The broker may be away.
                await _repeat(lambda: producer.send_and_wait(topic, value, partition=0))
            finally:
                await producer.stop()

        asyncio.run(send())

    def read(self, topic: str, count: int, group: str | None = None) -> list[bytes]:
        async def read() -> list[bytes]:
            consumer = AIOKafkaConsumer(
                **self._common, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
            )
            if group is None:
                consumer.assign([AioTopicPartition(topic, 0)])
            else:
                consumer.subscribe([topic])
            async with consumer:
                values: list[bytes] = []
                deadline_s = time.monotonic() + TIMEOUT_S
                while len(values) < count and time.monotonic() < deadline_s:
                    for records in (await _repeat(lambda: consumer.getmany(timeout_ms=100))).values():
                        values += [record.value for record in records]
                return values

        return asyncio.run(read())

    def commit_in_transaction(self, topic: str, group: str, offset: int) -> None:
        async def commit() -> None:
            producer = AIOKafkaProducer(**self._common, transactional_id=f"{self.client_id}-{topic}")
            async with producer:

                async def once() -> None:
                    async with producer.transaction():
                        await producer.send_offsets_to_transaction({AioTopicPartition(topic, 0): offset}, group)

                await _repeat(once)

        asyncio.run(commit())


async def _repeat(work: Callable[[], Any]) -> Any:
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return await work()
        except AioKafkaError:
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(_PAUSE_S)


APPLICATIONS: tuple[type[Confluent | Python | AioKafka], ...] = (Confluent, Python, AioKafka)

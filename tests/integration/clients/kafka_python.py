"""kafka-python: all of the protocol in Python, its consumers on threads.

A consumer of kafka-python 3.0.12 sometimes never returns from `poll`, on Apache Kafka's brokers too.  Its work is done
in threads that are left behind then, so that the test fails with that reason and later tests run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from tests.integration.clients.family import TIMEOUT_S, Entry, Shared

POLL_MS = 100
RETURN_TIMEOUT_S = TIMEOUT_S + 30

Result = TypeVar("Result")


def in_thread(work: Callable[[], Result]) -> Future[Result]:
    """The outcome of `work`, on a thread that does not keep the process alive."""
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


def returned(outcome: Future[Result]) -> Result:
    """The result; raises TimeoutError if kafka-python does not return."""
    try:
        return outcome.result(RETURN_TIMEOUT_S)
    except FutureTimeoutError:
        raise TimeoutError(f"kafka-python's consumer has not returned within {RETURN_TIMEOUT_S:g} s") from None


class KafkaPython:
    codecs: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
    settings: Mapping[str, Any] = {}
    """Settings of all its clients."""
    has_headers = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap, **self.settings)
        admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}})
        admin.close()

    def delete_topic(self, topic: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap, **self.settings)
        admin.delete_topics([topic])
        admin.close()

    def produce(self, topic: str, records: list[tuple[bytes, bytes]], codec: str = "none") -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all",
            linger_ms=5,
            compression_type=None if codec == "none" else codec,
            **self.settings,
        )
        headers = [("codec", codec.encode())] if self.has_headers else None
        futures = [producer.send(topic, value, key, headers=headers) for key, value in records]
        producer.flush(TIMEOUT_S)
        for future in futures:
            future.get(TIMEOUT_S)
        producer.close()

    def consume(self, topic: str, count: int, group: str | None = None) -> list[Entry]:
        return returned(in_thread(lambda: self._consume(topic, count, group)))

    def _consume(self, topic: str, count: int, group: str | None) -> list[Entry]:
        consumer = self._consumer(topic, group)
        entries: list[Entry] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(entries) < count and time.monotonic() < deadline:
            entries += _poll(consumer)
        if group is not None:
            consumer.commit()
        consumer.close()
        return entries

    def share(self, topic: str, group: str, records: list[tuple[bytes, bytes]], partitions: int) -> Shared:
        together = threading.Barrier(3, timeout=TIMEOUT_S)  # the members and the producer are synchronised
        entries: list[Entry] = []
        owned = [0, 0]

        def member(index: int) -> None:
            consumer = self._consumer(topic, group)
            deadline = time.monotonic() + TIMEOUT_S
            while not (all(owned) and sum(owned) == partitions) and time.monotonic() < deadline:
                entries.extend(_poll(consumer))
                owned[index] = len(consumer.assignment())
            together.wait()
            while len(entries) < len(records) and time.monotonic() < deadline:
                entries.extend(_poll(consumer))
            consumer.commit()
            together.wait()
            consumer.close()

        members = [in_thread(partial(member, index)) for index in range(2)]
        together.wait()
        self.produce(topic, records)
        together.wait()
        for ended in members:
            returned(ended)
        return Shared(entries, owned)

    def _consumer(self, topic: str, group: str | None) -> KafkaConsumer:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            **self.settings,
        )
        # A leader that does not have the topic in its metadata assigns nothing, and may not notice it later.
        assert consumer.partitions_for_topic(topic)
        return consumer


def _poll(consumer: KafkaConsumer) -> list[Entry]:
    by_partition = consumer.poll(timeout_ms=POLL_MS)
    return [Entry(r.partition, r.offset, r.key, r.value) for records in by_partition.values() for r in records]

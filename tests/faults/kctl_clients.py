"""The clients of kctl.client during the faults, beside those of librdkafka and Java in tests/faults/workload.py."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

from kctl.client import (
    BlockingRebalanceListener,
    CommitFailed,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    RecordMetadata,
    TopicPartition,
)
from kctl.errors import ApiError, ClusterUnreachable, KctlError
from tests.faults.workload import END_TIMEOUT_S, Acknowledgements, Group, WorkloadClient

NEVER_MS = 600_000


class KctlProducer(WorkloadClient):
    """An idempotent producer that numbers its records per partition."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, rate: int, request_timeout_ms: int = 5_000
    ) -> None:
        super().__init__("kctl")
        self.acknowledged = Acknowledgements(partitions)
        self.sent = [0] * partitions
        self._errors: deque[str] = deque(maxlen=20)
        self._topic = topic
        self._pause_s = 1 / rate
        config = ProducerConfig(
            bootstrap_servers=bootstrap,
            delivery_timeout_ms=NEVER_MS,
            max_block_ms=NEVER_MS,
            request_timeout_ms=request_timeout_ms,
            reconnect_backoff_max_ms=500,
            metadata_max_age_ms=1_000,
        )
        self._producer = Producer(config)
        self._producer.__enter__()

    def metrics(self) -> dict[str, float]:
        return self._producer.metrics()

    def close(self) -> None:
        self._producer.close(timeout_ms=1)

    def last_messages(self) -> str:
        return f"{list(self._errors)} {self._producer.metrics()}"

    def _work(self) -> None:
        partition = min(range(len(self.sent)), key=self.sent.__getitem__)
        value = b"%s %d" % (self.name.encode(), self.sent[partition])
        future = self._producer.send(self._topic, value, key=b"%d" % partition, partition=partition)
        self.sent[partition] += 1
        future.add_done_callback(lambda done: self._reported(done, value))
        time.sleep(self._pause_s)

    def _reported(self, done: Future[RecordMetadata], value: bytes) -> None:
        if error := done.exception():
            self._errors.append(f"{time.strftime('%X')} {error}")
            self.complaints.append(f"{self.name} cannot deliver: {error}")
            return
        stored = done.result()
        if complaint := self.acknowledged.add(stored.partition, stored.offset, value):
            self.complaints.append(complaint)

    def _finish(self) -> None:
        self._producer.flush(timeout_ms=END_TIMEOUT_S * 1_000)


class KctlMember(WorkloadClient):
    """A member, beside those of librdkafka, of the group whose reads and commits are checked."""

    def __init__(self, bootstrap: str, topic: str, group: Group, number: int) -> None:
        super().__init__(f"member {number} of kctl")
        self._group = group
        self._assigned_at: dict[int, int] = {}
        self._topic = topic
        self._consumer = Consumer(
            ConsumerConfig(
                bootstrap_servers=bootstrap,
                group_id="members",
                assignors=("range",),
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=10_000,
                heartbeat_interval_ms=1_000,
                fetch_max_wait_ms=100,
                request_timeout_ms=5_000,
                metadata_max_age_ms=1_000,
            )
        )

    def run(self) -> None:
        with self._consumer:
            self._consumer.subscribe([self._topic], _Listener(self))
            super().run()

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        with self._group.lock:
            self._group.rebalances += 1
            self._assigned_at = {tp.partition: self._group.committed[tp.partition] for tp in partitions}

    def _work(self) -> None:
        try:
            records = self._consumer.poll(100)
        except ClusterUnreachable:  # none has responded since the start
            return
        positions: dict[TopicPartition, int] = {}
        for record in records:
            with self._group.lock:
                at = self._assigned_at.pop(record.partition, 0)
                self.complaints += self._group.take(self.name, record.partition, record.offset, committed=at)
            positions[TopicPartition(record.topic, record.partition)] = record.offset + 1
        if positions:
            self._commit(positions)

    def _commit(self, positions: dict[TopicPartition, int]) -> None:
        try:
            self._consumer.commit(positions, timeout_ms=5_000)
        except (CommitFailed, ApiError, KctlError):
            return  # A rebalance, or an unavailable coordinator: the next commit is later.
        with self._group.lock:
            for tp, offset in positions.items():
                self._group.committed[tp.partition] = max(offset, self._group.committed[tp.partition])


class _Listener(BlockingRebalanceListener):
    def __init__(self, member: KctlMember) -> None:
        self._member = member

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._member.assigned(partitions)

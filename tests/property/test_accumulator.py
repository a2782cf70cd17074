"""The rules of batches and sequence numbers against a broker that checks them: each record once, in order.

The broker refuses wrong sequence numbers and recognises the last five batches, as Kafka's ProducerStateManager does.
Requests and responses are lost, come late and are refused at random.
"""

from __future__ import annotations

import random
from collections import deque

import pytest

from kctl.client.producing.accumulator import NOT_IDEMPOTENT, Accumulator, Decision, Limits, PartitionQueue
from kctl.client.producing.batches import Batch
from kctl.errors import ApiError, ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.property.examples import share_of
from tests.unit.client.fake_cluster import FakePartition

TP = TopicPartition("orders", 0)
RECORDS = 200
PASSING = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT)


class World:
    """A producer and the leader of one partition; a request arrives after those before it on the connection."""

    def __init__(
        self,
        seed: int,
        *,
        idempotent: bool,
        timeout_ms: int,
        losses: float,
        batch_max: int,
        has_delivery_timeout: bool = True,
    ) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 0
        self.log = FakePartition(0)
        self.losses = losses
        self.batch_max = batch_max
        self.acknowledged: list[bytes] = []
        self.failed: list[bytes] = []
        self.connection: deque[tuple[PartitionQueue, Batch, bytes]] = deque()
        limits = Limits(
            linger_ms=3,
            batch_bytes=200,
            batch_records=5,
            buffered_records_max=60,
            buffered_bytes_max=1 << 20,
            delivery_timeout_ms=timeout_ms if has_delivery_timeout else None,
            attempt_timeout_ms=timeout_ms,
            retries=None,
            in_flight_max=5,
            request_bytes_max=1 << 20,
        )
        self.accumulator = Accumulator(limits, ProducerIdAndEpoch(7, 0) if idempotent else NOT_IDEMPOTENT)

    def play(self) -> list[bytes]:
        """The values in the log at the end."""
        number = 0
        while number < RECORDS or self.accumulator.buffered_records:
            self.now_ms += 1
            for _ in range(self.chance.randrange(4)):
                if number < RECORDS and self.accumulator.has_room:
                    record = Record(0, 0, None, b"%04d" % number)
                    self.accumulator.append(TP, record, 28, None, lambda: self.now_ms)
                    number += 1
            plan = self.accumulator.step(self.now_ms, lambda _: 0, lambda _: 5 - len(self.connection))
            for _, batch in plan.expired:
                self.failed += [record[3] or b"" for record in batch.records]
            for _, batches in plan.requests:
                ((queue, batch),) = batches
                self.connection.append((queue, batch, self._encoded(batch)))
            if plan.needs_producer_id:
                self.accumulator.producer = ProducerIdAndEpoch(8, 0)
            if self.connection and self.chance.random() < 0.5:
                self._respond()
            assert self.now_ms < 1_000_000, "it ends"
        return [record.value or b"" for record in _records(self.log)]

    def _respond(self) -> None:
        if self.chance.random() < self.losses:  # the connection: of what was sent, the first requests have arrived
            lost = list(self.connection)
            self.connection.clear()
            for _, batch, data in lost[: self.chance.randrange(len(lost) + 1)]:
                if len(batch.records) <= self.batch_max:
                    self.log.produce(data)
            for queue, batch, _ in lost:
                self._refused(queue, batch, ErrorCode.NETWORK_EXCEPTION)
            return
        queue, batch, data = self.connection.popleft()
        if len(batch.records) > self.batch_max:
            self._refused(queue, batch, ErrorCode.MESSAGE_TOO_LARGE)
        elif self.chance.random() < self.losses:
            self._refused(queue, batch, self.chance.choice(PASSING))
        else:
            code, _ = self.log.produce(data)
            if code:
                self._refused(queue, batch, ErrorCode.of(code))
            elif self.accumulator.acknowledged(queue, batch):
                self.acknowledged += [record[3] or b"" for record in batch.records]

    def _refused(self, queue: PartitionQueue, batch: Batch, code: ErrorCode) -> None:
        decision = self.accumulator.refused(queue, batch, ApiError(code), self.now_ms + self.chance.randrange(20))
        if decision is Decision.FAIL:
            self.failed += [record[3] or b"" for record in batch.records]

    def _encoded(self, batch: Batch) -> bytes:
        producer = batch.producer or NOT_IDEMPOTENT
        return build_batch(
            batch.records,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=batch.base_sequence,
        )


def _records(log: FakePartition) -> list[Record]:
    from kctl.records.batch import iterate_batches, iterate_records  # noqa: PLC0415 - only here

    data = bytes(log.data)
    return [record for header in iterate_batches(data) for record in iterate_records(data, header)]


@pytest.mark.long
@pytest.mark.parametrize("losses", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("batch_max", [2, 5])
def test_each_record_is_written_once_and_in_order(losses: float, batch_max: int) -> None:
    for seed in range(share_of(60)):
        world = World(seed, idempotent=True, timeout_ms=10**9, losses=losses, batch_max=batch_max)
        expected = [b"%04d" % number for number in range(RECORDS)]
        assert world.play() == expected, seed
        assert sorted(world.acknowledged) == expected, seed
        assert not world.failed, seed


def test_records_that_time_out_may_be_missing_and_the_others_are_written_once_in_order() -> None:
    for seed in range(share_of(150)):
        world = World(seed, idempotent=True, timeout_ms=60, losses=0.4, batch_max=4, has_delivery_timeout=seed % 3 > 0)
        values = world.play()
        assert values == sorted(set(values)), seed
        assert set(world.acknowledged) <= set(values), seed
        assert not set(world.acknowledged) & set(world.failed), seed
        assert len(world.acknowledged) + len(world.failed) == RECORDS, seed
        assert world.accumulator.buffered_bytes == 0, seed


def test_order_is_kept_without_idempotence() -> None:
    for seed in range(share_of(40)):
        world = World(seed, idempotent=False, timeout_ms=10**9, losses=0.3, batch_max=5)
        values = world.play()
        assert list(dict.fromkeys(values)) == [b"%04d" % number for number in range(RECORDS)], seed


def test_what_waits_behind_a_batch_fails_with_it_if_only_the_attempts_have_a_time() -> None:
    """Otherwise the records of a partition without a leader fail one batch after the other, each after a timeout."""
    world = World(1, idempotent=True, timeout_ms=1_000, losses=0, batch_max=5, has_delivery_timeout=False)
    accumulator = world.accumulator
    for number in range(50):
        accumulator.append(TP, Record(0, 0, None, b"%d" % number), 28, None, lambda: world.now_ms)
    for world.now_ms in (10, 1_009):
        plan = accumulator.step(world.now_ms, lambda _: -1, lambda _: 5)
        assert (plan.expired, plan.leaderless) == ([], {TP.topic})
    assert plan.next_ms == 1_010
    world.now_ms = 1_010
    plan = accumulator.step(world.now_ms, lambda _: -1, lambda _: 5)
    assert sum(len(batch.records) for _, batch in plan.expired) == 50
    assert accumulator.buffered_bytes == 0

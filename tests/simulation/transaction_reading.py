"""Reads the transactions of a log sequentially from its start, as a reference.

Nothing is shared with kctl.storage.state.producer_state or the transaction index, which this judges: where the last
stable offset is, what aborted, and whether a producer that was shut out ever got something in.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from kctl.model import GROUP_METADATA_TOPIC, TopicPartition
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.header import BatchHeader
from kctl.server.replication.partition import Partition
from kctl.storage.log.log import Log
from kctl.testing.sim_cluster import SimCluster

_READ_BYTES = 1 << 20
_MARKER_KEY = struct.Struct(">hh")
_COMMIT = 1
_SEQUENCES = 1 << 31
EDGES_MAX = 10
"""The number of offsets of aborted transactions at which a reader starts and stops."""


class Aborted(NamedTuple):
    """An aborted transaction as the index of a segment has it."""

    producer_id: int
    first_offset: int
    marker_offset: int
    last_stable_offset: int


class Ended(NamedTuple):
    """A transaction with its marker."""

    first_offset: int
    marker_offset: int


class TransactionReading:
    """A log up to `end`.  `take_in` raises AssertionError where a producer that was shut out, or is late, appended."""

    def __init__(self) -> None:
        self.end = 0
        self.open: dict[int, int] = {}
        """First offset by producer id."""
        self.ended: list[Ended] = []
        self.aborted: list[Aborted] = []
        self.committed: dict[int, bytes] = {}
        """The values that read_committed readers get, by offset."""
        self._undecided: dict[int, dict[int, bytes]] = {}
        self._epochs: dict[int, int] = {}
        self._sequences: dict[int, int] = {}

    def read(self, log: Log, *, is_from_clients: bool) -> None:
        """Reads on to the end of the log."""
        while self.end < log.log_end_offset:
            buffer = memoryview(log.read(self.end, _READ_BYTES, max_offset=log.log_end_offset).read())
            assert buffer, f"nothing to read at {self.end} of {log.log_end_offset}"
            for header in iterate_batches(buffer):
                if header.producer_id >= 0:
                    self._take_in(buffer, header, is_from_clients=is_from_clients)
                self.end = header.next_offset

    def unstable_from(self, high_watermark: int) -> int:
        """The offset at which read_committed readers have to stop."""
        waiting = [
            transaction.first_offset for transaction in self.ended if transaction.marker_offset >= high_watermark
        ]
        return min([high_watermark, *self.open.values(), *waiting])

    def aborted_between(self, start: int, end: int) -> list[Aborted]:
        """The aborted transactions that a reader of `start` to `end` needs."""
        return [
            transaction
            for transaction in self.aborted
            if transaction.first_offset < end and transaction.marker_offset >= start
        ]

    def _take_in(self, buffer: memoryview, header: BatchHeader, *, is_from_clients: bool) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        known = self._epochs.get(producer_id, -1)
        who = f"producer {producer_id} of epoch {epoch} at {header.base_offset}"
        assert epoch >= known, f"{who}: epoch {known} had shut it out"
        if epoch > known:
            self._sequences.pop(producer_id, None)
            self._epochs[producer_id] = epoch
        if header.is_control:
            self._end(buffer, header)
            return
        if is_from_clients:
            assert header.base_sequence == self._sequences.get(producer_id, 0), f"{who}: twice, or one is missing"
            self._sequences[producer_id] = (header.last_sequence + 1) % _SEQUENCES
        values = {record.offset: record.value or b"" for record in iterate_records(buffer, header)}
        if not header.is_transactional:
            assert producer_id not in self.open, f"{who}: outside of its transaction"
            self.committed.update(values)
            return
        self.open.setdefault(producer_id, header.base_offset)
        self._undecided.setdefault(producer_id, {}).update(values)

    def _end(self, buffer: memoryview, header: BatchHeader) -> None:
        (record,) = iterate_records(buffer, header)
        _, kind = _MARKER_KEY.unpack_from(record.key or b"")
        first_offset = self.open.pop(header.producer_id, None)
        values = self._undecided.pop(header.producer_id, {})
        if first_offset is None:
            return
        self.ended.append(Ended(first_offset, header.base_offset))
        if kind == _COMMIT:
            self.committed.update(values)
            return
        stable = min(self.open.values(), default=header.next_offset)
        self.aborted.append(Aborted(header.producer_id, first_offset, header.base_offset, stable))


@dataclass(slots=True)
class _Leadership:
    """A partition as its leader of one epoch had it when it was last looked at."""

    leader_epoch: int
    reading: TransactionReading
    high_watermark: int = -1
    last_stable_offset: int = 0


class TransactionInvariants:
    """`look` is for SimLoop.on_step: at every moment the leaders' last stable offsets equal those of a full reading."""

    def __init__(self, cluster: SimCluster, topic: str) -> None:
        self._cluster = cluster
        self._topics = {topic, GROUP_METADATA_TOPIC}
        self._client_topic = topic
        self._led: dict[Partition, _Leadership] = {}

    def look(self) -> None:
        for running in self._cluster.brokers.values():
            broker = running.broker
            if not running.is_running or broker is None or broker.replicas is None:
                continue
            for topic_partition, partition in broker.replicas.partitions.items():
                if partition.is_leader and topic_partition.topic in self._topics:
                    self._judge(topic_partition, partition)

    def _judge(self, topic_partition: TopicPartition, partition: Partition) -> None:
        seen = self._led.get(partition)
        if seen is None or seen.leader_epoch != partition.leader_epoch:
            seen = self._led[partition] = _Leadership(partition.leader_epoch, TransactionReading())
        if (seen.reading.end, seen.high_watermark) == (partition.log.log_end_offset, partition.high_watermark):
            return
        seen.reading.read(partition.log, is_from_clients=topic_partition.topic == self._client_topic)
        seen.high_watermark = partition.high_watermark
        who = f"{topic_partition} on broker {partition.broker_id} in leader epoch {partition.leader_epoch}"
        stable = partition.last_stable_offset
        assert stable == seen.reading.unstable_from(partition.high_watermark), f"{who}: last stable offset {stable}"
        assert stable >= seen.last_stable_offset, f"{who}: last stable offset moved back"
        seen.last_stable_offset = stable


def check_log(log: Log, *, is_from_clients: bool) -> TransactionReading:
    """At rest: no transaction is open, and the indexes have exactly the aborted ones, from and up to any offset."""
    reading = TransactionReading()
    reading.read(log, is_from_clients=is_from_clients)
    who = f"{log.topic_partition}"
    assert not reading.open, f"{who}: transactions of {list(reading.open)} hang"
    indexed = [entry for segment in log._segments.all() for entry in segment.transaction_index.entries()]
    assert [tuple(entry) for entry in indexed] == reading.aborted, (who, [tuple(e) for e in indexed], reading.aborted)
    offsets = sorted({offset for transaction in reading.aborted for offset in transaction[1:3]})
    edges = [0, *offsets[:: len(offsets) // EDGES_MAX + 1], log.log_end_offset]
    for start in edges:
        for end in (offset for edge in edges for offset in (edge, edge + 1) if offset > start):
            reported = [tuple(transaction) for transaction in log.aborted_transactions(start, end)]
            assert reported == reading.aborted_between(start, end), f"{who}: aborted in [{start}, {end})"
    return reading

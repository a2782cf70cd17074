"""Invariants of a cluster, checked from outside at every step of a simulation.

    cluster.loop.on_step = Invariants(cluster).look

- A leader epoch of a partition has one leader.  - Within a leader epoch the leader's high watermark never moves back,
and no high watermark is beyond a log's end.  - What one replica has below its high watermark all have below theirs at
any later time: the committed history.  - A new leader has the whole committed history.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kctl.model import TopicPartition
from kctl.records.batch import iterate_batches
from kctl.server.replication.partition import Partition
from kctl.testing.sim_cluster import SimCluster

_READ_BYTES = 1 << 20


@dataclass(slots=True)
class _History:
    """The batches of one partition that are committed, by base offset."""

    end: int = 0
    batches: dict[int, bytes] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    """Broker by leader epoch."""


@dataclass(slots=True)
class _Seen:
    """A partition on one broker as it was when last looked at."""

    leader_epoch: int
    high_watermark: int
    is_leader: bool


class Invariants:
    """`look` raises AssertionError; it reads only what is new."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._histories: dict[TopicPartition, _History] = {}
        self._seen: dict[tuple[int, Partition], _Seen] = {}
        self.looks = 0

    def look(self) -> None:
        self.looks += 1
        for broker_id, running in self._cluster.brokers.items():
            broker = running.broker
            if not running.is_running or broker is None or broker.replicas is None:
                continue
            for topic_partition, partition in broker.replicas.partitions.items():
                seen = self._seen.get((broker_id, partition))
                now = _Seen(partition.leader_epoch, partition.high_watermark, partition.is_leader)
                if now != seen:
                    self._judge(broker_id, topic_partition, partition, seen, now)
                    self._seen[broker_id, partition] = now

    def _judge(
        self, broker_id: int, topic_partition: TopicPartition, partition: Partition, seen: _Seen | None, now: _Seen
    ) -> None:
        who = f"{topic_partition} on broker {broker_id} in leader epoch {now.leader_epoch}"
        history = self._histories.setdefault(topic_partition, _History())
        assert now.high_watermark <= partition.log.log_end_offset, f"{who}: high watermark behind the end"
        verified = seen.high_watermark if seen is not None else 0
        if now.is_leader:
            leader = history.leaders.setdefault(now.leader_epoch, broker_id)
            assert leader == broker_id, f"{who}: broker {leader} leads in that epoch, too"
            is_new = seen is None or not seen.is_leader or seen.leader_epoch != now.leader_epoch
            if is_new:
                assert partition.log.log_end_offset >= history.end, f"{who}: the new leader lacks committed records"
                self._compare(who, history, partition, 0, history.end)
            elif seen is not None:
                assert now.high_watermark >= seen.high_watermark, f"{who}: high watermark moved back"
        if now.high_watermark > verified:
            self._compare(who, history, partition, verified, now.high_watermark)

    def _compare(self, who: str, history: _History, partition: Partition, start: int, end: int) -> None:
        """What the replica has from `start` to `end` is the committed history; what is new becomes part of it."""
        position = start
        while position < end:
            data = partition.log.read(position, _READ_BYTES, max_offset=end)
            buffer = memoryview(data.read())
            assert buffer, f"{who}: nothing to read at {position}, though {end} is committed"
            for header in iterate_batches(buffer):
                batch = bytes(buffer[header.position : header.position + header.size])
                known = history.batches.setdefault(header.base_offset, batch)
                assert known == batch, f"{who}: other records at {header.base_offset} than were committed there"
                position = header.last_offset + 1
        history.end = max(history.end, end)

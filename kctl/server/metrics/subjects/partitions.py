"""Partition and Log: the metrics of each replica of this broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter

from kctl.metrics.definitions import Definition, Family, Kind, escaped
from kctl.model import TopicPartition
from kctl.server.metrics.sources import Sources
from kctl.server.replication.partition import Partition
from kctl.storage.log.log import Log

_LABELS = ("topic", "partition")
_PARTITIONS_PER_SLICE = 500
"""Partitions that are listed, in less than 0.5 ms, before other work may be done."""


def _partition(name: str, unit: str, doc: str) -> Definition:
    return Definition("kafka.cluster", "Partition", name, Kind.GAUGE, unit, doc, _LABELS)


def _log(name: str, unit: str, doc: str) -> Definition:
    return Definition("kafka.log", "Log", name, Kind.GAUGE, unit, doc, _LABELS)


UNDER_REPLICATED = _partition("UnderReplicated", "bool", "1 if this broker leads it and a replica is not in sync")
IN_SYNC = _partition("InSyncReplicasCount", "replicas", "In-sync replicas if this broker leads it, else 0")
REPLICAS = _partition("ReplicasCount", "replicas", "Replicas if this broker leads it, else 0")
STABLE_LAG = _partition(
    "LastStableOffsetLag", "records", "High watermark minus last stable offset: records of open transactions"
)
UNDER_MIN_ISR = _partition("UnderMinIsr", "bool", "1 if this broker leads it and min.insync.replicas are not in sync")
AT_MIN_ISR = _partition("AtMinIsr", "bool", "1 if this broker leads it and just min.insync.replicas are in sync")
SIZE = _log("Size", "bytes", "Size of the log's batches")
SEGMENTS = _log("NumLogSegments", "segments", "Segments of the log")
START_OFFSET = Definition("kafka.log", "Log", "LogStartOffset", Kind.GAUGE, "offset", "First offset", _LABELS)
END_OFFSET = Definition(
    "kafka.log", "Log", "LogEndOffset", Kind.GAUGE, "offset", "Offset after the last record", _LABELS
)
DEFINITIONS = (
    UNDER_REPLICATED,
    IN_SYNC,
    REPLICAS,
    STABLE_LAG,
    UNDER_MIN_ISR,
    AT_MIN_ISR,
    SIZE,
    SEGMENTS,
    START_OFFSET,
    END_OFFSET,
)


class PartitionLabels:
    """The label texts of partitions, kept between scrapes."""

    def __init__(self) -> None:
        self._texts: dict[TopicPartition, str] = {}

    def of(self, topic_partition: TopicPartition) -> str:
        """`topic="...",partition="..."`."""
        text = self._texts.get(topic_partition)
        if text is None:
            topic, partition = topic_partition
            text = self._texts[topic_partition] = f'topic="{escaped(topic)}",partition="{partition}"'
        return text

    def keep(self, count: int) -> None:
        """Remove all texts when there are many more than `count` partitions."""
        if len(self._texts) > 2 * count + 1000:
            self._texts.clear()


def families(sources: Sources, labels: PartitionLabels) -> Iterator[Family | None]:
    """Yield the values of each partition; None is a point at which other work may be done.

    The label is_future marks a copy that is being made in another log directory.
    """
    replicas = sources.parts.replicas
    # Lists of texts and of partitions: pairs would be thousands of objects for the garbage collector.
    partitions = list(replicas.partitions.values())
    names: list[str] = []
    leads: list[bool] = []
    min_isr: dict[str, int] = {}
    for partition in partitions:
        if len(names) % _PARTITIONS_PER_SLICE == 0:
            yield None
        tp = partition.topic_partition
        names.append(labels.of(tp))
        leads.append(partition.is_leader)
        if tp.topic not in min_isr:
            min_isr[tp.topic] = replicas.min_insync_replicas(tp.topic)
    labels.keep(len(partitions))

    def led(value_of: Callable[[Partition], int]) -> Iterator[tuple[str, int]]:
        """Yield the value of each partition that this broker leads, 0 for the others."""
        for name, partition, is_led in zip(names, partitions, leads, strict=True):
            yield name, value_of(partition) if is_led else 0

    def missing(partition: Partition) -> int:
        """min.insync.replicas that are not in sync; negative if more are."""
        return min_isr[partition.topic_partition.topic] - len(partition.isr)

    yield Family(UNDER_REPLICATED, led(lambda partition: int(len(partition.isr) < len(partition.replicas))))
    yield Family(IN_SYNC, led(lambda partition: len(partition.isr)))
    yield Family(REPLICAS, led(lambda partition: len(partition.replicas)))
    yield Family(STABLE_LAG, led(lambda partition: partition.high_watermark - partition.last_stable_offset))
    yield Family(UNDER_MIN_ISR, led(lambda partition: int(missing(partition) > 0)))
    yield Family(AT_MIN_ISR, led(lambda partition: int(missing(partition) == 0)))
    yield from _of_logs(sources, labels)


def _of_logs(sources: Sources, labels: PartitionLabels) -> Iterator[Family | None]:
    names: list[str] = []
    logs: list[Log] = []
    managed = sources.base.logs
    for found, more in ((managed.logs, ""), (managed.futures.logs, ',is_future="true"')):
        for log in list(found.values()):
            if len(names) % _PARTITIONS_PER_SLICE == 0:
                yield None
            names.append(labels.of(log.topic_partition) + more)
            logs.append(log)

    def each(attribute: str) -> Iterator[tuple[str, int]]:
        return zip(names, map(attrgetter(attribute), logs), strict=True)

    yield Family(START_OFFSET, each("log_start_offset"))
    yield Family(END_OFFSET, each("log_end_offset"))
    yield Family(SIZE, each("size_bytes"))
    yield Family(SEGMENTS, each("segment_count"))

"""Partition and Log: the metrics of each replica of this broker."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from kctl.model import TopicPartition
from kctl.server.metrics.definitions import Definition, Family, Kind, escaped
from kctl.server.metrics.sources import Sources
from kctl.storage.log import Log

_LABELS = ("topic", "partition")


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
        """Removes all texts when there are many more than `count` partitions."""
        if len(self._texts) > 2 * count + 1000:
            self._texts.clear()


def families(sources: Sources, labels: PartitionLabels) -> Iterator[Family | None]:
    """The values of each partition; None is a point at which other work may be done.

    The label is_future marks a copy that is being made in another log directory.
    """
    replicas = sources.parts.replicas
    partitions = [(labels.of(tp), partition) for tp, partition in replicas.partitions.items()]
    labels.keep(len(partitions))
    yield None
    min_isr: dict[str, int] = {}
    for _, partition in partitions:
        tp = partition.topic_partition
        if tp.topic not in min_isr:
            min_isr[tp.topic] = replicas.min_insync_replicas(tp.topic)

    def missing(partition: object) -> int:
        """min.insync.replicas that are not in sync; negative if more are."""
        return min_isr[partition.topic_partition.topic] - len(partition.isr)  # type: ignore[attr-defined]

    yield None
    led = [(text, p, p.is_leader) for text, p in partitions]
    yield None
    yield Family(UNDER_REPLICATED, ((t, int(leads and len(p.isr) < len(p.replicas))) for t, p, leads in led))
    yield Family(IN_SYNC, ((t, len(p.isr) if leads else 0) for t, p, leads in led))
    yield Family(REPLICAS, ((t, len(p.replicas) if leads else 0) for t, p, leads in led))
    yield Family(STABLE_LAG, ((t, p.high_watermark - p.last_stable_offset if leads else 0) for t, p, leads in led))
    yield Family(UNDER_MIN_ISR, ((t, int(leads and missing(p) > 0)) for t, p, leads in led))
    yield Family(AT_MIN_ISR, ((t, int(leads and missing(p) == 0)) for t, p, leads in led))
    logs = sources.base.logs
    rows: list[tuple[str, Log]] = [(labels.of(tp), log) for tp, log in logs.logs.items()]
    future = [(labels.of(tp) + ',is_future="true"', log) for tp, log in logs.futures.logs.items()]
    for definition, attribute in ((START_OFFSET, "log_start_offset"), (END_OFFSET, "log_end_offset")):
        yield Family(definition, ((text, getattr(log, attribute)) for text, log in chain(rows, future)))
    yield Family(SIZE, ((text, log.size_bytes) for text, log in chain(rows, future)))
    yield Family(SEGMENTS, ((text, log.segment_count) for text, log in chain(rows, future)))

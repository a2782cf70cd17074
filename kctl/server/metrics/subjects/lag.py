"""The metrics of kafka_exporter, under its names: partitions of the cluster, and the lag of consumer groups.

https://github.com/danielqsj/kafka_exporter; the names with `seconds` and `verdict` are additions.

Values are gathered in lists of numbers and texts: thousands of objects for each scrape would cause garbage collections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kctl.admin.groups.lag import ClusterLag, PartitionSummary
from kctl.lag.rules import GroupLag, Verdict
from kctl.metrics.definitions import Definition, Family, Kind, Row, escaped, label_text, single
from kctl.model import NO_LEADER, TopicPartition

_OF_PARTITION = ("topic", "partition")
_OF_GROUP = ("consumergroup", "topic", "partition")
_SUM = ("consumergroup", "topic")
_VERDICTS = ", ".join(f"{verdict.value} {verdict.name}" for verdict in Verdict)


def _gauge(type_: str, name: str, unit: str, doc: str, labels: tuple[str, ...] = ()) -> Definition:
    return Definition("kafka", type_, name, Kind.GAUGE, unit, doc, labels)


BROKERS = _gauge("", "brokers", "brokers", "Live brokers of the cluster")
BROKER_INFO = _gauge("", "broker_info", "1", "Always 1; the labels are id and address", ("id", "address"))
TOPIC_PARTITIONS = _gauge("topic", "partitions", "partitions", "Partitions of the topic", ("topic",))
CURRENT_OFFSET = _gauge("topic", "partition_current_offset", "offset", "High watermark", _OF_PARTITION)
OLDEST_OFFSET = _gauge("topic", "partition_oldest_offset", "offset", "First offset", _OF_PARTITION)
LEADER = _gauge("topic", "partition_leader", "broker", "Id of the leader", _OF_PARTITION)
REPLICAS = _gauge("topic", "partition_replicas", "replicas", "Replicas", _OF_PARTITION)
IN_SYNC = _gauge("topic", "partition_in_sync_replica", "replicas", "In-sync replicas", _OF_PARTITION)
PREFERRED = _gauge(
    "topic", "partition_leader_is_preferred", "bool", "1 if the first replica is the leader", _OF_PARTITION
)
UNDER_REPLICATED = _gauge(
    "topic", "partition_under_replicated_partition", "bool", "1 if a replica is not in sync", _OF_PARTITION
)
MEMBERS = _gauge("consumergroup", "members", "members", "Members of the group", ("consumergroup",))
COMMITTED = _gauge("consumergroup", "current_offset", "offset", "Committed offset", _OF_GROUP)
COMMITTED_SUM = _gauge("consumergroup", "current_offset_sum", "offset", "Sum of the committed offsets", _SUM)
LAG = _gauge("consumergroup", "lag", "records", "Unread records", _OF_GROUP)
LAG_SUM = _gauge("consumergroup", "lag_sum", "records", "Unread records in all partitions of the topic", _SUM)
LAG_SECONDS = _gauge(
    "consumergroup",
    "lag_seconds",
    "s",
    "Age of the first unread record, 0 without lag; missing where the record has no timestamp",
    _OF_GROUP,
)
VERDICT = _gauge("consumergroup", "verdict", "1", f"The worst verdict of the group: {_VERDICTS}", ("consumergroup",))
TIME_LEFT = _gauge(
    "consumergroup",
    "time_left_seconds",
    "s",
    "Time until unread records may be deleted, if there is a limit",
    _OF_GROUP,
)
FAILURES = _gauge("exporter", "failures", "errors", "Brokers and groups with an error in this collection")
_PARTITIONS_PER_SLICE = 100
"""Partitions whose values are gathered, in 0.3 ms, before the next look at the clock."""
_FREED_PER_SLICE = 2_000
PER_PARTITION = (CURRENT_OFFSET, OLDEST_OFFSET, LEADER, REPLICAS, IN_SYNC, PREFERRED, UNDER_REPLICATED)
DEFINITIONS = (
    BROKERS,
    BROKER_INFO,
    TOPIC_PARTITIONS,
    *PER_PARTITION,
    MEMBERS,
    COMMITTED,
    COMMITTED_SUM,
    LAG,
    LAG_SUM,
    LAG_SECONDS,
)
"""Metrics of a broker and of `kctl metrics serve`."""


def families(found: ClusterLag, *, of_exporter: bool) -> Iterator[Family | None]:
    """Yield the values of all metrics.  None is a point at which other work may be done."""
    yield single(BROKERS, len(found.brokers))
    yield Family(BROKER_INFO, [(label_text(id=str(id_), address=address), 1) for id_, address in found.brokers.items()])
    yield Family(TOPIC_PARTITIONS, ((label_text(topic=t), count) for t, count in found.partition_counts))
    yield from _of_partitions(found)
    yield None
    groups = [group for group in found.groups if group.outcome.is_done]
    yield Family(MEMBERS, ((label_text(consumergroup=group.outcome.name), group.member_count) for group in groups))
    names: list[str] = []
    committed: list[int | None] = []
    lags: list[int | None] = []
    waits_ms: list[int | None] = []
    left_ms: list[int | None] = []
    committed_sums: dict[tuple[str, str], int] = {}
    lag_sums: dict[tuple[str, str], int] = {}
    for group, summary in ((owner, partition) for owner in groups for partition in owner.partitions):
        found_lag = summary.judgement
        names.append(_labels(group, summary.tp))
        committed.append(summary.committed)
        lags.append(found_lag.lag if found_lag else None)
        waits_ms.append(found_lag.time_lag_ms if found_lag else None)
        left_ms.append(found_lag.time_left_ms if found_lag else None)
        key = group.outcome.name, summary.tp.topic
        if committed[-1] is not None:
            committed_sums[key] = committed_sums.get(key, 0) + committed[-1]
        if lags[-1] is not None:
            lag_sums[key] = lag_sums.get(key, 0) + lags[-1]
        if len(names) % _PARTITIONS_PER_SLICE == 0:
            yield None
    yield Family(COMMITTED, _known(names, committed))
    yield Family(COMMITTED_SUM, _sums(committed_sums))
    yield Family(LAG, _known(names, lags))
    yield Family(LAG_SUM, _sums(lag_sums))
    yield Family(LAG_SECONDS, _seconds(names, waits_ms))
    if of_exporter:
        yield Family(VERDICT, ((label_text(consumergroup=group.outcome.name), group.verdict.value) for group in groups))
        yield Family(TIME_LEFT, _seconds(names, left_ms))
        yield single(FAILURES, found.failures)
    yield from _freed(names, committed, lags, waits_ms, left_ms)


def _of_partitions(found: ClusterLag) -> Iterator[Family | None]:
    names: list[str] = []
    values: tuple[list[int | None], ...] = tuple([] for _ in PER_PARTITION)
    for tp, summary in found.partitions:
        names.append(_partition_labels(tp))
        for column, value in zip(values, _values(summary), strict=True):
            column.append(value)
        if len(names) % _PARTITIONS_PER_SLICE == 0:
            yield None
    for definition, column in zip(PER_PARTITION, values, strict=True):
        yield Family(definition, _known(names, column))
    yield from _freed(names, *values)


def _freed(*lists: list[Any]) -> Iterator[None]:
    """Free the elements in pieces: 100,000 texts at once take 4 ms."""
    for elements in lists:
        while elements:
            del elements[-_FREED_PER_SLICE:]
            yield None


def _values(partition: PartitionSummary) -> tuple[int | None, ...]:
    """Return the values of PER_PARTITION; None for those that are unknown."""
    return (
        None if partition.log is None else partition.log.high_watermark,
        None if partition.log is None else partition.log.start,
        None if partition.leader == NO_LEADER else partition.leader,
        len(partition.replicas),
        len(partition.isr),
        int(partition.leader in partition.replicas[:1]),
        int(len(partition.isr) < len(partition.replicas)),
    )


def _partition_labels(tp: TopicPartition) -> str:
    return f'topic="{escaped(tp.topic)}",partition="{tp.partition}"'


def _labels(group: GroupLag, tp: TopicPartition) -> str:
    return f'consumergroup="{escaped(group.outcome.name)}",{_partition_labels(tp)}'


def _sums(sums: Mapping[tuple[str, str], int]) -> Iterator[Row]:
    """Return the sums by group and topic."""
    return ((label_text(consumergroup=name, topic=topic), value) for (name, topic), value in sums.items())


def _known(names: Iterable[str], values: Iterable[int | None]) -> Iterator[Row]:
    return ((name, value) for name, value in zip(names, values, strict=True) if value is not None)


def _seconds(names: Iterable[str], values_ms: Iterable[int | None]) -> Iterator[Row]:
    return ((name, value / 1000) for name, value in zip(names, values_ms, strict=True) if value is not None)

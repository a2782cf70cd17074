"""The metrics of kafka_exporter, under its names: partitions of the cluster, and the lag of consumer groups.

https://github.com/danielqsj/kafka_exporter; the names with `seconds` and `verdict` are additions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kctl.admin.cluster_lag import ClusterLag
from kctl.admin.group_lag import GroupLag
from kctl.admin.lag_rules import Verdict
from kctl.model import NO_LEADER, TopicPartition
from kctl.server.metrics.definitions import Definition, Family, Kind, Row, escaped, label_text, single

_OF_PARTITION = ("topic", "partition")
_OF_GROUP = ("consumergroup", "topic", "partition")
_SUM = ("consumergroup", "topic")
_VERDICTS = ", ".join(f"{one.value} {one.name}" for one in Verdict)


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
    """The values of all metrics.  None is a point at which other work may be done."""
    yield single(BROKERS, len(found.brokers))
    yield Family(BROKER_INFO, [(label_text(id=str(id_), address=address), 1) for id_, address in found.brokers.items()])
    yield Family(TOPIC_PARTITIONS, ((label_text(topic=t), count) for t, count in found.partition_counts.items()))
    yield from _of_partitions(found)
    yield None
    groups = [group for group in found.groups if group.outcome.is_done]
    yield Family(MEMBERS, ((label_text(consumergroup=one.outcome.name), one.member_count) for one in groups))
    rows = [(group, one, _labels(group, one.tp)) for group in groups for one in group.partitions]
    yield None
    committed = [(group, one, labels) for group, one, labels in rows if one.committed is not None]
    yield Family(COMMITTED, ((labels, one.committed or 0) for _, one, labels in committed))
    yield Family(COMMITTED_SUM, _sums((group, one.tp.topic, one.committed or 0) for group, one, _ in committed))
    judged = [(group, one.tp, labels, one.judgement) for group, one, labels in rows if one.judgement is not None]
    yield None
    yield Family(LAG, ((labels, found.lag) for _, _, labels, found in judged if found.lag is not None))
    yield Family(
        LAG_SUM, _sums((group, tp.topic, found.lag) for group, tp, _, found in judged if found.lag is not None)
    )
    yield Family(LAG_SECONDS, _seconds((labels, found.time_lag_ms) for _, _, labels, found in judged))
    if of_exporter:
        yield Family(VERDICT, ((label_text(consumergroup=one.outcome.name), one.verdict.value) for one in groups))
        yield Family(TIME_LEFT, _seconds((labels, found.time_left_ms) for _, _, labels, found in judged))
        yield single(FAILURES, found.failures)


def _of_partitions(found: ClusterLag) -> Iterator[Family | None]:
    rows = [(_partition_labels(tp), one) for tp, one in found.partitions.items()]
    yield None
    yield Family(CURRENT_OFFSET, ((t, one.log.high_watermark) for t, one in rows if one.log is not None))
    yield Family(OLDEST_OFFSET, ((t, one.log.start) for t, one in rows if one.log is not None))
    yield Family(LEADER, ((t, one.leader) for t, one in rows if one.leader != NO_LEADER))
    yield Family(REPLICAS, ((t, len(one.replicas)) for t, one in rows))
    yield Family(IN_SYNC, ((t, len(one.isr)) for t, one in rows))
    yield Family(PREFERRED, ((t, int(one.leader in one.replicas[:1])) for t, one in rows))
    yield Family(UNDER_REPLICATED, ((t, int(len(one.isr) < len(one.replicas))) for t, one in rows))


def _partition_labels(tp: TopicPartition) -> str:
    return f'topic="{escaped(tp.topic)}",partition="{tp.partition}"'


def _labels(group: GroupLag, tp: TopicPartition) -> str:
    return f'consumergroup="{escaped(group.outcome.name)}",{_partition_labels(tp)}'


def _sums(values: Iterable[tuple[GroupLag, str, int]]) -> Iterator[Row]:
    """The sums by group and topic."""
    sums: dict[tuple[str, str], int] = {}
    for group, topic, value in values:
        key = group.outcome.name, topic
        sums[key] = sums.get(key, 0) + value
    for (name, topic), value in sums.items():
        yield label_text(consumergroup=name, topic=topic), value


def _seconds(values: Iterable[tuple[str, int | None]]) -> Iterator[Row]:
    return ((labels, value / 1000) for labels, value in values if value is not None)

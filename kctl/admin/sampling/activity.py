"""The activity of a cluster between two samples: rates, lags, progress of moves.  Pure.

The tuples are the rows of `kctl top`; their fields are the members of its JSON document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, NamedTuple

from kctl.admin.cluster.clients import Software
from kctl.admin.sampling.sample import BrokerReading, ClusterSample, loop_lag_p99_ms, rate
from kctl.client.metadata import Partition
from kctl.lag.facts import NOTHING_FETCHED
from kctl.model import TopicPartition

VerdictOf = Callable[[str], str | None]
"""Judges a group, by its id, at the time of the latest sample; None for no verdict.  What a verdict depends on, such as
earlier samples, is kept by the owner of the function."""


class BrokerActivity(NamedTuple):
    """One live broker.  Fields below `replicas` are None where they are unknown."""

    broker: int
    address: str
    rack: str | None
    is_controller: bool
    leaders: int
    replicas: int
    records_per_s: Annotated[
        float | None, "Records appended to the partitions that it leads, from the ends of their logs."
    ]
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    requests_per_s: float | None
    produce_p99_ms: float | None
    fetch_p99_ms: float | None
    loop_lag_p99_ms: float | None
    idle_percent: float | None
    disk_bytes: int | None
    disk_free_bytes: Annotated[
        int | None,
        "Free space of the file systems of its log directories, from brokers of Kafka 3.3 or newer (KIP-827).",
    ]
    offline_directories: int | None


class TopicActivity(NamedTuple):
    """One topic; sizes are those of the leaders."""

    topic: str
    partitions: int
    replication_factor: int
    under_replicated: int
    offline: int
    records_per_s: float | None
    size_bytes: int | None
    growth_bytes_per_s: Annotated[float | None, "Negative while retention deletes more than is appended."]


class GroupActivity(NamedTuple):
    """One consumer group."""

    group: str
    state: str
    members: int
    partitions: int
    lag: int | None
    lag_per_s: Annotated[float | None, "How fast the lag in offsets grows; negative while the group catches up."]
    consumed_per_s: float | None
    verdict: str | None = None


class PartitionActivity(NamedTuple):
    """The activity of one partition."""

    topic: str
    partition: int
    status: Annotated[str, "OFFLINE, UNDER-REPLICATED, MOVING or OK."]
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    end_offset: int | None
    records_per_s: float | None
    size_bytes: int | None
    copied_percent: Annotated[float | None, "The bytes of the replicas that a move adds, in percent of the leader's."]


class GroupOffsetActivity(NamedTuple):
    """One partition of a group."""

    group: str
    topic: str
    partition: int
    committed: int
    end_offset: int | None
    lag: Annotated[int | None, "Null without an end, and for a commit beyond it."]
    consumed_per_s: float | None
    client_id: Annotated[str | None, "The client id of the member that reads the partition."] = None
    host: Annotated[str | None, "The address of that member."] = None


class SoftwareActivity(NamedTuple):
    """Clients of one software, as they name themselves (KIP-511)."""

    software: str
    version: str
    connections: int
    brokers: Annotated[list[int], "The brokers whose metrics count them."]


class Activity(NamedTuple):
    """The whole cluster."""

    cluster_id: str | None
    controller: int | None
    elapsed_ms: Annotated[int | None, "Between the two samples; null for a first one, which has no rates."]
    brokers: list[BrokerActivity]
    topics: list[TopicActivity]
    groups: list[GroupActivity]
    partitions: list[PartitionActivity]
    group_offsets: list[GroupOffsetActivity]
    problems: Annotated[list[str], "Descriptions of the parts that could not be read."]
    controller_problem: Annotated[
        str | None, "Why there is no active controller; without a leader of the metadata quorum, since when."
    ] = None
    clients: Annotated[
        list[SoftwareActivity], "The software of the clients, from the metrics of brokers; empty without them."
    ] = []  # noqa: RUF012 - never changed


OK, MOVING, UNDER_REPLICATED, OFFLINE = "OK", "MOVING", "UNDER-REPLICATED", "OFFLINE"


def no_verdict(_group: str) -> None:
    """Leave the column of verdicts empty."""


def activity(old: ClusterSample | None, new: ClusterSample, verdict_of: VerdictOf = no_verdict) -> Activity:
    """Return the activity between two samples of one cluster."""
    if old is not None and (old.metadata.cluster_id != new.metadata.cluster_id or old.at_ms >= new.at_ms):
        old = None
    partitions = list(_partitions(old, new))
    by_topic: dict[str, list[PartitionActivity]] = {name: [] for name in new.metadata.topics}
    by_leader: dict[int, list[PartitionActivity]] = {}
    held = dict.fromkeys(new.metadata.brokers, 0)
    for partition in partitions:
        by_topic[partition.topic].append(partition)
        if partition.leader is not None:
            by_leader.setdefault(partition.leader, []).append(partition)
        for replica in partition.replicas:
            if replica in held:
                held[replica] += 1
    disk_bytes: dict[int, int] = {}
    for (broker_id, _), size in new.sizes.items():
        disk_bytes[broker_id] = disk_bytes.get(broker_id, 0) + size
    offsets = {name: list(_group_offsets(name, old, new)) for name in sorted(new.groups)}
    controller = new.metadata.controller_id
    return Activity(
        new.metadata.cluster_id,
        controller if controller >= 0 else None,
        None if old is None else new.at_ms - old.at_ms,
        [
            _broker(holder, by_leader.get(holder, []), held[holder], disk_bytes.get(holder, 0), old, new)
            for holder in held
        ],
        [_topic(name, found, old, new) for name, found in by_topic.items()],
        [_group(name, found, old, new, verdict_of(name)) for name, found in offsets.items()],
        partitions,
        [offset for found in offsets.values() for offset in found],
        list(new.problems),
        new.frozen or ("no controller" if controller < 0 and not new.is_controller_unseen else None),
        list(_clients(new)),
    )


def _clients(new: ClusterSample) -> Iterator[SoftwareActivity]:
    counts: dict[Software, dict[int, int]] = {}
    for broker_id, reading in sorted(new.readings.items()):
        for software, count in reading.connections.items():
            counts.setdefault(software, {})[broker_id] = count
    for software, by_broker in sorted(counts.items()):
        yield SoftwareActivity(software.name, software.version, sum(by_broker.values()), list(by_broker))


def _partitions(old: ClusterSample | None, new: ClusterSample) -> Iterator[PartitionActivity]:
    for topic in new.metadata.topics.values():
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition)
            move = new.ongoing.get(tp)
            size = new.sizes.get((partition.leader, tp))
            copied: float | None = None
            if move is not None and move.adding and size:
                copies = [min(new.sizes.get((replica, tp), 0), size) for replica in move.adding]
                copied = 100 * sum(copies) / (size * len(copies))
            yield PartitionActivity(
                topic.name,
                partition.partition,
                _status(partition, new, is_moving=move is not None, adding=() if move is None else move.adding),
                partition.leader if partition.leader in new.metadata.brokers else None,
                partition.replicas,
                partition.isr,
                () if move is None else move.adding,
                () if move is None else move.removing,
                new.ends.get(tp),
                _rate(None if old is None else old.ends, new.ends, tp, old, new),
                size,
                copied,
            )


def _status(partition: Partition, new: ClusterSample, *, is_moving: bool, adding: tuple[int, ...]) -> str:
    """Return the status of a partition: a replica that is being added does not make it under-replicated."""
    if partition.leader not in new.metadata.brokers:
        return OFFLINE
    if any(replica not in partition.isr and replica not in adding for replica in partition.replicas):
        return UNDER_REPLICATED
    return MOVING if is_moving else OK


def _broker(
    broker_id: int,
    led: list[PartitionActivity],
    replicas: int,
    disk_bytes: int,
    old: ClusterSample | None,
    new: ClusterSample,
) -> BrokerActivity:
    broker = new.metadata.brokers[broker_id]
    before = BrokerReading() if old is None else old.readings.get(broker_id, BrokerReading())
    now = new.readings.get(broker_id, BrokerReading())
    elapsed_ms = 0 if old is None else new.at_ms - old.at_ms
    is_described = broker_id in new.offline_directories
    return BrokerActivity(
        broker_id,
        broker.address,
        broker.rack,
        broker_id == new.metadata.controller_id,
        len(led),
        replicas,
        None if old is None else sum(partition.records_per_s or 0 for partition in led),
        rate(before.bytes_in, now.bytes_in, elapsed_ms),
        rate(before.bytes_out, now.bytes_out, elapsed_ms),
        rate(before.requests, now.requests, elapsed_ms),
        now.produce_p99_ms,
        now.fetch_p99_ms,
        loop_lag_p99_ms(before, now),
        None if now.idle_share is None else 100 * now.idle_share,
        disk_bytes if is_described else None,
        new.usable_bytes.get(broker_id),
        new.offline_directories.get(broker_id),
    )


def _topic(
    name: str, partitions: list[PartitionActivity], old: ClusterSample | None, new: ClusterSample
) -> TopicActivity:
    sizes = [partition.size_bytes for partition in partitions if partition.size_bytes is not None]
    rates = [partition.records_per_s for partition in partitions if partition.records_per_s is not None]
    growth: float | None = None
    if old is not None:
        changes = [
            partition.size_bytes - before
            for partition in partitions
            if partition.size_bytes is not None
            and partition.leader is not None
            and (before := old.sizes.get((partition.leader, TopicPartition(name, partition.partition)))) is not None
        ]
        growth = sum(changes) * 1000 / (new.at_ms - old.at_ms) if changes else None
    return TopicActivity(
        name,
        len(partitions),
        max((len(partition.replicas) - len(partition.adding) for partition in partitions), default=0),
        sum(partition.status == UNDER_REPLICATED for partition in partitions),
        sum(partition.status == OFFLINE for partition in partitions),
        sum(rates) if rates else None,
        sum(sizes) if sizes else None,
        growth,
    )


def _group(
    name: str, offsets: list[GroupOffsetActivity], old: ClusterSample | None, new: ClusterSample, verdict: str | None
) -> GroupActivity:
    consumed = [offset.consumed_per_s for offset in offsets if offset.consumed_per_s is not None]
    grows: float | None = None
    if old is not None:
        # The first sample knows no starts, and counts no records.
        lag, lag_before = _lag_in_offsets(name, new, new.starts), _lag_in_offsets(name, old, new.starts)
        if lag is not None and lag_before is not None:
            grows = (lag - lag_before) * 1000 / (new.at_ms - old.at_ms)
    group = new.groups[name]
    return GroupActivity(
        name,
        group.state,
        group.members,
        len(group.committed.keys() | group.assigned),
        _sum(offset.lag for offset in offsets),
        grows,
        sum(consumed) if consumed else None,
        verdict,
    )


def _group_offsets(name: str, old: ClusterSample | None, new: ClusterSample) -> Iterator[GroupOffsetActivity]:
    before = None if old is None or name not in old.groups else old.groups[name].committed
    committed = new.groups[name].committed
    for tp in sorted(committed):
        end = new.ends.get(tp)
        lag = _lag_of(committed[tp], end, new.starts.get(tp))
        # A fetch may have shown that fewer records than offsets are unread.
        records = new.unread.get((tp, committed[tp]), NOTHING_FETCHED).records
        yield GroupOffsetActivity(
            name,
            tp.topic,
            tp.partition,
            committed[tp],
            end,
            lag if lag is None or records is None else records,
            _rate(before, committed, tp, old, new),
            *new.groups[name].owners.get(tp, (None, None)),
        )


def _lag_in_offsets(name: str, sample: ClusterSample, latest_starts: Mapping[TopicPartition, int]) -> int | None:
    """Return the offsets that the group has not consumed, of partitions whose lag is known; None if there are none."""
    group = sample.groups.get(name)
    if group is None:
        return None
    return _sum(
        _lag_of(offset, sample.ends.get(tp), sample.starts.get(tp, latest_starts.get(tp)))
        for tp, offset in group.committed.items()
    )


def _sum(lags: Iterable[int | None]) -> int | None:
    """Return the sum of the lags that are known; None if there are none."""
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _lag_of(committed: int, end: int | None, start: int | None) -> int | None:
    """As in `kctl groups lag`: without the offsets that are deleted; None for a commit beyond the end too, since such
    a group reads nothing at all.

    The end is younger than the commit, so that it is no commit of a moment later.
    """
    return None if end is None or committed > end else end - max(committed, min(start or 0, end))


def _rate(
    before: Mapping[TopicPartition, int] | None,
    now: Mapping[TopicPartition, int],
    tp: TopicPartition,
    old: ClusterSample | None,
    new: ClusterSample,
) -> float | None:
    """Return the offsets per second; None if one is unknown or the offset went back."""
    if before is None or old is None:
        return None
    return rate(before.get(tp), now.get(tp), new.at_ms - old.at_ms)

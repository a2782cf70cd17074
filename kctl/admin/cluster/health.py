"""Checks the health of a cluster and lists all problems."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kctl.admin.cluster.quorum import QuorumReading
from kctl.admin.placement.log_dirs import FileSystem
from kctl.admin.placement.reassignment import Ongoing, ongoing_if_supported
from kctl.admin.topics.configs import ConfigResource, ResourceType, describe_configs, entry_named, number_in
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.consuming.list_offsets import LATEST, list_offsets_of_leader
from kctl.client.metadata import ClusterMetadata, Partition, Topic
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, AuthenticationFailed, ErrorCode
from kctl.model import TopicPartition
from kctl.output.quantities import counted, format_size
from kctl.protocol.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

# Health problems of a partition, by the criteria of Kafka's TopicCommand (2.8). Pure.


MIN_INSYNC_REPLICAS = "min.insync.replicas"


class PartitionProblem(Enum):
    """Kinds of problems, the most severe first."""

    UNAVAILABLE = "unavailable"
    """No live leader: the partition can be neither written nor read."""
    UNDER_MIN_ISR = "under min ISR"
    """Fewer in-sync replicas than min.insync.replicas: writes with acks=all are refused."""
    UNDER_REPLICATED = "under-replicated"
    """Some replicas are not in sync."""
    AT_MIN_ISR = "at min ISR"
    """As many in-sync replicas as min.insync.replicas: if one more fails, writes with acks=all are refused.  Only
    `partitions_with_problems` reports it, because a partition with one replica is always in this state.
    """


def problems_of(
    partition: Partition,
    live: Container[int],
    *,
    min_insync_replicas: int | None = None,
    ongoing: Ongoing | None = None,
) -> list[PartitionProblem]:
    """Return all problems of the partition.  Without `min_insync_replicas` that limit is not checked."""
    has_leader = partition.leader >= 0
    problems = []
    if not has_leader or partition.leader not in live:
        problems.append(PartitionProblem.UNAVAILABLE)
    if min_insync_replicas is not None and (not has_leader or len(partition.isr) < min_insync_replicas):
        problems.append(PartitionProblem.UNDER_MIN_ISR)
    if len(partition.isr) < _replication_factor(partition, ongoing):
        problems.append(PartitionProblem.UNDER_REPLICATED)
    return problems


def _replication_factor(partition: Partition, ongoing: Ongoing | None) -> int:
    """Return the replication factor without replicas being added, unless the reassignment has ended since it was
    listed.
    """
    if ongoing is not None and {*ongoing.adding, *ongoing.removing}.intersection(partition.replicas):
        return len(ongoing.origin)
    return len(partition.replicas)


class HealthProblem(Enum):
    """Kinds of problems, the most severe first."""

    NO_QUORUM = "no quorum leader"
    NO_CONTROLLER = "no controller"
    CONTROLLER_AWAY = "controller away"
    BROKER_UNREACHABLE = "broker unreachable"
    BROKER_MISSING = "broker missing"
    NOT_LEADING = "not leading"
    NO_CHANGES = "no changes in ZooKeeper"
    OFFLINE_PARTITION = "offline partition"
    UNDER_MIN_ISR = "under min ISR"
    UNDER_REPLICATED = "under-replicated"
    DISK_FILLS = "disk fills"


DISK_WARNING_SHARE, DISK_ERROR_SHARE = 0.8, 0.9
"""How full a file system with log directories is worth a warning, and makes the cluster not healthy."""
DISK_PROBLEMS = frozenset({HealthProblem.DISK_FILLS})
"""Problems that a restart of a broker neither has nor makes worse."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One problem, and the broker or partition that has it."""

    problem: HealthProblem
    message: str
    broker_id: int | None = None
    tp: TopicPartition | None = None


"""Errors of brokers before 2.4 and for users without the permission, for which there are no reassignments."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of a cluster, as input of the check."""

    metadata: ClusterMetadata
    unreachable: Mapping[int, str]
    """Brokers that are listed and do not respond, and the error."""
    min_insync_replicas: Mapping[str, int]
    ongoing: Mapping[TopicPartition, Ongoing]
    not_leading: Mapping[int, TopicPartition] = field(default_factory=dict)
    """Live brokers that refuse to act as leader, and a partition that they lead in the metadata."""
    without_changes: Mapping[int, str] = field(default_factory=dict)
    """Brokers that cannot change anything in ZooKeeper, and the reason."""
    is_restricted: bool = False
    """Whether the user may not describe the cluster; then topics may be hidden as well."""
    quorum: QuorumReading | None = None
    """The quorum of controllers, of a KRaft cluster; None if there is none, or it was not asked."""
    file_systems: Sequence[FileSystem] = ()
    """Those of the log directories of the brokers that report them."""
    unseen: Sequence[str] = ()
    """What could not be read, and why."""

    @property
    def responding(self) -> frozenset[int]:
        """The brokers that are listed and respond: without a quorum leader, dead ones stay in the list."""
        return frozenset(self.metadata.brokers.keys() - self.unreachable.keys())


async def brokers_not_leading(
    client: ClusterClient, metadata: ClusterMetadata, unreachable: Collection[int]
) -> dict[int, TopicPartition]:
    """Return the brokers that refuse a request for the first partition that they lead, as a kctl broker does that has
    lost its registration in ZooKeeper.  One that refuses because the leader has just changed is not among them.
    """
    led: dict[int, TopicPartition] = {}
    for topic in metadata.topics.values():
        for partition in topic.partitions:
            if partition.leader in metadata.brokers and partition.leader not in unreachable:
                led.setdefault(partition.leader, TopicPartition(topic.name, partition.partition))

    async def refuses(broker_id: int, tp: TopicPartition) -> bool:
        try:
            outcome = (await list_offsets_of_leader(await client.broker(broker_id), [tp], LATEST)).get(tp)
        except (ConnectionLost, AuthenticationFailed, ApiError):
            return False  # A broker that has just ended.
        return isinstance(outcome, ApiError) and outcome.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    outcomes = await client.gather([refuses(broker_id, tp) for broker_id, tp in led.items()])
    refused = {broker_id: tp for (broker_id, tp), refuses in zip(led.items(), outcomes, strict=True) if refuses}
    if not refused:
        return {}
    now = await client.metadata({tp.topic for tp in refused.values()})
    leaders = {
        TopicPartition(topic.name, partition.partition): partition.leader
        for topic in now.topics.values()
        for partition in topic.partitions
    }
    return {broker_id: tp for broker_id, tp in refused.items() if leaders.get(tp) == broker_id}


async def zookeeper_problem(connection: Connection) -> str | None:
    """Return why the broker cannot change anything in ZooKeeper; None if it can, or does not say, as Apache Kafka's."""
    if not connection.versions.supports(DescribeClusterRequest):
        return None
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    response = await connection.send(request, DescribeClusterResponse)
    return response.error_message if response.error_code == ErrorCode.NONE else None


def health_reasons(seen: Observation) -> list[Reason]:
    """Return all problems of the cluster, the most severe first; empty if it is healthy."""
    metadata = seen.metadata
    reasons = []
    if seen.quorum is not None:
        if seen.quorum.frozen is not None:
            reasons.append(Reason(HealthProblem.NO_QUORUM, seen.quorum.frozen))
        if seen.quorum.quorum is not None:
            leader = f"controller {seen.quorum.leader_id}, the leader of the metadata quorum"
            reasons += [
                Reason(HealthProblem.CONTROLLER_AWAY, f"does not follow {leader}", broker_id=voter.node_id)
                for voter in seen.quorum.quorum.voters_away()
            ]
    elif metadata.controller_id not in metadata.brokers:
        reasons.append(Reason(HealthProblem.NO_CONTROLLER, "no broker is the controller"))
    reasons += [
        Reason(HealthProblem.BROKER_UNREACHABLE, why, broker_id=broker_id)
        for broker_id, why in sorted(seen.unreachable.items())
    ]
    reasons += _missing_brokers(metadata)
    reasons += [
        Reason(
            HealthProblem.NOT_LEADING,
            f"refuses to act as leader, for example of {tp}: its registration in ZooKeeper is lost, or not verified",
            broker_id=broker_id,
        )
        for broker_id, tp in sorted(seen.not_leading.items())
    ]
    reasons += [
        Reason(HealthProblem.NO_CHANGES, f"{why}; {MIN_INSYNC_REPLICAS} is not checked", broker_id=broker_id)
        for broker_id, why in sorted(seen.without_changes.items())
    ]
    is_frozen = seen.quorum is not None and seen.quorum.lost is not None
    live = seen.responding if is_frozen else metadata.brokers.keys()
    partitions = []
    for topic in metadata.topics.values():
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition)
            problems = problems_of(
                partition,
                live,
                min_insync_replicas=seen.min_insync_replicas.get(topic.name),
                ongoing=seen.ongoing.get(tp),
            )
            in_sync = f"in sync {_ids(partition.isr)}, replicas {_ids(partition.replicas)}"
            if PartitionProblem.UNAVAILABLE in problems:
                # The other problems of the partition follow from this one.
                partitions.append(Reason(HealthProblem.OFFLINE_PARTITION, f"no live leader, {in_sync}", tp=tp))
                continue
            if PartitionProblem.UNDER_MIN_ISR in problems:
                text = f"{MIN_INSYNC_REPLICAS} is {seen.min_insync_replicas[topic.name]}, {in_sync}"
                partitions.append(Reason(HealthProblem.UNDER_MIN_ISR, text, tp=tp))
            if PartitionProblem.UNDER_REPLICATED in problems:
                partitions.append(Reason(HealthProblem.UNDER_REPLICATED, in_sync, tp=tp))
    order = list(HealthProblem)
    disks = [
        Reason(HealthProblem.DISK_FILLS, disk_text(file_system), broker_id=file_system.broker_id)
        for file_system in fuller_than(DISK_ERROR_SHARE, seen.file_systems)
    ]
    return [*reasons, *sorted(partitions, key=lambda reason: order.index(reason.problem)), *disks]


def fuller_than(share: float, file_systems: Iterable[FileSystem]) -> list[FileSystem]:
    """Those of which at least this share is used."""
    return [
        file_system
        for file_system in file_systems
        if file_system.used_share is not None and file_system.used_share >= share
    ]


def disk_text(file_system: FileSystem) -> str:
    """For example `/data is 93 % full: 70 GiB of 1 TiB are free`."""
    free, total = format_size(file_system.usable_bytes), format_size(file_system.total_bytes or 0)
    share = int((file_system.used_share or 0) * 100)
    return f"{', '.join(file_system.paths)}: {share} % of the disk is full, {free} of {total} are free"


async def partitions_with_problems(
    client: ClusterClient,
    topics: Collection[Topic],
    problems: Collection[PartitionProblem],
    unreachable: Collection[int] | None = None,
) -> dict[str, list[int]]:
    """Numbers of the partitions with one of the problems, by topic; topics without any are omitted.

    `unreachable` are the brokers that do not respond, for a cluster whose quorum has no leader: there the list of live
    brokers is old, and no reassignment can be asked for.
    """
    metadata = await client.metadata([])
    live = metadata.brokers.keys() - set(unreachable or ())
    readable = [topic.name for topic in topics if topic.partitions]
    of_minimum = {PartitionProblem.UNDER_MIN_ISR, PartitionProblem.AT_MIN_ISR}
    minimums = {} if of_minimum.isdisjoint(problems) else await min_insync_replicas(client, readable)
    has_controller = unreachable is None and metadata.controller_id in metadata.brokers
    ongoing = await ongoing_if_supported(client) if has_controller else {}
    numbers: dict[str, list[int]] = {}
    for topic in topics:
        for partition in topic.partitions:
            has = problems_of(
                partition,
                live,
                min_insync_replicas=minimums.get(topic.name),
                ongoing=ongoing.get(TopicPartition(topic.name, partition.partition)),
            )
            if minimums.get(topic.name) == len(partition.isr):
                has.append(PartitionProblem.AT_MIN_ISR)
            if not set(problems).isdisjoint(has):
                numbers.setdefault(topic.name, []).append(partition.partition)
    return numbers


async def min_insync_replicas(client: ClusterClient, topics: Collection[str]) -> dict[str, int]:
    """min.insync.replicas of each topic that the user is authorized to describe."""
    if not topics:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    minimums: dict[str, int] = {}
    for resource, entries in (
        await describe_configs(client, resources, names=[MIN_INSYNC_REPLICAS], synonyms=False)
    ).items():
        entry = None if isinstance(entries, Outcome) else entry_named(entries, MIN_INSYNC_REPLICAS)
        minimum = None if entry is None else number_in(entry.value)
        if minimum is not None:
            minimums[resource.name] = minimum
    return minimums


def _missing_brokers(metadata: ClusterMetadata) -> list[Reason]:
    """Return the brokers with replicas that are not alive."""
    held: dict[int, int] = {}
    for topic in metadata.topics.values():
        for partition in topic.partitions:
            for replica in partition.replicas:
                if replica not in metadata.brokers:
                    held[replica] = held.get(replica, 0) + 1
    return [
        Reason(
            HealthProblem.BROKER_MISSING,
            f"not alive, has {counted(count, 'replica')}",
            broker_id=broker_id,
        )
        for broker_id, count in sorted(held.items())
    ]


def _ids(ids: Collection[int]) -> str:
    return ",".join(map(str, ids)) or "none"

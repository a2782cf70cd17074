"""Checks the health of a cluster and lists all problems."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field
from enum import Enum

from kctl.admin.placement.reassignment import NOT_LISTED, Ongoing, list_reassignments, ongoing_if_supported
from kctl.admin.topics.configs import ConfigResource, ResourceType, describe_configs, entry_named, number_in
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.consuming.list_offsets import LATEST, list_offsets_of_leader
from kctl.client.metadata import ClusterMetadata, Partition, Topic
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, AuthenticationFailed, ClusterUnreachable, ErrorCode
from kctl.model import TopicPartition
from kctl.output.quantities import counted
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
    found = []
    if not has_leader or partition.leader not in live:
        found.append(PartitionProblem.UNAVAILABLE)
    if min_insync_replicas is not None and (not has_leader or len(partition.isr) < min_insync_replicas):
        found.append(PartitionProblem.UNDER_MIN_ISR)
    if len(partition.isr) < _replication_factor(partition, ongoing):
        found.append(PartitionProblem.UNDER_REPLICATED)
    return found


def _replication_factor(partition: Partition, ongoing: Ongoing | None) -> int:
    """Return the replication factor without replicas being added, unless the reassignment has ended since it was
    listed.
    """
    if ongoing is not None and {*ongoing.adding, *ongoing.removing}.intersection(partition.replicas):
        return len(ongoing.origin)
    return len(partition.replicas)


class HealthProblem(Enum):
    """Kinds of problems, the most severe first."""

    NO_CONTROLLER = "no controller"
    BROKER_UNREACHABLE = "broker unreachable"
    BROKER_MISSING = "broker missing"
    NOT_LEADING = "not leading"
    NO_CHANGES = "no changes in ZooKeeper"
    OFFLINE_PARTITION = "offline partition"
    UNDER_MIN_ISR = "under min ISR"
    UNDER_REPLICATED = "under-replicated"


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
    """Live brokers that do not respond, and the error."""
    min_insync_replicas: Mapping[str, int]
    ongoing: Mapping[TopicPartition, Ongoing]
    not_leading: Mapping[int, TopicPartition] = field(default_factory=dict)
    """Live brokers that refuse to act as leader, and a partition that they lead in the metadata."""
    without_changes: Mapping[int, str] = field(default_factory=dict)
    """Brokers that cannot change anything in ZooKeeper, and the reason."""
    is_restricted: bool = False
    """Whether the user may not describe the cluster; then topics may be hidden as well."""


async def observe(client: ClusterClient) -> Observation:
    """Query brokers, topics and reassignments.  Raises ClusterUnreachable."""
    metadata = await client.metadata()

    unreachable: dict[int, str] = {}
    without_changes: dict[int, str] = {}

    async def look_at(broker_id: int) -> None:
        try:
            problem = await zookeeper_problem(await client.broker(broker_id))
        except (ConnectionLost, AuthenticationFailed, ApiError) as error:
            unreachable[broker_id] = str(error)
            return
        if problem is not None:
            without_changes[broker_id] = problem

    await client.gather([look_at(broker_id) for broker_id in metadata.brokers])
    ongoing: Mapping[TopicPartition, Ongoing] = {}
    is_restricted = False
    if metadata.controller_id in metadata.brokers and metadata.controller_id not in unreachable:
        try:
            ongoing = await list_reassignments(client)
        except ApiError as error:
            if error.code not in NOT_LISTED:
                raise
            is_restricted = error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    not_leading = await brokers_not_leading(client, metadata, unreachable)
    minimum: Mapping[str, int] = {}
    # A broker without ZooKeeper does not respond to questions about configuration.
    if not without_changes and (not_leading.keys() < metadata.brokers.keys() or not not_leading):
        try:
            minimum = await min_insync_replicas(client, metadata.topics)
        except ClusterUnreachable:
            if not not_leading:
                raise
    return Observation(
        metadata,
        unreachable,
        minimum,
        ongoing,
        not_leading=not_leading,
        without_changes=without_changes,
        is_restricted=is_restricted,
    )


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
            found = (await list_offsets_of_leader(await client.broker(broker_id), [tp], LATEST)).get(tp)
        except (ConnectionLost, AuthenticationFailed, ApiError):
            return False  # A broker that has just ended.
        return isinstance(found, ApiError) and found.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

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
    if metadata.controller_id not in metadata.brokers:
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
    partitions = []
    for topic in metadata.topics.values():
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition)
            problems = problems_of(
                partition,
                metadata.brokers,
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
    return reasons + sorted(partitions, key=lambda reason: order.index(reason.problem))


async def partitions_with_problems(
    client: ClusterClient, topics: Collection[Topic], problems: Collection[PartitionProblem]
) -> dict[str, list[int]]:
    """Return the numbers of the partitions with one of the problems, by topic; topics without any are omitted."""
    metadata = await client.metadata([])
    readable = [topic.name for topic in topics if topic.partitions]
    of_minimum = {PartitionProblem.UNDER_MIN_ISR, PartitionProblem.AT_MIN_ISR}
    minimums = {} if of_minimum.isdisjoint(problems) else await min_insync_replicas(client, readable)
    ongoing = await ongoing_if_supported(client) if metadata.controller_id in metadata.brokers else {}
    found: dict[str, list[int]] = {}
    for topic in topics:
        for partition in topic.partitions:
            has = problems_of(
                partition,
                metadata.brokers,
                min_insync_replicas=minimums.get(topic.name),
                ongoing=ongoing.get(TopicPartition(topic.name, partition.partition)),
            )
            if minimums.get(topic.name) == len(partition.isr):
                has.append(PartitionProblem.AT_MIN_ISR)
            if not set(problems).isdisjoint(has):
                found.setdefault(topic.name, []).append(partition.partition)
    return found


async def min_insync_replicas(client: ClusterClient, topics: Collection[str]) -> dict[str, int]:
    """min.insync.replicas of each topic that the user is authorized to describe."""
    if not topics:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    found: dict[str, int] = {}
    for resource, entries in (
        await describe_configs(client, resources, names=[MIN_INSYNC_REPLICAS], synonyms=False)
    ).items():
        entry = None if isinstance(entries, Outcome) else entry_named(entries, MIN_INSYNC_REPLICAS)
        minimum = None if entry is None else number_in(entry.value)
        if minimum is not None:
            found[resource.name] = minimum
    return found


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

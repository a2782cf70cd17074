"""Validates requests to create topics or partitions, and assigns replicas to brokers.

Kafka: ZkAdminManager.createTopics and createPartitions with AdminZkClient's checks, in their order (2.8).

Pure: the state of the cluster and randomness are arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kctl.config.broker import BrokerConfig
from kctl.config.topic import validate_topic_overrides
from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.model import topic_name_problem, topic_names_collide
from kctl.protocol.apis.create_partitions import CreatePartitionsTopic
from kctl.protocol.apis.create_topics import CreatableTopic
from kctl.server.cluster.topics import placement
from kctl.system.environment import Random

PARTITIONS_CREATED_PER_REQUEST_MAX = bound(
    Subject.PARTITIONS,
    "partitions created by one CreateTopics or CreatePartitions request",
    10_000,
    "partitions",
    on_excess="INVALID_PARTITIONS for the topics beyond it",
)
PARTITIONS_PER_CLUSTER_MAX = bound(
    Subject.PARTITIONS,
    "partitions of a cluster, checked when topics are created or grow",
    200_000,
    "partitions",
    on_excess="INVALID_PARTITIONS for the topics beyond it",
)
REPLICAS_PER_TOPIC_MAX = bound(
    Subject.PARTITIONS,
    "replicas in the assignment of one topic",
    100_000,
    "replicas",
    on_excess="INVALID_REPLICA_ASSIGNMENT for the topic",
)


BROKER_DEFAULT = -1
"""A number of partitions or replicas that the broker, or a given assignment, determines."""

Assignment = Mapping[int, tuple[int, ...]]
Racks = Mapping[int, str | None]
"""Live brokers with their racks."""


@dataclass(frozen=True, slots=True)
class NewTopicPlan:
    """A topic that can be created."""

    name: str
    assignment: Assignment
    overrides: Mapping[str, str]

    @property
    def partition_count(self) -> int:
        """The number of partitions."""
        return len(self.assignment)

    @property
    def replication_factor(self) -> int:
        """The number of replicas per partition."""
        return len(self.assignment[0])


class PartitionRoom:
    """The number of partitions that one request may still create in a cluster that has `partition_count`."""

    def __init__(self, partition_count: int) -> None:
        self._left = min(PARTITIONS_CREATED_PER_REQUEST_MAX, max(PARTITIONS_PER_CLUSTER_MAX - partition_count, 0))

    def take(self, count: int) -> None:
        """Use up `count` partitions.  Raises ApiError(INVALID_PARTITIONS) if fewer are left."""
        if count > self._left:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"{count} partitions are more than can be created: a request may create at most"
                f" {PARTITIONS_CREATED_PER_REQUEST_MAX}, and a cluster has at most {PARTITIONS_PER_CLUSTER_MAX}.",
            )
        self._left -= max(count, 0)


def replica_count(requested: CreatableTopic, config: BrokerConfig) -> int:
    """About how many replicas a valid request is for."""
    if requested.assignments:
        return sum(1 + len(assignment.broker_ids) for assignment in requested.assignments)
    factor = requested.replication_factor
    return _partition_count(requested, config) * (
        config.default_replication_factor if factor == BROKER_DEFAULT else factor
    )


def plan_new_topic(
    requested: CreatableTopic,
    *,
    existing: Collection[str],
    brokers: Racks,
    config: BrokerConfig,
    random: Random,
    room: PartitionRoom,
) -> NewTopicPlan:
    """Return the plan for a topic.  Raises ApiError with the first problem found.

    `existing` are the names of all topics, including those being deleted.  Brokers in a given assignment need not
    exist.
    """
    if requested.name in existing:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{requested.name}' already exists.")
    overrides = _overrides(requested)
    count = _partition_count(requested, config)
    placement.check_partition_count(count)
    room.take(count)
    assignment = _assignment(requested, brokers, config, random)
    _check_name(requested.name, existing)
    _check_shape(assignment)
    validate_topic_overrides(overrides)
    return NewTopicPlan(requested.name, assignment, overrides)


def count_added_partitions(requested: CreatePartitionsTopic, *, existing: Assignment, room: PartitionRoom) -> int:
    """Return how many partitions to add.  Raises ApiError; the caller has excluded a pending reassignment."""
    added_count = requested.count - len(existing)
    if added_count < 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic has {len(existing)} partitions, which is more than the requested {requested.count}.",
        )
    if added_count == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {len(existing)} partitions.")
    placement.check_partition_count(requested.count)
    room.take(added_count)
    return added_count


def plan_added_partitions(
    requested: CreatePartitionsTopic, added_count: int, *, existing: Assignment, brokers: Racks
) -> Assignment:
    """Return the replicas of the partitions to add.  Raises ApiError."""
    if requested.assignments is None:
        return placement.assign_added_partitions(brokers, existing, added_count)
    given = [tuple(entry.broker_ids) for entry in requested.assignments]
    _check_added(given, added_count, replication_factor=len(existing[0]), brokers=brokers)
    return {len(existing) + index: replicas for index, replicas in enumerate(given)}


def _overrides(requested: CreatableTopic) -> dict[str, str]:
    nulls = sorted(entry.name for entry in requested.configs if entry.value is None)
    if nulls:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for topic configs: {','.join(nulls)}")
    return {entry.name: entry.value for entry in requested.configs if entry.value is not None}


def _partition_count(requested: CreatableTopic, config: BrokerConfig) -> int:
    if requested.assignments:
        return len(requested.assignments)
    return config.num_partitions if requested.num_partitions == BROKER_DEFAULT else requested.num_partitions


def _assignment(requested: CreatableTopic, brokers: Racks, config: BrokerConfig, random: Random) -> Assignment:
    if not requested.assignments:
        partition_count, replication_factor = requested.num_partitions, requested.replication_factor
        return placement.assign_replicas(
            brokers,
            config.num_partitions if partition_count == BROKER_DEFAULT else partition_count,
            config.default_replication_factor if replication_factor == BROKER_DEFAULT else replication_factor,
            random,
        )
    if requested.num_partitions != BROKER_DEFAULT or requested.replication_factor != BROKER_DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Both an assignment and a number of partitions or replicas were given; only one is allowed.",
        )
    return {entry.partition_index: tuple(entry.broker_ids) for entry in requested.assignments}


def _check_name(name: str, existing: Collection[str]) -> None:
    problem = topic_name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if "." in name or "_" in name:
        colliding = sorted(other for other in existing if topic_names_collide(name, other))
        if colliding:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topics: {', '.join(colliding)}",
            )


def _check_shape(assignment: Assignment) -> None:
    _check_replica_count(assignment.values())
    if sorted(assignment) != list(range(len(assignment))):
        raise _bad_assignment("Partitions should be a consecutive 0-based integer sequence.")
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        raise _bad_assignment("All partitions should have the same number of replicas.")
    for partition, replicas in assignment.items():
        if not replicas:
            raise _bad_assignment(f"Partition {partition} has no replicas.")
        if len(set(replicas)) < len(replicas):
            raise _bad_assignment(f"Partition {partition} has a duplicate broker: {list(replicas)}.")


def _check_replica_count(replicas: Collection[tuple[int, ...]]) -> None:
    count = sum(map(len, replicas))
    if count > REPLICAS_PER_TOPIC_MAX:
        raise _bad_assignment(f"{count} replicas exceed the limit of {REPLICAS_PER_TOPIC_MAX} per topic.")


def _check_added(
    given: Sequence[tuple[int, ...]], added_count: int, *, replication_factor: int, brokers: Racks
) -> None:
    _check_replica_count(given)
    unknown = sorted({broker for replicas in given for broker in replicas} - set(brokers))
    if unknown:
        raise _bad_assignment(f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.")
    if len(given) != added_count:
        raise _bad_assignment(
            f"Increasing the number of partitions by {added_count} but {len(given)} assignments provided."
        )
    for replicas in given:
        if not replicas:
            raise _bad_assignment("Cannot have replication factor of 0.")
        if len(set(replicas)) < len(replicas):
            raise _bad_assignment(f"Duplicate brokers not allowed in replica assignment: {list(replicas)}.")
        if len(replicas) != replication_factor:
            raise _bad_assignment(
                f"Inconsistent replication factor between partitions: {len(replicas)} instead of {replication_factor}."
            )


def _bad_assignment(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)

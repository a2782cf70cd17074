"""The topics that a copy of several topics writes to: those that exist, and those that it creates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.topics.configs import number_in
from kctl.admin.topics.overrides import topic_overrides
from kctl.admin.topics.topics import NewTopic, create_topics
from kctl.client.outcome import Outcome, topic_error
from kctl.errors import ApiError, ErrorCode
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.client.metadata import Topic

CREATED_AT_ONCE = 100
"""Topics in one CreateTopics request."""

_MIN_INSYNC_REPLICAS = "min.insync.replicas"
NOT_COPIED = frozenset(
    {
        "leader.replication.throttled.replicas",  # ids of brokers of the source
        "follower.replication.throttled.replicas",
        "message.format.version",  # removed in Kafka 4.0, which refuses them
        "message.downconversion.enable",
    }
)
"""Properties that are not set for a topic that is created."""


class Target(NamedTuple):
    """The topic that one topic is copied to."""

    source: str
    name: str
    partitions: int
    new: NewTopic | None = None
    """How it is created; None if it exists."""
    source_replicas: int = 0
    not_copied: tuple[str, ...] = ()
    """Overrides of the source that the new topic does not get."""
    is_min_insync_lowered: bool = False
    problem: str = ""
    """Why nothing can be copied to it."""

    @property
    def has_fewer_replicas(self) -> bool:
        """Whether it is created with fewer replicas than the source has."""
        return self.new is not None and self.new.replication_factor < self.source_replicas


def plan_target(
    source: Topic, name: str, present: Topic | None, overrides: Mapping[str, str | None], brokers: int
) -> Target:
    """Return how the topic `name` of a cluster with so many brokers gets the records of `source`."""
    count = len(source.partitions)
    if present is not None and present.error is ErrorCode.NONE:
        problem = ""
        if len(present.partitions) != count:
            problem = f"{name} has {counted(len(present.partitions), 'partition')}, {source.name} has {count}"
        return Target(source.name, name, count, problem=problem)
    if present is not None and present.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Target(source.name, name, count, problem=str(topic_error(name, present.error)))
    replicas = max((len(partition.replicas) for partition in source.partitions), default=1)
    factor = max(1, min(replicas, brokers))
    configs = {key: value for key, value in overrides.items() if value is not None and key not in NOT_COPIED}
    minimum = number_in(configs.get(_MIN_INSYNC_REPLICAS))
    is_lowered = minimum is not None and minimum > factor
    if is_lowered:
        configs[_MIN_INSYNC_REPLICAS] = str(factor)  # otherwise no write with acks=all would succeed
    return Target(
        source.name,
        name,
        count,
        NewTopic(name, partitions=count, replication_factor=factor, configs=configs),
        source_replicas=replicas,
        not_copied=tuple(sorted(overrides.keys() & NOT_COPIED)),
        is_min_insync_lowered=is_lowered,
    )


class TopicSets(NamedTuple):
    """The clusters of both sides, and the plan for each topic."""

    source_cluster: str | None
    target_cluster: str | None
    targets: list[Target]


async def plan_targets(source: ClusterClient, target: ClusterClient, names: Collection[str], prefix: str) -> TopicSets:
    """Read the topics of both clusters.  Raises ApiError for a topic of the source that cannot be read."""
    of_source = await source.metadata(names)
    of_target = await target.metadata([prefix + name for name in names])
    topics = [of_source.topics[name] for name in sorted(names)]
    for topic in topics:
        if topic.error is not ErrorCode.NONE:
            raise topic_error(topic.name, topic.error)
    missing = [
        topic.name
        for topic in topics
        if of_target.topics[prefix + topic.name].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    overrides = await topic_overrides(source, missing) if missing else {}
    targets = []
    for topic in topics:
        of_topic = overrides.get(topic.name, {})
        if isinstance(of_topic, Outcome):
            raise ApiError(of_topic.error, f"the properties of {topic.name}: {of_topic.message}")
        name = prefix + topic.name
        targets.append(plan_target(topic, name, of_target.topics.get(name), of_topic, len(of_target.brokers)))
    return TopicSets(of_source.cluster_id, of_target.cluster_id, targets)


async def create_targets(client: ClusterClient, targets: Iterable[Target], *, validate_only: bool) -> list[Outcome]:
    """Create the topics that do not exist, or validate that; return those that failed."""
    new = [target.new for target in targets if target.new is not None]
    failed: list[Outcome] = []
    for some in _chunks(new):
        created = await create_topics(client, some, validate_only=validate_only)
        failed += [topic.outcome for topic in created if not topic.outcome.is_done]
    return failed


def _chunks(topics: Sequence[NewTopic]) -> Iterable[Sequence[NewTopic]]:
    return (topics[first : first + CREATED_AT_ONCE] for first in range(0, len(topics), CREATED_AT_ONCE))

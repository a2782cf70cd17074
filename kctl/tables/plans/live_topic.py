"""Topics of exports as the cluster has them now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from kctl.admin.topics.configs import ConfigResource, ResourceType, describe_configs
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, IsolationLevel, list_offsets, list_offsets_at
from kctl.client.consuming.positions import NO_EPOCH, Divergence
from kctl.client.leaders import Outcomes
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.tables.exec.reading.histories import affects, find_divergences
from kctl.tables.plans.plan import TopicPosition, is_same_topic

CLEANUP_POLICY = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class LiveLog:
    """Offsets of one partition."""

    start: int
    stable_end: int
    """The last stable offset."""
    high_watermark: int
    leader_epoch: int = NO_EPOCH
    """Of the leader that told the high watermark."""


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """One topic."""

    topic_id: UUID
    cluster_id: str
    logs: Mapping[int, LiveLog | ApiError]

    def is_topic_of(self, position: TopicPosition) -> bool:
        """Return whether this is the topic that was exported, not a later one of its name."""
        return is_same_topic(
            self.topic_id, self.cluster_id, then_topic_id=position.topic_id, then_cluster_id=position.cluster_id
        )


async def live_topics(client: ClusterClient, names: Collection[str]) -> dict[str, LiveTopic | ApiError]:
    """Return the topics by name, or their errors.  Raises ClusterUnreachable."""
    metadata = await client.metadata(sorted(names))
    found: dict[str, LiveTopic | ApiError] = {}
    tps: list[TopicPartition] = []
    for name in sorted(names):
        topic = metadata.topics.get(name)
        code = topic.error if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None or code is not ErrorCode.NONE:
            is_unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            found[name] = ApiError(code, f"topic {name} does not exist" if is_unknown else f"topic {name}: {code}")
        else:
            tps += [TopicPartition(name, partition.partition) for partition in topic.partitions]
    logs = await _logs(client, tps)
    for name in sorted(set(names) - found.keys()):
        of_topic = {tp.partition: log for tp, log in logs.items() if tp.topic == name}
        found[name] = LiveTopic(metadata.topics[name].topic_id, metadata.cluster_id or "", of_topic)
    return found


async def divergences_of(
    client: ClusterClient, topics: Mapping[str, LiveTopic | ApiError], positions: Mapping[str, TopicPosition]
) -> Outcomes[Divergence]:
    """Return where the logs part from the exported history before the exported offset; only these partitions, and
    errors.

    Raises ClusterUnreachable.
    """
    histories, epochs = {}, {}
    for name, topic in topics.items():
        if isinstance(topic, LiveTopic) and topic.is_topic_of(positions[name]):
            for partition, at in positions[name].partitions.items():
                if isinstance(log := topic.logs.get(partition), LiveLog):
                    histories[TopicPartition(name, partition)] = at.history
                    epochs[TopicPartition(name, partition)] = log.leader_epoch
    return {
        tp: found
        for tp, found in (await find_divergences(client, histories, epochs)).items()
        if isinstance(found, ApiError) or affects(found, positions[tp.topic].partitions[tp.partition].offset)
    }


async def log_start(client: ClusterClient, tp: TopicPartition) -> int:
    """Return the first offset of a partition.  Raises ApiError."""
    outcome = (await list_offsets(client, {tp: EARLIEST}))[tp]
    if isinstance(outcome, ApiError):
        raise outcome
    return outcome.offset


async def is_compacted(client: ClusterClient, topic: str) -> bool | None:
    """Return whether the topic's cleanup.policy contains `compact`; None if the broker does not disclose it."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = (await describe_configs(client, [resource], names=[CLEANUP_POLICY], synonyms=False))[resource]
    if isinstance(entries, Outcome):
        return None
    return any(entry.name == CLEANUP_POLICY and "compact" in (entry.value or "") for entry in entries)


async def _logs(client: ClusterClient, tps: Collection[TopicPartition]) -> Outcomes[LiveLog]:
    if not tps:
        return {}
    bounds = await list_offsets_at(client, tps, (EARLIEST, LATEST))
    stable = await list_offsets(client, dict.fromkeys(tps, LATEST), isolation=IsolationLevel.READ_COMMITTED)
    found: Outcomes[LiveLog] = {}
    for tp in tps:
        held, end = bounds[tp], stable[tp]
        if isinstance(held, ApiError):
            found[tp] = held
        elif isinstance(end, ApiError):
            found[tp] = end
        else:
            found[tp] = LiveLog(held[0].offset, end.offset, held[1].offset, held[1].leader_epoch)
    return found

"""KafkaController and ControllerStats: the state and the work of the controller.  Zero on other brokers."""

from __future__ import annotations

from collections.abc import Iterator

from kctl.metrics.definitions import (
    NO_LABELS,
    AnyFamily,
    Definition,
    Family,
    HistogramFamily,
    Kind,
    label_text,
    single,
    summarize,
)
from kctl.model import TopicPartition
from kctl.server.cluster.controller.state import PartitionPhase
from kctl.server.cluster.controller.stats import Work
from kctl.server.metrics.sources import Sources


def _gauge(name: str, unit: str, doc: str) -> Definition:
    return Definition("kafka.controller", "KafkaController", name, Kind.GAUGE, unit, doc)


ACTIVE = _gauge("ActiveControllerCount", "controllers", "1 if this broker is the controller")
STATE = _gauge(
    "ControllerState", "state", "The current work of the controller, as Kafka's ControllerState number; 0 is idle"
)
TOPICS = _gauge("GlobalTopicCount", "topics", "Topics of the cluster")
PARTITIONS = _gauge("GlobalPartitionCount", "partitions", "Partitions of the cluster")
OFFLINE = _gauge("OfflinePartitionsCount", "partitions", "Partitions without a leader")
IMBALANCE = _gauge("PreferredReplicaImbalanceCount", "partitions", "Partitions whose leader is not the preferred one")
BROKERS = _gauge("ActiveBrokerCount", "brokers", "Registered brokers")
DELETING = _gauge("TopicsToDeleteCount", "topics", "Topics whose deletion is requested or in progress")
UNCLEAN = Definition(
    "kafka.controller",
    "ControllerStats",
    "UncleanLeaderElectionsPerSec",
    Kind.METER,
    "partitions",
    "Elections of leaders that were not in sync, with possible loss of records",
)
QUEUE = Definition(
    "kafka.controller",
    "ControllerEventManager",
    "EventQueueSize",
    Kind.GAUGE,
    "events",
    "Events in the queue of the controller",
)
_CHANNELS = "ControllerChannelManager"
TOTAL_QUEUE = Definition(
    "kafka.controller", _CHANNELS, "TotalQueueSize", Kind.GAUGE, "requests", "Requests of the controller that wait"
)
CHANNEL_QUEUE = Definition(
    "kafka.controller",
    _CHANNELS,
    "QueueSize",
    Kind.GAUGE,
    "requests",
    "Requests of the controller that wait to be sent to a broker",
    ("broker_id",),
)
CHANNEL_TIMES = Definition(
    "kafka.controller",
    _CHANNELS,
    "RequestRateAndQueueTimeMs",
    Kind.HISTOGRAM,
    "ms",
    "Time that requests of the controller waited to be sent to a broker",
    ("broker_id",),
)
TIMES = {
    work: Definition(
        "kafka.controller",
        "ControllerStats",
        f"{work.label}RateAndTimeMs",
        Kind.HISTOGRAM,
        "ms",
        f"Time of the controller for events of the kind {work.label}",
    )
    for work in Work
    if work.label
}
DEFINITIONS = (
    ACTIVE,
    STATE,
    TOPICS,
    PARTITIONS,
    OFFLINE,
    IMBALANCE,
    BROKERS,
    DELETING,
    UNCLEAN,
    QUEUE,
    TOTAL_QUEUE,
    CHANNEL_QUEUE,
    CHANNEL_TIMES,
    *TIMES.values(),
)
_PARTITIONS_PER_SLICE = 500


def families(sources: Sources) -> Iterator[AnyFamily | None]:
    """Yield the state of the controller.  None is a point at which other work may be done."""
    controller = sources.parts.controller
    state, stats = controller.state, controller.stats
    yield single(ACTIVE, int(state.is_active))
    yield single(STATE, stats.current.number)
    yield single(BROKERS, len(state.brokers))
    yield single(TOPICS, len(state.topics))
    yield single(DELETING, len(state.deleting))
    yield single(QUEUE, controller.queue_size)
    queues = [
        (label_text(broker_id=str(broker_id)), *found)
        for broker_id, found in sorted(controller.channel_queues().items())
    ]
    yield single(TOTAL_QUEUE, sum(size for _, size, _ in queues))
    yield Family(CHANNEL_QUEUE, ((text, size) for text, size, _ in queues))
    yield HistogramFamily(CHANNEL_TIMES, ((text, summarize(times.latest_ms, times.count)) for text, _, times in queues))
    partitions = offline = imbalanced = 0
    # Not items(): thousands of new pairs at once would begin a garbage collection.
    for topic in list(state.topics):
        assignment = state.topics.get(topic)
        if assignment is None:
            continue  # Deleted during a pause.
        is_deleted = topic in state.deleting
        for partition in list(assignment.replicas):
            replicas = assignment.replicas.get(partition)
            if partitions % _PARTITIONS_PER_SLICE == 0:
                yield None
            partitions += 1
            if is_deleted:
                continue
            key = TopicPartition(topic, partition)
            found = state.leaders.get(key)
            if found is None or state.phase(key) is PartitionPhase.OFFLINE:
                offline += 1
            if found is not None and replicas and found.leader != replicas[0]:
                imbalanced += 1
    yield single(PARTITIONS, partitions)
    yield single(OFFLINE, offline)
    yield single(IMBALANCE, imbalanced)
    yield single(UNCLEAN, stats.unclean_elections)
    for work, definition in TIMES.items():
        yield HistogramFamily(definition, ((NO_LABELS, summarize(stats.latest_ms[work], stats.counts[work])),))

"""ReplicaManager, replica fetchers, purgatories and fetch sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kctl.config.listeners import inter_broker_listener
from kctl.metrics.definitions import Definition, Family, Kind, label_text, single
from kctl.model import Endpoint
from kctl.server.metrics.sources import Sources
from kctl.server.requests.purgatory import Purgatory


def _gauge(type_: str, name: str, unit: str, doc: str, *labels: str) -> Definition:
    return Definition("kafka.server", type_, name, Kind.GAUGE, unit, doc, labels)


def _meter(type_: str, name: str, unit: str, doc: str, *labels: str) -> Definition:
    return Definition("kafka.server", type_, name, Kind.METER, unit, doc, labels)


_MANAGER = "ReplicaManager"
LEADERS = _gauge(_MANAGER, "LeaderCount", "partitions", "Partitions that this broker leads")
PARTITIONS = _gauge(_MANAGER, "PartitionCount", "partitions", "Partitions with a replica on this broker")
OFFLINE = _gauge(_MANAGER, "OfflineReplicaCount", "partitions", "Replicas in a failed log directory")
UNDER_REPLICATED = _gauge(
    _MANAGER, "UnderReplicatedPartitions", "partitions", "Led partitions with a replica not in sync"
)
UNDER_MIN = _gauge(
    _MANAGER, "UnderMinIsrPartitionCount", "partitions", "Led partitions with fewer than min.insync.replicas in sync"
)
AT_MIN = _gauge(
    _MANAGER, "AtMinIsrPartitionCount", "partitions", "Led partitions with just min.insync.replicas in sync"
)
REASSIGNING = _gauge(_MANAGER, "ReassigningPartitions", "partitions", "Led partitions that are being reassigned")
SHRINKS = _meter(_MANAGER, "IsrShrinksPerSec", "changes", "Removals of lagging replicas from in-sync replicas")
EXPANDS = _meter(_MANAGER, "IsrExpandsPerSec", "changes", "Additions of caught up replicas to in-sync replicas")
FAILED = _meter(_MANAGER, "FailedIsrUpdatesPerSec", "changes", "Changes of in-sync replicas that were refused")
_FETCHERS = "ReplicaFetcherManager"
MAX_LAG = _gauge(
    _FETCHERS, "MaxLag", "records", "Highest number of records that a partition of this follower lags", "clientid"
)
MIN_FETCH_RATE = _gauge(
    _FETCHERS,
    "MinFetchRate",
    "requests/s",
    "Rate of the fetcher with the fewest fetches since the last scrape",
    "clientid",
)
CONSUMER_LAG = _gauge(
    "FetcherLagMetrics", "ConsumerLag", "records", "Records that this follower lags", "clientid", "topic", "partition"
)
_LEADER_LABELS = ("clientid", "brokerhost", "brokerport")
FETCHER_STATS = {
    "request_count": _meter(
        "FetcherStats", "RequestsPerSec", "requests", "Fetch requests to a leader", *_LEADER_LABELS
    ),
    "byte_count": _meter("FetcherStats", "BytesPerSec", "bytes", "Bytes of batches fetched", *_LEADER_LABELS),
}
"""By attribute of ReplicaFetcher."""
PRODUCE_EXPIRED = _meter(
    "DelayedProduceMetrics", "ExpiresPerSec", "requests", "Requests that waited for replicas until their timeout"
)
_PURGATORY = "DelayedOperationPurgatory"
_OPERATION = "delayedOperation"
PURGATORY_SIZE = _gauge(
    _PURGATORY, "PurgatorySize", "operations", "Entries of waiting requests, one per partition", _OPERATION
)
DELAYED = _gauge(_PURGATORY, "NumDelayedOperations", "operations", "Waiting requests", _OPERATION)
_SESSIONS = "FetchSessionCache"
SESSIONS = _gauge(_SESSIONS, "NumIncrementalFetchSessions", "sessions", "Fetch sessions (KIP-227)")
SESSION_PARTITIONS = _gauge(
    _SESSIONS, "NumIncrementalFetchPartitionsCached", "partitions", "Partitions of all fetch sessions"
)
EVICTIONS = _meter(
    _SESSIONS, "IncrementalFetchSessionEvictionsPerSec", "sessions", "Fetch sessions closed in favour of others"
)
DEFINITIONS = (
    LEADERS,
    PARTITIONS,
    OFFLINE,
    UNDER_REPLICATED,
    UNDER_MIN,
    AT_MIN,
    REASSIGNING,
    SHRINKS,
    EXPANDS,
    FAILED,
    MAX_LAG,
    MIN_FETCH_RATE,
    CONSUMER_LAG,
    *FETCHER_STATS.values(),
    PRODUCE_EXPIRED,
    PURGATORY_SIZE,
    DELAYED,
    SESSIONS,
    SESSION_PARTITIONS,
    EVICTIONS,
)

_PARTITIONS_PER_SLICE = 500


class FetchRates:
    """The rates of the fetchers between two scrapes."""

    def __init__(self) -> None:
        self._time_s = 0.0
        self._counts: dict[tuple[int, int], int] = {}

    def minimum(self, now_s: float, counts: dict[tuple[int, int], int]) -> float:
        """Return the lowest rate; 0 without fetchers, and the first time."""
        elapsed_s, old = now_s - self._time_s, self._counts
        is_first = not self._time_s
        self._time_s, self._counts = now_s, counts
        if is_first or elapsed_s <= 0 or not counts:
            return 0.0
        return min(max(count - old.get(key, 0), 0) for key, count in counts.items()) / elapsed_s


def families(sources: Sources, rates: FetchRates) -> Iterator[Family | None]:
    """Yield the state of replication.  None is a point at which other work may be done."""
    parts, base = sources.parts, sources.base
    replicas = parts.replicas
    leaders = offline = under_replicated = under_min = at_min = reassigning = 0
    min_isr: dict[str, int] = {}
    # Not items(): thousands of new pairs at once would begin a garbage collection.
    for number, partition in enumerate(list(replicas.partitions.values())):
        topic = partition.topic_partition.topic
        if number % _PARTITIONS_PER_SLICE == 0:
            yield None
        if not partition.log.log_directory.is_online:
            offline += 1
        if not partition.is_leader:
            continue
        leaders += 1
        reassigning += partition.is_reassigning
        in_sync = len(partition.isr)
        required = min_isr.get(topic)
        if required is None:
            required = min_isr[topic] = replicas.min_insync_replicas(topic)
        under_replicated += in_sync < len(partition.replicas)
        under_min += in_sync < required
        at_min += in_sync == required
    yield single(LEADERS, leaders)
    yield single(PARTITIONS, len(replicas.partitions))
    yield single(OFFLINE, offline)
    yield single(UNDER_REPLICATED, under_replicated)
    yield single(UNDER_MIN, under_min)
    yield single(AT_MIN, at_min)
    yield single(REASSIGNING, reassigning)
    yield single(SHRINKS, parts.isr_changes.shrink_count)
    yield single(EXPANDS, parts.isr_changes.expand_count)
    yield single(FAILED, parts.isr_changes.failure_count)
    yield from _fetchers(sources, rates)
    yield single(PRODUCE_EXPIRED, base.produce_purgatory.expired_count)
    purgatories: tuple[tuple[str, Purgatory[Any]], ...] = (
        ("Produce", base.produce_purgatory),
        ("Fetch", base.fetch_purgatory),
        ("topic", base.metadata_waits.purgatory),
    )
    labelled = [(label_text(delayedOperation=name), purgatory) for name, purgatory in purgatories]
    yield Family(PURGATORY_SIZE, ((text, purgatory.watch_count) for text, purgatory in labelled))
    yield Family(DELAYED, ((text, len(purgatory)) for text, purgatory in labelled))
    yield single(SESSIONS, len(parts.fetch_sessions))
    yield single(SESSION_PARTITIONS, parts.fetch_sessions.partition_count)
    yield single(EVICTIONS, parts.fetch_sessions.eviction_count)


def _fetchers(sources: Sources, rates: FetchRates) -> Iterator[Family]:
    fetchers = dict(sources.parts.fetchers.fetchers)
    lags = {tp: lag for fetcher in fetchers.values() for tp, lag in fetcher.lags.items()}
    replica = label_text(clientid="Replica")
    yield Family(MAX_LAG, ((replica, max(lags.values(), default=0)),))
    rounds = {key: fetcher.round_count for key, fetcher in fetchers.items()}
    yield Family(MIN_FETCH_RATE, ((replica, rates.minimum(sources.sample().time_s, rounds)),))
    listener, alive = inter_broker_listener(sources.base.configs.current), sources.base.metadata.brokers
    endpoints = {leader: found.endpoint(listener) for leader, found in alive.items()}
    labelled = [
        (_leader_labels(f"ReplicaFetcherThread-{number}-{leader}", endpoints.get(leader)), fetcher)
        for (leader, number), fetcher in fetchers.items()
    ]
    for attribute, definition in FETCHER_STATS.items():
        yield Family(definition, [(text, getattr(fetcher, attribute)) for text, fetcher in labelled])
    yield Family(
        CONSUMER_LAG,
        (
            (
                label_text(
                    clientid=f"ReplicaFetcherThread-{number}-{leader}", topic=tp.topic, partition=str(tp.partition)
                ),
                lag,
            )
            for (leader, number), fetcher in fetchers.items()
            for tp, lag in fetcher.lags.items()
        ),
    )


def _leader_labels(client_id: str, leader: Endpoint | None) -> str:
    """Kafka's labels of a fetcher; a leader that is gone has no address."""
    host, port = ("", -1) if leader is None else (leader.host, leader.port)
    return label_text(clientid=client_id, brokerhost=host, brokerport=str(port))

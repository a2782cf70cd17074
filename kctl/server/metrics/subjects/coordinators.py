"""The coordinators of groups and transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from kctl.metrics.definitions import Definition, Family, Kind, single
from kctl.server.coordination.groups.actions import GroupCounts, GroupState
from kctl.server.metrics.sources import Sources

_GROUPS_PER_SLICE = 2_000


def _gauge(name: str, unit: str, doc: str) -> Definition:
    return Definition("kafka.coordinator.group", "GroupMetadataManager", name, Kind.GAUGE, unit, doc)


def _attribute(type_: str, name: str, unit: str, doc: str) -> Definition:
    return Definition("kafka.server", type_, name, Kind.GAUGE, unit, doc)


GROUPS = _gauge("NumGroups", "groups", "Groups that this broker coordinates")
OFFSETS = _gauge("NumOffsets", "offsets", "Committed offsets of these groups")
BY_STATE = {
    state: _gauge(f"NumGroups{state.value}", "groups", f"Groups in the state {state.value}") for state in GroupState
}
_GROUP, _TRANSACTION = "group-coordinator-metrics", "transaction-coordinator-metrics"
GROUP_LOAD_MAX = _attribute(_GROUP, "partition-load-time-max", "ms", "Longest of the latest loads of a partition")
GROUP_LOAD_AVG = _attribute(_GROUP, "partition-load-time-avg", "ms", "Mean time of the latest loads of a partition")
_COUNTED: dict[str, tuple[Callable[[GroupCounts], int], str]] = {
    "offset-commit": (lambda counts: counts.offset_commits, "Offsets that commits wrote"),
    "offset-expiration": (
        lambda counts: counts.offset_expirations,
        "Committed offsets that were removed because they had expired",
    ),
    "offset-deletion": (
        lambda counts: counts.offset_deletions,
        "Committed offsets that were removed with their topic or group, or by OffsetDelete",
    ),
    "group-completed-rebalance": (
        lambda counts: counts.completed_rebalances,
        "Rebalances that ended with an assignment",
    ),
}
COUNTS = {
    name: _attribute(_GROUP, f"{name}-count", "1", f"{doc}, since the start") for name, (_, doc) in _COUNTED.items()
}
RATES = {
    name: _attribute(_GROUP, f"{name}-rate", "1/s", f"{doc}, per second in the last minute")
    for name, (_, doc) in _COUNTED.items()
}
TXN_LOAD_MAX = _attribute(_TRANSACTION, "partition-load-time-max", "ms", "Longest of the latest loads of a partition")
TXN_LOAD_AVG = _attribute(_TRANSACTION, "partition-load-time-avg", "ms", "Mean time of the latest loads of a partition")
TXN_IDS = _attribute(_TRANSACTION, "transactional-id-count", "ids", "Transactional ids that this broker coordinates")
WAITING_MARKERS = Definition(
    "kafka.coordinator.transaction",
    "TransactionMarkerChannelManager",
    "UnknownDestinationQueueSize",
    Kind.GAUGE,
    "transactions",
    "Transactions with markers that no leader takes at the moment",
)
WAITING_COMPLETIONS = Definition(
    "kafka.coordinator.transaction",
    "TransactionMarkerChannelManager",
    "LogAppendRetryQueueSize",
    Kind.GAUGE,
    "transactions",
    "Transactions whose end the log has refused, and which is written again",
)
DEFINITIONS = (
    GROUPS,
    OFFSETS,
    *BY_STATE.values(),
    GROUP_LOAD_MAX,
    GROUP_LOAD_AVG,
    *COUNTS.values(),
    *RATES.values(),
    TXN_LOAD_MAX,
    TXN_LOAD_AVG,
    TXN_IDS,
    WAITING_MARKERS,
    WAITING_COMPLETIONS,
)


def families(sources: Sources) -> Iterator[Family | None]:
    """Yield the state of the coordinators.  None is a point at which other work may be done."""
    groups, transactions = sources.parts.groups, sources.parts.transactions
    states: Counter[GroupState] = Counter()
    offsets = total = 0
    hosted = groups.hosted.present()
    while batch := list(islice(hosted, _GROUPS_PER_SLICE)):
        for hosted_group in batch:
            total += 1
            if hosted_group.group.consumer is None:
                states[hosted_group.group.state] += 1
            offsets += len(hosted_group.group.offsets)
        yield None
    yield single(GROUPS, total)
    yield single(OFFSETS, offsets)
    for state, definition in BY_STATE.items():
        yield single(definition, states[state])
    yield from _loads(groups.partitions.latest_load_ms, GROUP_LOAD_MAX, GROUP_LOAD_AVG)
    now, minute = sources.sample(), sources.last_minute
    for name, (count, _) in _COUNTED.items():
        yield single(COUNTS[name], count(groups.counts))
        yield single(RATES[name], minute.groups_per_second(now, count))
    yield from _loads(transactions.partitions.latest_load_ms, TXN_LOAD_MAX, TXN_LOAD_AVG)
    yield single(TXN_IDS, len(transactions.hosted))
    yield single(WAITING_MARKERS, transactions.waiting_markers)
    yield single(WAITING_COMPLETIONS, transactions.waiting_completions)


def _loads(latest_ms: Iterable[int], longest: Definition, mean: Definition) -> Iterator[Family]:
    values = list(latest_ms)
    yield single(longest, max(values, default=0))
    yield single(mean, sum(values) / len(values) if values else 0.0)

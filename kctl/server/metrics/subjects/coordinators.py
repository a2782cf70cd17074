"""GroupMetadataManager, and the load times of both coordinators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from kctl.server.groups.states import GroupState
from kctl.server.metrics.definitions import Definition, Family, Kind, single
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
TXN_LOAD_MAX = _attribute(_TRANSACTION, "partition-load-time-max", "ms", "Longest of the latest loads of a partition")
TXN_LOAD_AVG = _attribute(_TRANSACTION, "partition-load-time-avg", "ms", "Mean time of the latest loads of a partition")
TXN_IDS = _attribute(_TRANSACTION, "transactional-id-count", "ids", "Transactional ids that this broker coordinates")
DEFINITIONS = (
    GROUPS,
    OFFSETS,
    *BY_STATE.values(),
    GROUP_LOAD_MAX,
    GROUP_LOAD_AVG,
    TXN_LOAD_MAX,
    TXN_LOAD_AVG,
    TXN_IDS,
)


def families(sources: Sources) -> Iterator[Family | None]:
    """The state of the coordinators.  None is a point at which other work may be done."""
    groups, transactions = sources.parts.groups, sources.parts.transactions
    states: Counter[GroupState] = Counter()
    offsets = 0
    hosted = iter(list(groups.hosted.values()))
    while batch := list(islice(hosted, _GROUPS_PER_SLICE)):
        for each in batch:
            states[each.group.state] += 1
            offsets += len(each.group.offsets)
        yield None
    yield single(GROUPS, states.total())
    yield single(OFFSETS, offsets)
    for state, definition in BY_STATE.items():
        yield single(definition, states[state])
    yield from _loads(groups.partitions.latest_load_ms, GROUP_LOAD_MAX, GROUP_LOAD_AVG)
    yield from _loads(transactions.partitions.latest_load_ms, TXN_LOAD_MAX, TXN_LOAD_AVG)
    yield single(TXN_IDS, len(transactions.hosted))


def _loads(latest_ms: Iterable[int], longest: Definition, mean: Definition) -> Iterator[Family]:
    values = list(latest_ms)
    yield single(longest, max(values, default=0))
    yield single(mean, sum(values) / len(values) if values else 0.0)

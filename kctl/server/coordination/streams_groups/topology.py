"""Which tasks a topology has, and which internal topics: numbers of partitions follow from the topics that exist.

1. All source topics must exist.
2. A repartition topic whose number of partitions is not given has as many as the largest topic that is read where it is
   written; topics of a co-partition group have the same number.
3. A changelog has as many partitions as the largest topic that its subtopology reads; so many tasks are there.
4. Internal topics that exist must have these numbers of partitions; the others are created.

Pure.  Kafka: InternalTopicManager, RepartitionTopics, CopartitionedTopicsEnforcer, ChangelogTopics.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.streams_groups.state import InternalTopic, Status, Subtopology, Topology

Counts: TypeAlias = Callable[[str], int | None]
"""Returns the number of partitions of a topic; None if there is no such topic."""
_SHOWN_MAX = 3
"""The number of topics that a message names."""


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology whose numbers of partitions are decided."""

    subtopology: Subtopology
    """Internal topics have their numbers of partitions."""
    tasks: int

    @property
    def is_stateful(self) -> bool:
        """True if its tasks can have standby tasks."""
        return bool(self.subtopology.changelogs)


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology with the topics of the cluster."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology]
    """Sorted by id; empty if the numbers of partitions could not be decided."""
    missing: tuple[InternalTopic, ...] = ()
    """Internal topics to create."""
    problem: tuple[Status, str] | None = None
    """Why no task can run."""

    @property
    def is_ready(self) -> bool:
        """True if tasks can be assigned."""
        return self.problem is None


class _Problem(Exception):
    """The topology cannot run with the topics of the cluster."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.problem = status, detail


def invalid_topology(message: str) -> ApiError:
    """Return the error of a topology that cannot run with whatever topics."""
    return ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def configure(topology: Topology, existing: Counts) -> ConfiguredTopology:
    """Return the topology with the topics of the cluster.  Raises ApiError(STREAMS_INVALID_TOPOLOGY)."""
    try:
        _check_sources(topology, existing)
        decided = _decide(topology, existing)
        subtopologies = {
            subtopology_id: _configured(topology.subtopologies[subtopology_id], existing, decided)
            for subtopology_id in sorted(topology.subtopologies)
        }
        missing = _missing_topics(subtopologies.values(), existing)
    except _Problem as error:
        return ConfiguredTopology(topology.epoch, {}, problem=error.problem)
    problem = None
    if missing:
        names = _summary([topic.name for topic in missing])
        problem = Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}"
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem)


def _check_sources(topology: Topology, existing: Counts) -> None:
    missing = {
        name
        for subtopology in topology.subtopologies.values()
        for name in subtopology.source_topics
        if existing(name) is None
    }
    if missing:
        raise _Problem(Status.MISSING_SOURCE_TOPICS, f"Source topics {_summary(sorted(missing))} are missing.")


def _decide(topology: Topology, existing: Counts) -> dict[str, int]:
    """Return the number of partitions of each internal topic."""
    decided = _repartition_counts(topology, existing)

    def known(name: str) -> int:
        count = existing(name)
        return decided[name] if count is None else count

    fixed: set[str] = set()
    flexible: set[str] = set()
    for subtopology in topology.subtopologies.values():
        for topic in subtopology.repartition_sources:
            (fixed if topic.partitions else flexible).add(topic.name)
    # As in Kafka, all topics whose number is given count in each group of repartition topics alone.
    given = {known(name) for name in fixed}
    for subtopology in topology.subtopologies.values():
        for topics in subtopology.copartitioned():
            decided |= _same_counts(topics, fixed, flexible, given, known)
    for subtopology in topology.subtopologies.values():
        counts = [known(name) for name in subtopology.read_topics()]
        if not counts:
            raise invalid_topology(f"No source topics found for subtopology {subtopology.subtopology_id}")
        decided |= {topic.name: max(counts) for topic in subtopology.changelogs}
    return decided


def _repartition_counts(topology: Topology, existing: Counts) -> dict[str, int]:
    """Return the numbers of partitions of repartition topics, before co-partitioning.

    A subtopology comes after those that write what it reads, and is visited once; in a loop, what is known counts.
    """
    subtopologies = topology.subtopologies.values()
    decided = {
        topic.name: topic.partitions
        for subtopology in subtopologies
        for topic in subtopology.repartition_sources
        if topic.partitions
    }
    readers: defaultdict[str, list[Subtopology]] = defaultdict(list)
    waiting = {}
    for subtopology in subtopologies:
        undecided = {topic.name for topic in subtopology.repartition_sources if topic.name not in decided}
        waiting[subtopology.subtopology_id] = len(undecided)
        for name in undecided:
            readers[name].append(subtopology)
    ready = deque(subtopology for subtopology in subtopologies if not waiting[subtopology.subtopology_id])
    partly = deque(subtopology for subtopology in subtopologies if subtopology.source_topics)
    done: set[str] = set()
    while ready or partly:
        subtopology = (ready or partly).popleft()
        counts = [decided.get(topic.name) for topic in subtopology.repartition_sources]
        counts += [existing(name) for name in subtopology.source_topics]
        known = [count for count in counts if count is not None]
        if subtopology.subtopology_id in done or not known:
            continue
        done.add(subtopology.subtopology_id)
        for name in subtopology.repartition_sinks:
            if name not in decided:
                decided[name] = max(known)
                for reader in readers[name]:
                    waiting[reader.subtopology_id] -= 1
                    (partly if waiting[reader.subtopology_id] else ready).append(reader)
    if any(name not in decided for subtopology in subtopologies for name in subtopology.repartition_sinks):
        raise invalid_topology(
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
            "that cannot be resolved."
        )
    if any(topic.name not in decided for subtopology in subtopologies for topic in subtopology.repartition_sources):
        raise invalid_topology(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic."
        )
    return decided


def _same_counts(
    topics: Collection[str],
    fixed: Collection[str],
    flexible: Collection[str],
    given: Collection[int],
    known: Callable[[str], int],
) -> dict[str, int]:
    """Return the number of partitions of the repartition topics of a co-partition group."""
    repartitioned = {name: known(name) for name in topics if name in fixed or name in flexible}
    others = {name: known(name) for name in topics if name not in repartitioned}
    if not topics:
        return {}
    if others:
        count = _same(others.values(), others)
    elif fixed:
        count = _same(given, repartitioned)
    else:
        count = max(repartitioned.values())
    for name, own in sorted(repartitioned.items()):
        if name in fixed and own != count:
            raise _Problem(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{own}] of repartition topic [{name}] doesn't match number of partitions "
                f"[{count}] of the source topic.",
            )
    return dict.fromkeys(repartitioned, count)


def _same(counts: Iterable[int], named: Mapping[str, int]) -> int:
    different = set(counts)
    if len(different) == 1:
        return different.pop()
    text = ", ".join(f"{name}={count}" for name, count in sorted(named.items()))
    message = f"Following topics do not have the same number of partitions: [{{{text}}}]"
    raise _Problem(Status.INCORRECTLY_PARTITIONED_TOPICS, message)


def _configured(subtopology: Subtopology, existing: Counts, decided: Mapping[str, int]) -> ConfiguredSubtopology:
    def with_counts(topics: Iterable[InternalTopic]) -> tuple[InternalTopic, ...]:
        return tuple(replace(topic, partitions=topic.partitions or decided[topic.name]) for topic in topics)

    counts = [existing(name) or decided[name] for name in subtopology.read_topics()]
    return ConfiguredSubtopology(
        replace(
            subtopology,
            changelogs=with_counts(subtopology.changelogs),
            repartition_sources=with_counts(subtopology.repartition_sources),
        ),
        max(counts),
    )


def _missing_topics(subtopologies: Iterable[ConfiguredSubtopology], existing: Counts) -> tuple[InternalTopic, ...]:
    wanted = {
        topic.name: topic
        for configured in subtopologies
        for topic in (*configured.subtopology.repartition_sources, *configured.subtopology.changelogs)
    }
    missing = []
    for name, topic in sorted(wanted.items()):
        count = existing(name)
        if count is None:
            missing.append(topic)
        elif count != topic.partitions:
            raise _Problem(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {topic.partitions}, found {count}",
            )
    return tuple(missing)


def _summary(names: Collection[str]) -> str:
    """Return the first names, and how many others there are."""
    shown = ", ".join(list(names)[:_SHOWN_MAX])
    return shown if len(names) <= _SHOWN_MAX else f"{shown} and {len(names) - _SHOWN_MAX} additional topics"

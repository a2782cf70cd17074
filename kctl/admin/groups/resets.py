"""Plans offset resets with the scenarios of Kafka's kafka-consumer-groups --reset-offsets.

Queries the leaders for the offset ranges of the partitions; commits nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from kctl.admin.groups.offsets import Offsets
from kctl.admin.topics.offsets import OffsetRange
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, NO_OFFSET, OffsetAt, list_offsets_at
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ErrorCode
from kctl.lag.facts import GroupDescription
from kctl.model import TopicPartition


class Scenario(Enum):
    """How the new offset is determined."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    OFFSET = "offset"
    SHIFT = "shift"
    TIME = "time"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Target:
    """A scenario and its argument: `value` is the offset, the shift or the time in ms; `file` the offsets of a file."""

    scenario: Scenario
    value: int = 0
    file: Offsets = field(default_factory=dict)


Scope = Mapping[str, Collection[int] | None]
"""Partitions by topic, None for all partitions of the topic."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The reset of one partition of one group.

    `old` and `new` are None if there is no offset; `unclamped` is `new` before it was limited to the partition's range.
    """

    group: str
    topic: str
    partition: int | None
    old: int | None = None
    new: int | None = None
    unclamped: int | None = None
    held: OffsetRange | None = None
    outcome: Outcome = field(default_factory=lambda: Outcome(""))

    @property
    def tp(self) -> TopicPartition:
        """The partition; only for resets of a single partition, not of a topic that could not be described."""
        assert self.partition is not None
        return TopicPartition(self.topic, self.partition)

    @property
    def delta(self) -> int | None:
        """Number of skipped offsets; negative if records will be read again."""
        return None if self.old is None or self.new is None else self.new - self.old

    @property
    def is_clamped(self) -> bool:
        """True if the requested offset was outside the partition's range and was moved into it."""
        return self.unclamped != self.new


async def plan_resets(
    client: ClusterClient, groups: Collection[GroupDescription], target: Target, scope: Scope | None
) -> list[Reset]:
    """Return the resets by group, topic and partition.

    Without a scope, those of the committed offsets of the groups, or of the file.
    """
    unknown: list[tuple[str, ApiError]] = []
    in_scope: list[TopicPartition] = []
    if scope is not None:
        in_scope, unknown = await _in_scope(client, scope)
    requested: dict[str, list[TopicPartition]] = {}
    committed: dict[str, dict[TopicPartition, int]] = {}
    for group in groups:
        name = group.outcome.name
        committed[name] = {
            offset.tp: offset.committed_offset for offset in group.offsets if offset.committed_offset >= 0
        }
        if target.scenario is Scenario.FILE:
            requested[name] = sorted(target.file[name])
        else:
            requested[name] = sorted(committed[name] if scope is None else in_scope)
    partitions = {tp for tps in requested.values() for tp in tps}
    if not partitions:
        return _unknown(committed, unknown)
    timestamps = [EARLIEST, LATEST, *([target.value] if target.scenario is Scenario.TIME else [])]
    found = await list_offsets_at(client, partitions, timestamps)
    resets = [
        _plan_one(name, tp, target, committed[name].get(tp), found[tp])
        for name, tps in sorted(requested.items())
        for tp in tps
    ]
    return sorted(
        [*resets, *_unknown(committed, unknown)], key=lambda reset: (reset.group, reset.topic, reset.partition or 0)
    )


async def _in_scope(client: ClusterClient, scope: Scope) -> tuple[list[TopicPartition], list[tuple[str, ApiError]]]:
    """Return the partitions in scope, and the topics and partitions that do not exist."""
    metadata = await client.metadata(scope)
    tps: list[TopicPartition] = []
    unknown: list[tuple[str, ApiError]] = []
    for name, numbers in scope.items():
        topic = metadata.topics.get(name)
        if topic is None or topic.error not in {ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE}:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            is_missing = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown.append((name, ApiError(code, f"topic '{name}' does not exist" if is_missing else None)))
            continue
        present = [partition.partition for partition in topic.partitions]
        tps.extend(TopicPartition(name, number) for number in (present if numbers is None else sorted(numbers)))
    return tps, unknown


def _unknown(groups: Collection[str], topics: list[tuple[str, ApiError]]) -> list[Reset]:
    return [
        Reset(group, topic, None, outcome=Outcome(topic, error.code, str(error)))
        for group in sorted(groups)
        for topic, error in topics
    ]


def _plan_one(
    group: str,
    tp: TopicPartition,
    target: Target,
    old: int | None,
    found: tuple[OffsetAt, ...] | ApiError,
) -> Reset:
    if isinstance(found, ApiError):
        is_missing = found.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        text = f"{tp.topic} has no partition {tp.partition}" if is_missing else str(found)
        return Reset(group, tp.topic, tp.partition, old, outcome=Outcome(str(tp), found.code, text))
    start, end, *at_times = found
    at_time = at_times[0] if at_times else None
    held = OffsetRange(start.offset, end.offset)
    if target.scenario is Scenario.SHIFT and old is None:
        text = "There is no committed offset to shift."
        return Reset(group, tp.topic, tp.partition, outcome=Outcome(str(tp), ErrorCode.INVALID_REQUEST, text))
    unclamped = requested_offset(target, old, held, at_time, target.file.get(group, {}).get(tp))
    new = unclamped
    if target.scenario is not Scenario.CURRENT:
        new = min(max(unclamped, held.start), held.end)
    return Reset(group, tp.topic, tp.partition, old, new, unclamped, held, Outcome(str(tp)))


def requested_offset(
    target: Target, old: int | None, held: OffsetRange, at_time: OffsetAt | None, in_file: int | None
) -> int:
    """Return the offset of the scenario, which may be outside the partition's range.

    As in Kafka, a time after the last record and a missing commit mean the end.
    """
    match target.scenario:
        case Scenario.EARLIEST:
            return held.start
        case Scenario.LATEST:
            return held.end
        case Scenario.CURRENT:
            return held.end if old is None else old
        case Scenario.OFFSET:
            return target.value
        case Scenario.SHIFT:
            assert old is not None
            return old + target.value
        case Scenario.TIME:
            return held.end if at_time is None or at_time.offset == NO_OFFSET else at_time.offset
        case Scenario.FILE:
            assert in_file is not None
            return in_file

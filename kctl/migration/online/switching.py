"""Looks at a migration without a stop, cuts over to the target, and goes back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kctl.admin.copy.comparing import NotComparable, Side, compare, read_kind, stable_ranges
from kctl.admin.copy.copying import COMMITTED_AT_ONCE
from kctl.admin.copy.kept_progress import ProgressMark
from kctl.admin.copy.stretches import OffsetMap, Stretch
from kctl.admin.groups.offsets import commit_offsets
from kctl.admin.topics.offsets import OffsetRange, offset_ranges
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ErrorCode
from kctl.migration.online.group_offsets import GroupOffset, carried_from
from kctl.migration.online.mirroring import (
    CUT_OVER,
    Mirror,
    MirroredPartition,
    Names,
    phase_in,
    read_commits,
    synced_ms,
)
from kctl.model import TopicPartition
from kctl.output.quantities import counted

STALE_MS = 60_000
"""A copy that is kept up to date has a progress that is not older."""
_SHOWN = 5


@dataclass(slots=True)
class Survey:
    """The state of a migration, as both clusters have it."""

    phase: str
    synced_ms: int
    offsets: list[GroupOffset]
    reasons: list[str] = field(default_factory=list)
    """Why it cannot be cut over now."""


async def survey(mirror: Mirror, groups: Iterable[str], active: Iterable[str]) -> Survey:
    """Read the progress and compare the offsets of the groups; changes nothing.  Raises KctlError.

    `active` are those of the groups that have members in the source.
    """
    await mirror.look()
    progress = await read_commits(mirror.target, mirror.names.group)
    offsets = [item for group in groups for item in await _compare_group(mirror, group)]
    state = Survey(phase_in(progress), synced_ms(progress), offsets)
    if state.phase == CUT_OVER:
        state.reasons.append("the migration was cut over; 'kctl migrate copy-back' goes back")
        return state
    if not progress:
        state.reasons.append("nothing was copied yet: 'kctl migrate copy-start'")
    elif mirror.clock_ms() - state.synced_ms > STALE_MS:
        state.reasons.append("the source was last read more than a minute ago: is 'kctl migrate copy-start' running?")
    state.reasons += blocking(mirror, offsets, active)
    return state


def blocking(mirror: Mirror, offsets: Iterable[GroupOffset], active: Iterable[str]) -> list[str]:
    """Return why the copy is not complete."""
    reasons = [f"topic {name}: {problem}" for name, problem in sorted(mirror.problems.items())]
    open_tps = [tp for tp, partition in mirror.partitions.items() if partition.is_open]
    if open_tps:
        reasons.append(f"transactions are open in the source: {_named(open_tps)}")
    if lag := mirror.lag:
        reasons.append(f"{counted(lag, 'offset')} of the source are not copied yet")
    if waiting := [item for item in offsets if not item.is_done]:
        names = sorted({item.group for item in waiting})
        reasons.append(f"{counted(len(waiting), 'offset')} of groups not carried: {_named(names)}")
    if members := sorted(active):
        reasons.append(f"groups have members in the source, so that their offsets may change: {_named(members)}")
    return reasons


def _named(names: Iterable[object]) -> str:
    texts = [str(name) for name in names]
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


async def _compare_group(mirror: Mirror, group: str) -> list[GroupOffset]:
    commits = await read_commits(mirror.source, group)
    present = await read_commits(mirror.target, group)
    items = []
    for tp, commit in sorted(commits.items()):
        if tp not in mirror.partitions:
            continue
        there = present.get(tp)
        origin = None if there is None else carried_from(there)
        offset = None if there is None else there.offset
        if there is not None and origin is None:
            items.append(GroupOffset(group, tp, commit.offset, offset, "kept", Outcome(str(tp))))
        elif origin == commit.offset:
            items.append(GroupOffset(group, tp, commit.offset, offset, "carried", Outcome(str(tp))))
        else:
            outcome = Outcome(str(tp), ErrorCode.OFFSET_NOT_AVAILABLE, "the offset is not carried yet")
            items.append(GroupOffset(group, tp, commit.offset, offset, "behind", outcome))
    return items


async def growing(mirror: Mirror, pause_ms: int) -> list[TopicPartition]:
    """Return the partitions of the source that get records within a time.  Raises KctlError."""
    before = {tp: partition.range.end for tp, partition in mirror.partitions.items()}
    await mirror.source.transport.sleep(pause_ms)
    after = await offset_ranges(mirror.source, before)
    return [tp for tp, end in before.items() if after[tp].end != end]


class Verified(NamedTuple):
    """The comparison of one topic with its copy."""

    topic: str
    records: int
    """That are equal; of a compacted topic, keys."""
    problem: str | None
    """The first difference, or why the topic was not compared."""
    note: str | None = None


async def verify_records(mirror: Mirror) -> list[Verified]:
    """Compare all records up to the positions with their copies.  Raises ApiError and ClusterUnreachable."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in sorted(mirror.partitions):
        by_topic.setdefault(tp.topic, []).append(tp)
    return [await _verify_topic(mirror, topic, tps) for topic, tps in by_topic.items()]


async def _verify_topic(mirror: Mirror, topic: str, tps: list[TopicPartition]) -> Verified:
    records, notes = 0, []
    try:
        kind = await read_kind(mirror.source, topic, mirror.target, topic)
        targets = await stable_ranges(mirror.target, tps)
        for tp in tps:
            partition = mirror.partitions[tp]
            start = partition.range.start
            isolation = IsolationLevel.READ_COMMITTED
            source = Side(
                mirror.source,
                tp,
                OffsetRange(start, partition.position.offset),
                isolation,
                mirror.limits,
                may_begin_later=start > 0,
            )
            target = Side(
                mirror.target, tp, targets[tp], isolation, mirror.limits, may_begin_later=targets[tp].start > 0
            )
            compared = await compare(source, target, is_compacted=kind.is_compacted, with_times=kind.with_times)
            records += compared.records
            if compared.difference:
                return Verified(topic, records, compared.difference)
            notes += [f"{tp}: without {compared.deleted}"] if compared.deleted else []
    except NotComparable as error:
        return Verified(topic, records, str(error))
    return Verified(topic, records, None, "; ".join(notes) or None)


async def mark_cut_over(mirror: Mirror, source_cluster: str) -> None:
    """Note in both clusters that the target goes on: where it begins to have records of its own, and the phase.

    In this order: a copy forward is refused only when the way back is known.  Raises KctlError.
    """
    ends = await offset_ranges(mirror.target, mirror.partitions)
    marks = {tp: _turned(mirror.mark(tp.topic)) for tp in mirror.partitions}
    back = {
        tp: CommittedOffset(
            ends[tp].end,
            metadata=marks[tp].text(_with_end(partition, ends[tp].end)),
        )
        for tp, partition in mirror.partitions.items()
    }
    await commit_all(mirror.source, Names.of(source_cluster, is_back=True).group, back)
    await commit_all(mirror.target, mirror.names.group, mirror.progress(CUT_OVER))


async def mark_gone_back(back: Mirror, source_cluster: str) -> None:
    """Note that the source goes on: a later copy forward begins after the records that were copied back.

    Raises KctlError.
    """
    ends = await offset_ranges(back.target, back.partitions)
    forward = {
        tp: CommittedOffset(
            ends[tp].end,
            metadata=_turned(back.mark(tp.topic)).text(_with_end(partition, ends[tp].end)),
        )
        for tp, partition in back.partitions.items()
    }
    await commit_all(back.source, Names.of(source_cluster).group, forward)


def _turned(mark: ProgressMark) -> ProgressMark:
    """Return the mark of the copies in the other direction."""
    return mark._replace(
        source=mark.target, target=mark.source, source_cluster=mark.target_cluster, target_cluster=mark.source_cluster
    )


def _with_end(partition: MirroredPartition, target_end: int) -> Sequence[Stretch]:
    """Return the stretches in the other direction, with the place where both logs end."""
    stretches = partition.offset_map.inverted().stretches
    return OffsetMap([*stretches, Stretch(target_end, partition.range.end, 0)]).stretches


async def commit_all(client: ClusterClient, group: str, commits: Mapping[TopicPartition, CommittedOffset]) -> None:
    """Commit progress that no transaction writes.  Raises ApiError and ClusterUnreachable."""
    tps = sorted(commits)
    for first in range(0, len(tps), COMMITTED_AT_ONCE):
        some = {tp: commits[tp] for tp in tps[first : first + COMMITTED_AT_ONCE]}
        for outcome in (await commit_offsets(client, group, some)).values():
            if not outcome.is_done:
                raise ApiError(outcome.error, f"group '{group}', {outcome.name}: {outcome.message}")

"""Carries the offsets of groups to the other cluster, each to the same record.

A source offset is translated by the stretches of its partition (kctl.admin.copy.stretches).  Between them the records
are counted on both sides from the nearest known pair of places, so that the result is exact whatever gaps the logs
have.  The metadata of a commit in the target names the source offset: it tells commits of the migration from those of
the group itself, and is a pair of places for the next translation.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.copy.comparing import Side
from kctl.admin.copy.groups import metadata_for
from kctl.admin.copy.stretches import Pair
from kctl.admin.groups.groups import list_groups, look_up_groups
from kctl.admin.groups.offsets import commit_offsets
from kctl.admin.topics.offsets import OffsetRange, offset_ranges
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.outcome import Outcome, failure_of
from kctl.errors import ApiError, ErrorCode
from kctl.migration.online.mirroring import read_commits
from kctl.model import TopicPartition
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from kctl.admin.groups.groups import ListedGroup
    from kctl.client.cluster import ClusterClient
    from kctl.migration.online.mirroring import Mirror, MirroredPartition
    from kctl.records.header import Record

OWN_PREFIX = "kctl-"
"""Of groups in which kctl keeps progress; they are not carried."""
NO_PARTITION = TopicPartition("", -1)
_CARRIED = re.compile(r"copied from .+ at ([0-9]{1,19})")
_CARRIED_TYPES = frozenset({"", "classic", "consumer", "streams"})
_WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})
_HAS_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP, ErrorCode.STALE_MEMBER_EPOCH})


class GroupOffset(NamedTuple):
    """The offset of a group in one partition, on both sides."""

    group: str
    tp: TopicPartition | None
    """None if the offsets of the group could not be read."""
    source_offset: int | None
    target_offset: int | None
    status: str
    """One of carried; early: some records are read again; kept: the group has committed in the target itself; behind:
    the records up to the offset are not copied yet; failed."""
    outcome: Outcome

    @property
    def is_done(self) -> bool:
        """Whether the group continues in the target where it is in the source, or further by its own commit."""
        return self.status in {"carried", "kept", "early"}


async def groups_of(client: ClusterClient, selects: Callable[[str], bool]) -> list[ListedGroup]:
    """Return the groups with committed offsets that are selected, by name.  Raises ApiError if a broker failed."""
    groups, failed = await list_groups(client)
    if failed:
        raise ApiError(failed[0].error, f"the groups of broker {failed[0].name}: {failed[0].message}")
    chosen = [
        group
        for group in groups
        if group.type.lower() in _CARRIED_TYPES
        and not group.group_id.startswith(OWN_PREFIX)
        and selects(group.group_id)
    ]
    without_state = [group.group_id for group in chosen if not group.state]  # from brokers before Kafka 2.6
    if without_state:
        states = {group.outcome.name: group.state for group in await look_up_groups(client, without_state)}
        chosen = [replace(group, state=group.state or states.get(group.group_id, "Dead")) for group in chosen]
    return sorted(chosen, key=lambda group: group.group_id)


def with_members(groups: Iterable[ListedGroup]) -> list[str]:
    """Return the groups that have members, so that their offsets may change."""
    return [group.group_id for group in groups if group.state not in _WITHOUT_MEMBERS]


async def carry_offsets(mirror: Mirror, groups: Collection[str], *, replaces: bool = False) -> list[GroupOffset]:
    """Commit the translated offsets of the groups in the target, and return one item for each offset.

    The target follows the source, also backwards, until the group commits there itself; with `replaces` such a commit
    is replaced too.  Raises ClusterUnreachable, and ApiError if a partition cannot be read.
    """
    carried: list[GroupOffset] = []
    for group in groups:
        try:
            commits = await read_commits(mirror.source, group)
            present = await read_commits(mirror.target, group)
        except ApiError as error:
            carried.append(GroupOffset(group, None, None, None, "failed", failure_of(group, error)))
            continue
        wanted = {tp: commit for tp, commit in commits.items() if tp in mirror.partitions}
        carried += await _carry_group(mirror, group, wanted, present, replaces=replaces)
    return carried


async def _carry_group(
    mirror: Mirror,
    group: str,
    wanted: Mapping[TopicPartition, CommittedOffset],
    present: Mapping[TopicPartition, CommittedOffset],
    *,
    replaces: bool,
) -> list[GroupOffset]:
    items: list[GroupOffset] = []
    new: dict[TopicPartition, CommittedOffset] = {}
    inexact: set[TopicPartition] = set()
    for tp, commit in wanted.items():
        partition, there = mirror.partitions[tp], present.get(tp)
        origin = metadata_for(tp, commit.offset)
        if replaces and carried_from(commit) is not None:
            continue  # It came from the other cluster, and the group has not committed here since.
        if commit.offset > partition.position.offset:
            text = f"the records up to {commit.offset} are not copied yet"
            items.append(
                _item(group, tp, commit, None, "behind", Outcome(str(tp), ErrorCode.OFFSET_NOT_AVAILABLE, text))
            )
        elif there is not None and there.metadata == origin:
            items.append(_item(group, tp, commit, there.offset, "carried", Outcome(str(tp))))
        elif there is not None and carried_from(there) is None and not replaces:
            items.append(_item(group, tp, commit, there.offset, "kept", Outcome(str(tp))))
        else:
            pair = _nearest(partition, there, commit.offset)
            offset, is_exact = await translate(mirror, tp, pair, commit.offset)
            new[tp] = CommittedOffset(offset, metadata=origin)
            inexact |= set() if is_exact else {tp}
    outcomes = await commit_offsets(mirror.target, group, new) if new else {}
    for tp, commit in new.items():
        outcome = outcomes.get(tp, Outcome(str(tp), ErrorCode.UNKNOWN_SERVER_ERROR, "no response for the partition"))
        if outcome.error in _HAS_MEMBERS:
            outcome = Outcome(outcome.name, outcome.error, "the group has members in the target: stop them")
        status = "failed" if not outcome.is_done else "early" if tp in inexact else "carried"
        items.append(_item(group, tp, wanted[tp], commit.offset, status, outcome))
    return sorted(items, key=lambda item: item.tp or NO_PARTITION)


async def take_over(mirror: Mirror, items: Iterable[GroupOffset]) -> None:
    """Mark the commits of groups that were carried as those of the migration in the cluster that they came from.

    A later migration in the other direction then follows the groups again, instead of keeping what they had.  Raises
    ApiError and ClusterUnreachable.
    """
    by_group: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for item in items:
        if item.status in {"carried", "early"} and item.tp is not None and item.source_offset is not None:
            metadata = metadata_for(item.tp, item.target_offset or 0)
            by_group.setdefault(item.group, {})[item.tp] = CommittedOffset(item.source_offset, metadata=metadata)
    for group, commits in by_group.items():
        for outcome in (await commit_offsets(mirror.source, group, commits)).values():
            if not outcome.is_done:
                raise ApiError(outcome.error, f"group '{group}', {outcome.name}: {outcome.message}")


def carried_from(commit: CommittedOffset) -> int | None:
    """Return the source offset that a commit of the migration stands for; None if the group has committed itself."""
    match = _CARRIED.fullmatch(commit.metadata)
    return None if match is None else int(match[1])


def _item(
    group: str, tp: TopicPartition, commit: CommittedOffset, target: int | None, status: str, outcome: Outcome
) -> GroupOffset:
    return GroupOffset(group, tp, commit.offset, target, status, outcome)


def _nearest(partition: MirroredPartition, there: CommittedOffset | None, offset: int) -> Pair | None:
    """Return the pair of places before the offset from which the fewest records are counted."""
    pair = partition.offset_map.pair_before(offset)
    earlier = None if there is None else carried_from(there)
    if there is not None and earlier is not None and earlier <= offset and (pair is None or earlier > pair.source):
        return Pair(earlier, there.offset)
    return pair


async def translate(mirror: Mirror, tp: TopicPartition, pair: Pair | None, offset: int) -> tuple[int, bool]:
    """Return the offset in the target of the first record at or after a source offset, and whether that is exact.

    The records up to the offset must have been copied.  The record is found by its number after the pair, and compared;
    where one side has lost records since (compaction, retention), the first equal one is taken.  Without any, the place
    of the pair is returned, which is not exact: records are read again, but none is skipped.

    `pair` None: the offset is before all that was copied.  Raises ApiError and ClusterUnreachable.
    """
    partition = mirror.partitions[tp]
    ends = (await offset_ranges(mirror.target, [tp], isolation=IsolationLevel.READ_COMMITTED))[tp]
    if pair is None:
        return ends.start, True
    if pair.source == offset:
        return pair.target, True
    sought = await anext(_records(mirror, tp, OffsetRange(offset, partition.position.offset)), None)
    if sought is None:
        return ends.end, True
    nearer = partition.offset_map.pair_before(sought.offset)
    if nearer is not None and nearer.source >= pair.source:
        pair = nearer
    if pair.source == sought.offset:
        return pair.target, True
    number = 0
    async for _ in _records(mirror, tp, OffsetRange(pair.source, sought.offset)):
        number += 1
    limit = partition.offset_map.target_after(sought.offset)
    copies = OffsetRange(max(pair.target, ends.start), ends.end if limit is None else limit + 1)
    match = None
    index = 0
    async for record in _records(mirror, tp, copies, is_copy=True):
        if _is_equal(record, sought):
            match = record.offset if match is None or index == number else match
        if match is not None and index >= number:
            return match, True
        index += 1
    return (pair.target, False) if match is None else (match, True)


def _records(
    mirror: Mirror, tp: TopicPartition, range_: OffsetRange, *, is_copy: bool = False
) -> AsyncIterator[Record]:
    """Yield the records of a range of the source or of the copy that are still there."""
    client = mirror.target if is_copy else mirror.source
    start = range_.start if is_copy else max(range_.start, mirror.partitions[tp].range.start)
    side = Side(client, tp, OffsetRange(start, range_.end), IsolationLevel.READ_COMMITTED, mirror.limits)
    return side.read()


def _is_equal(left: Record, right: Record) -> bool:
    return left.key == right.key and left.value == right.value and tuple(left.headers) == tuple(right.headers)


def describe(items: Collection[GroupOffset]) -> str:
    """Return how many offsets have each status."""
    statuses = sorted({item.status for item in items})
    return ", ".join(f"{sum(item.status == status for item in items)} {status}" for status in statuses) or counted(
        0, "offset"
    )

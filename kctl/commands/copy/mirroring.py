"""Commits the translated offsets of groups for the copy of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.group_offsets import commit_offsets
from kctl.admin.offset_document import CommittedOffset
from kctl.admin.offsets import offset_ranges
from kctl.client.committed_offsets import committed_offsets
from kctl.console import ERROR_COLUMNS, Column
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kctl.admin.copying import Copier
    from kctl.client.cluster import ClusterClient

MIRRORED_COLUMNS = (
    Column("group"),
    Column("partition", numeric=True),
    Column("source_offset", numeric=True),
    Column("target_offset", numeric=True),
    Column("status"),
    *ERROR_COLUMNS,
)


class Mirrored(NamedTuple):
    """The offset of a group in one partition; `target_offset` is None without a translation."""

    group: str
    partition: int
    source_offset: int
    target_offset: int | None
    status: str
    """committed, not copied, kept (the group is further in the target), would be committed, or failed."""
    error: str | None
    message: str | None


async def mirror_groups(
    target: ClusterClient, copier: Copier, groups: Mapping[str, Mapping[TopicPartition, int]], *, is_dry_run: bool
) -> list[Mirrored]:
    """Commits offsets of the groups for the partitions of the target topic; `groups` are those of the source."""
    topic = copier.plan.target
    ends = await offset_ranges(target, [TopicPartition(topic, tp.partition) for tp in copier.plan.bounds])
    for tp, translation in copier.counts.translations.items():
        position = copier.counts.partitions[tp].position
        translation.finish(position, ends[TopicPartition(topic, tp.partition)].end)
    rows: list[Mirrored] = []
    for group, offsets in groups.items():
        rows += [Mirrored(group, *row) for row in await _mirror(target, copier, group, offsets, is_dry_run=is_dry_run)]
    return rows


_Row = tuple[int, int, int | None, str, str | None, str | None]


async def _mirror(
    target: ClusterClient, copier: Copier, group: str, offsets: Mapping[TopicPartition, int], *, is_dry_run: bool
) -> list[_Row]:
    topic = copier.plan.target
    translated = {
        TopicPartition(topic, tp.partition): copier.counts.translations[tp].translated.get(offset)
        for tp, offset in offsets.items()
    }
    present = await target.on_coordinator(group, lambda connection: committed_offsets(connection, group, translated))
    moved = {tp: new for tp, new in translated.items() if new is not None and new > present.get(tp, -1)}
    offsets_to_commit = {tp: CommittedOffset(new) for tp, new in moved.items()}
    outcomes = {} if is_dry_run or not moved else await commit_offsets(target, group, offsets_to_commit)
    rows: list[_Row] = []
    for source, offset in sorted(offsets.items()):
        tp = TopicPartition(topic, source.partition)
        new, outcome = translated[tp], outcomes.get(tp)
        error = message = None
        if is_dry_run:
            begin, position = copier.plan.bounds[source][0], copier.counts.partitions[source].position
            new, status = None, "would be committed" if begin <= offset <= position else "not copied"
        elif new is None:
            status = "not copied"
        elif tp not in moved:
            new, status = present[tp], "kept"
        elif outcome is not None and not outcome.is_done:
            status, error, message = "failed", outcome.error.name, outcome.message
        else:
            status = "committed"
        rows.append((source.partition, offset, new, status, error, message))
    return rows

"""Rows of `kctl copy`: the partitions, and the offsets of groups that are translated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from kctl.admin.copy.groups import CopiedGroups
from kctl.commands.frame.output.rows import outcome_error
from kctl.model import TopicPartition
from kctl.output.console import ErrorName, ErrorText

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kctl.admin.copy.groups import Translated


class CopiedRow(NamedTuple):
    """The result of one source partition: offsets of the source, and counts."""

    partition: int
    start: int
    end: int
    position: Annotated[int, "Everything before it has been copied or left out."]
    read: int
    copied: int
    bytes: int
    status: Annotated[str, 'copied, interrupted, or with --dry-run "would be copied".']


class Mirrored(NamedTuple):
    """The offset of a group in one partition; `target_offset` is None without a translation."""

    group: str
    partition: int
    source_offset: int
    target_offset: int | None
    status: Annotated[
        str, "committed, not copied, kept (the group is further in the target), would be committed, or failed."
    ]
    error: ErrorName = None
    message: ErrorText = None


class CopyDocument(NamedTuple):
    """The JSON document of a copy with --groups."""

    partitions: list[CopiedRow]
    groups: list[Mirrored]


def mirrored(groups: CopiedGroups) -> list[Mirrored]:
    """Return the rows of the offsets after the copy."""
    return [_row(group, tp, offset, groups.done[group, tp]) for group, tp, offset in _items(groups)]


def mirrored_by_dry_run(groups: CopiedGroups, positions: Mapping[TopicPartition, int]) -> list[Mirrored]:
    """Return the rows of the offsets that a copy up to these positions would commit."""
    return [
        Mirrored(group, tp.partition, offset, None, "would be committed" if is_copied else "not copied")
        for group, tp, offset in _items(groups)
        for is_copied in (groups.translations[tp].begin <= offset <= positions[tp],)
    ]


def _items(groups: CopiedGroups) -> Iterator[tuple[str, TopicPartition, int]]:
    for group, offsets in groups.offsets.items():
        for tp, offset in sorted(offsets.items()):
            yield group, tp, offset


def _row(group: str, tp: TopicPartition, offset: int, result: Translated) -> Mirrored:
    if result.outcome.is_done:
        status = "kept" if result.is_kept else "committed"
    else:
        status = "not copied" if result.offset is None else "failed"
    return Mirrored(group, tp.partition, offset, result.offset, status, **outcome_error(result.outcome))

"""Rows of the offsets of groups that `kctl copy` translates."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.commands.rows import outcome_error
from kctl.console import ERROR_COLUMNS, Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kctl.admin.copy_groups import CopiedGroups, Translated
    from kctl.model import TopicPartition

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
    error: str | None = None
    message: str | None = None


def mirrored(groups: CopiedGroups) -> list[Mirrored]:
    """Rows of the offsets after the copy."""
    return [_row(group, tp, offset, groups.done[group, tp]) for group, tp, offset in _items(groups)]


def mirrored_by_dry_run(groups: CopiedGroups, positions: Mapping[TopicPartition, int]) -> list[Mirrored]:
    """Rows of the offsets that a copy up to these positions would commit."""
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

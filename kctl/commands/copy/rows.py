"""Rows of `kctl copy`: the partitions, and the offsets of groups that are translated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from kctl.admin.copy.groups import CopiedGroups
from kctl.commands.acls.rules import AclChangeRow
from kctl.commands.frame.output.rows import outcome_error
from kctl.model import TopicPartition
from kctl.output.console import JSON_ONLY, Column, ErrorName, ErrorText

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


class TopicRow(NamedTuple):
    """The result of one of several topics."""

    topic: str
    target: str
    partitions: Annotated[int, Column(drop_order=2)]
    read: Annotated[int, "Records that this run has read.", Column(drop_order=3)]
    copied: Annotated[int, "Records that this run has copied."]
    bytes: Annotated[int, Column(drop_order=1)]
    lag: Annotated[int | None, "Offsets of the topic after those that were copied, at the end."]
    status: Annotated[
        str,
        "verified, copied (--no-verify), different, not verified, failed, not copied, or with --dry-run "
        '"would be copied" and "would be created".',
    ]
    verified: Annotated[int | None, "Records that are equal in both topics; with compaction, keys."] = None
    groups: Annotated[list[Mirrored], JSON_ONLY] = []  # noqa: RUF012 - never changed
    acls: Annotated[list[AclChangeRow], JSON_ONLY, "With --acls: those that apply to the copy."] = []  # noqa: RUF012
    error: ErrorName = None
    message: ErrorText = None


class MirroredInTopic(NamedTuple):
    """The offset of a group in one partition of one of several topics."""

    topic: str
    group: str
    partition: int
    source_offset: int
    target_offset: int | None
    status: str
    error: ErrorName = None
    message: ErrorText = None


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

"""Rows of the verbs that delete groups and delete or reset committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.commands.rows import outcome_error
from kctl.console import ERROR_COLUMNS, Column

if TYPE_CHECKING:
    from kctl.admin.offset_reset import Reset
    from kctl.admin.outcome import Outcome
    from kctl.model import TopicPartition

_PARTITION_COLUMNS = (Column("group"), Column("topic"), Column("partition", numeric=True))
DELETE_COLUMNS = (Column("group"), Column("status"), *ERROR_COLUMNS)
DELETE_OFFSETS_COLUMNS = (
    *_PARTITION_COLUMNS,
    Column("offset", numeric=True),
    Column("status"),
    *ERROR_COLUMNS,
)
RESET_COLUMNS = (
    *_PARTITION_COLUMNS,
    Column("old_offset", numeric=True),
    Column("new_offset", numeric=True),
    Column("delta", numeric=True),
    Column("status"),
    *ERROR_COLUMNS,
)


class GroupDeletionRow(NamedTuple):
    """A group that is deleted, or whose offsets could not be looked up."""

    group: str
    status: str | None
    error: str | None = None
    message: str | None = None


class OffsetDeletionRow(NamedTuple):
    """A committed offset that is deleted, or a topic without any."""

    group: str
    topic: str
    partition: int | None
    offset: int | None
    status: str | None
    error: str | None = None
    message: str | None = None


class ResetRow(NamedTuple):
    """A partition whose committed offset is reset."""

    group: str
    topic: str
    partition: int | None
    old_offset: int | None
    new_offset: int | None
    delta: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    status: str | None
    error: str | None = None
    message: str | None = None


def deleted_offset_row(
    group: str, tp: TopicPartition, offset: int | None, status: str, outcome: Outcome
) -> OffsetDeletionRow:
    """One committed offset that is deleted."""
    return OffsetDeletionRow(
        group=group,
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        status=status if outcome.is_done else None,
        **outcome_error(outcome),
    )


def reset_row(reset: Reset, status: str, outcome: Outcome | None = None) -> ResetRow:
    """One partition of a group whose offset is reset; `outcome` is that of the commit, if there was one."""
    result = outcome or reset.outcome
    return ResetRow(
        group=reset.group,
        topic=reset.topic,
        partition=reset.partition,
        old_offset=reset.old,
        new_offset=reset.new,
        delta=reset.delta,
        log_start_offset=reset.held.start if reset.held else None,
        log_end_offset=reset.held.end if reset.held else None,
        status=status if result.is_done else None,
        **outcome_error(result),
    )

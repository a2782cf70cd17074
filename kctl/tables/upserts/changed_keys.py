"""What a batch has changed in the current state by key, and how an export keeps that state.  Pure, without Arrow."""

from __future__ import annotations

from typing import NamedTuple

from kctl.limits import Subject, bound
from kctl.output.quantities import counted
from kctl.tables.exec.selection.column_layout import PLAIN_LAYOUT, ColumnLayout
from kctl.tables.exec.selection.row_selection import HEADER_LIST, HeaderForm
from kctl.tables.exec.selection.upserts import UpsertOptions
from kctl.tables.plans.plan import Plan, Positions

STATE_FILE_BYTES = bound(
    Subject.EXPORTS,
    "rows of one file of an export with --mode upsert, as Arrow columns, unless all have the same hash",
    16 << 20,
    "bytes",
    on_excess="the file is divided by key",
)


CLOSED = "+closed-"
"""A part of the names of files with versions that have ended, which have no bucket."""


def is_closed_name(path: str) -> bool:
    """Return whether a file has only versions that have ended."""
    return CLOSED in path.rpartition("/")[2]


class StateOptions(NamedTuple):
    """How an export keeps the current state by key."""

    options: UpsertOptions
    bucket_bytes_max: int
    """Size of the rows of a file in memory, beyond which it is divided."""
    headers: HeaderForm = HEADER_LIST
    layout: ColumnLayout = PLAIN_LAYOUT


class ChangedKeys(NamedTuple):
    """Numbers of keys of a batch."""

    upserted: int = 0
    deleted: int = 0
    outdated: int = 0
    """Whose row has a later value of --order-by than the change."""
    moved: int = 0
    """Whose row is from another partition than the change."""
    is_cleared: bool = False
    """Whether all rows of before were removed, because the topic was created again."""

    def properties(self) -> dict[str, str]:
        """Return the numbers as properties of a commit."""
        return {
            "kctl.upserted-keys": str(self.upserted),
            "kctl.deleted-keys": str(self.deleted),
            "kctl.outdated-keys": str(self.outdated),
        }

    def notes(self, topic: str) -> list[str]:
        """Return what the user should know about the batch."""
        found = []
        if self.is_cleared:
            found.append(f"topic {topic} was created again: the rows of the former topic are removed")
        if self.moved:
            found.append(
                f"topic {topic}: {counted(self.moved, 'key is', 'keys are')} in several partitions, between which "
                "records have no order: the row is that of the batch that was exported last; give --order-by if a "
                "field tells which one is current"
            )
        return found


def is_created_again(plan: Plan, topic: str, before: Positions) -> bool:
    """Return whether the batch is of a topic that was deleted and created again, from its first offsets on.

    A partition whose log was truncated keeps its rows: the records that remain have not changed.
    """
    known = before.topics.get(topic)
    if known is None:
        return False
    return any(
        range_.replaced is None
        and (at := known.partitions.get(range_.tp.partition)) is not None
        and at.incarnation < range_.incarnation
        for range_ in plan.ranges
        if range_.tp.topic == topic
    )

"""The known facts about a group and a partition: the input of the rules of lag.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

WINDOW_MS = 300_000
"""Default period over which rates are computed, and in which a reader must have made progress."""


class Position(NamedTuple):
    """The committed offset at a time."""

    time_ms: int
    offset: int


class LogRange(NamedTuple):
    """The offsets of a partition that a reader can read: from `start` up to, not including, `end`."""

    start: int
    end: int
    """The high watermark, or the last stable offset for a reader with read_committed."""
    high_watermark: int


class Unread(NamedTuple):
    """The unread records, from a fetch at the committed offset.  Control records and aborted ones are not counted."""

    oldest_timestamp_ms: int | None = None
    """Timestamp of the first unread record; None if it has none or was not found."""
    records: int | None = None
    """Number of unread records; None if they were not read to the end."""


class Look(NamedTuple):
    """An earlier observation of the same partition."""

    time_ms: int
    committed: int | None
    start: int
    end: int


class Retention(NamedTuple):
    """When records are deleted; None for no limit or an unknown one."""

    ms: int | None = None
    bytes: int | None = None


NOTHING_FETCHED = Unread()
NO_LIMITS = Retention()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The known facts about a group and a partition at `now_ms`.  Times are in ms since the epoch."""

    now_ms: int
    log: LogRange
    committed: int | None
    """None without a commit: there never was one, or it has expired."""
    unread: Unread = NOTHING_FETCHED
    is_assigned: bool = False
    """Whether a live member is assigned the partition."""
    commits: tuple[Position, ...] = ()
    """Commits of the window in the order of time, from the history of the group."""
    commits_since_ms: int | None = None
    """`commits` has all commits since this time; None if the history is unknown."""
    looks: tuple[Look, ...] = ()
    """Earlier observations in the window, in the order of time."""
    end_before: Position | None = None
    """The first offset with a timestamp of this time or later, from the time index."""
    retention: Retention = NO_LIMITS
    size_bytes: int | None = None
    """Size of the partition's log."""
    window_ms: int = WINDOW_MS

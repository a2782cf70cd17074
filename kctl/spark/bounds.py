"""Where an export starts and ends in partitions: --from and --until, and what they mean in a given partition.  Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kctl.errors import UsageError
from kctl.model import TopicPartition


class From(Enum):
    """From where a bound is counted."""

    START = "start"
    END = "end"
    ZERO = "zero"
    TIME = "time"


class Bound(NamedTuple):
    """A place in a partition as the user said it: `value` is a count from the anchor, or a timestamp in ms."""

    anchor: From
    value: int = 0


EARLIEST = Bound(From.START)
LATEST = Bound(From.END)


class Extent(NamedTuple):
    """What a partition holds, and where the bounds that are times fall in it."""

    log_start: int
    end: int
    offset_at: dict[int, int]
    """Per timestamp in ms the first offset at or after it; `end` when there is none."""


def resolve(bound: Bound, tp: TopicPartition, extent: Extent) -> int:
    """The offset that `bound` means.

    Offsets said as numbers may be below the log's start (planning judges that), but not beyond its end: UsageError.
    """
    match bound.anchor:
        case From.START:
            return min(extent.log_start + bound.value, extent.end)
        case From.END:
            return max(extent.end + bound.value, extent.log_start)
        case From.TIME:
            return extent.offset_at[bound.value]
        case From.ZERO:
            if bound.value > extent.end:
                raise UsageError(f"{tp} ends at offset {extent.end}, before {bound.value}")
            return bound.value


def resolve_until(bound: Bound, tp: TopicPartition, extent: Extent) -> int:
    """The same for the end of an export, where an offset beyond the log's end means the end."""
    return extent.end if bound.anchor is From.ZERO and bound.value > extent.end else resolve(bound, tp, extent)

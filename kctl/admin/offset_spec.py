"""A place in a partition as a user says it: from the start, from the end, a number, or a point in time."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Anchor(Enum):
    """From where an offset is counted."""

    START = "start"
    END = "end"
    ZERO = "zero"
    TIME = "time"


class OffsetSpec(NamedTuple):
    """`value` is a count from the anchor, or for TIME a timestamp in ms."""

    anchor: Anchor
    value: int = 0


START = OffsetSpec(Anchor.START)
END = OffsetSpec(Anchor.END)

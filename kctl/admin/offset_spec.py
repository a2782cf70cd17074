"""An offset given by a user: relative to the start or end, a number, or a time."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Anchor(Enum):
    """The reference point of an offset."""

    START = "start"
    END = "end"
    ZERO = "zero"
    TIME = "time"


class OffsetSpec(NamedTuple):
    """`value` is the distance from the anchor, or for TIME a timestamp in ms."""

    anchor: Anchor
    value: int = 0


START = OffsetSpec(Anchor.START)
END = OffsetSpec(Anchor.END)

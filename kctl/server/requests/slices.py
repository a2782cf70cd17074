"""Building a long answer in slices, between which the event loop serves other connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from kctl.limits import SLICE_OBJECTS

T = TypeVar("T")


async def in_slices(parts: Iterable[T], size_of: Callable[[T], int]) -> list[T]:
    """The parts of an answer, made one after the other; the loop runs whatever else is ready after SLICE_OBJECTS.

    `size_of` tells how many objects a part that was just made consists of.
    """
    made: list[T] = []
    left = SLICE_OBJECTS
    for part in parts:
        made.append(part)
        left -= size_of(part)
        if left <= 0:
            left = SLICE_OBJECTS
            await asyncio.sleep(0)
    return made

"""Builds a long response in slices, between which the event loop serves other connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from kctl.limits import SLICE_OBJECTS

T = TypeVar("T")


def _one(_: object) -> int:
    return 1


async def in_slices(parts: Iterable[T], size_of: Callable[[T], int] = _one) -> list[T]:
    """The parts of a response as a list; yields to the event loop after every SLICE_OBJECTS objects.

    `size_of` returns the number of objects in a part.
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

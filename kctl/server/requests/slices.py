"""Does long work in slices, between which the event loop serves other connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
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


async def end_of(work: Generator[None, None, T]) -> T:
    """Runs a generator that yields between its slices; returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)

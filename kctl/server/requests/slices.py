"""Does long work in slices, between which the event loop serves other connections.

However many requests need long work, one iteration of the event loop runs one slice, first come, first served.
Otherwise the slices of a hundred such requests would follow each other without a pause.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

from kctl.limits import SLICE_OBJECTS

T = TypeVar("T")


class _Pauses:
    """The long work of one event loop that waits for its next slice."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def end(self) -> None:
        """Waits until an iteration of the loop has time for a slice."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._resume_one, loop)
        resumed = loop.create_future()
        self._waiting.append(resumed)
        await resumed

    def _resume_one(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            resumed = self._waiting.popleft()
            if not resumed.done():  # Otherwise it was cancelled.
                resumed.set_result(None)
                break
        if self._waiting:
            loop.call_soon(self._resume_one, loop)


_pauses: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pauses] = WeakKeyDictionary()


async def pause() -> None:
    """Ends a slice of long work; returns when the next one may run."""
    loop = asyncio.get_running_loop()
    pauses = _pauses.get(loop)
    if pauses is None:
        pauses = _pauses[loop] = _Pauses()
    await pauses.end()


def _one(_: object) -> int:
    return 1


async def in_slices(parts: Iterable[T], size_of: Callable[[T], int] = _one) -> list[T]:
    """The parts of a response as a list; pauses after every SLICE_OBJECTS objects.

    `size_of` returns the number of objects in a part.
    """
    made: list[T] = []
    left = SLICE_OBJECTS
    for part in parts:
        made.append(part)
        left -= size_of(part)
        if left <= 0:
            left = SLICE_OBJECTS
            await pause()
    return made


async def end_of(work: Generator[None, None, T], steps_per_slice: int = 1, *, is_urgent: bool = False) -> T:
    """Runs a generator that yields between its steps, in slices of so many steps; returns its result.

    Urgent work, of the controller, does not wait for that of clients.
    """
    while True:
        try:
            for _ in range(steps_per_slice):
                next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await (asyncio.sleep(0) if is_urgent else pause())


def at_once(work: Generator[None, None, T]) -> T:
    """As `end_of`, without pauses: for work that is known to be short."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def pieces(objects: Sequence[T], size: int = SLICE_OBJECTS) -> Iterator[Sequence[T]]:
    """The objects in sequences of at most `size`."""
    for start in range(0, len(objects), size):
        yield objects[start : start + size]

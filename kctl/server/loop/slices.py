"""Does long work in slices, between which the event loop serves other connections.

However many requests need long work, one iteration of the event loop runs one slice.  Otherwise the slices of a hundred
such requests would follow each other without a pause.  The oldest request continues first: if they took turns, all of
their responses would grow in memory at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from kctl.limits import COSTLY_ELEMENTS_PER_SLICE_MAX, REQUEST_ELEMENTS_PER_SLICE_MAX, SLICE_OBJECTS
from kctl.protocol.codec import arrays_of

T = TypeVar("T")


class _Pauses:
    """The long work of one event loop that waits for its next slice."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        """A heap, by the age of the task."""
        self._ages: WeakKeyDictionary[asyncio.Task[object], int] = WeakKeyDictionary()
        """Tasks that have paused, in the order of their first pauses."""
        self._tasks = 0
        self._holds = 0
        self._is_due = False

    async def end(self) -> None:
        """Waits until an iteration of the loop has time for a slice of this task, and no older one needs it."""
        loop = asyncio.get_running_loop()
        resumed = loop.create_future()
        heapq.heappush(self._waiting, (self._age(), resumed))
        self._schedule(loop)
        await resumed

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Stops the slices of all tasks."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._schedule(asyncio.get_running_loop())

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and not self._holds and not self._is_due:
            self._is_due = True
            loop.call_soon(self._resume_one, loop)

    def _age(self) -> int:
        task = asyncio.current_task()
        assert task is not None, "only tasks can wait"
        age = self._ages.get(task)
        if age is None:
            self._tasks += 1
            age = self._ages[task] = self._tasks
        return age

    def _resume_one(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_due = False
        while self._waiting and not self._holds:
            _, resumed = heapq.heappop(self._waiting)
            if not resumed.done():  # Otherwise it was cancelled.
                resumed.set_result(None)
                break
        self._schedule(loop)


_pauses: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pauses] = WeakKeyDictionary()


async def pause() -> None:
    """Ends a slice of long work; returns when the next one may run."""
    await _of_this_loop().end()


def held() -> contextlib.AbstractContextManager[None]:
    """Stops long work while a long response waits until it is encoded, so that few of them are in memory."""
    return _of_this_loop().held()


def _of_this_loop() -> _Pauses:
    loop = asyncio.get_running_loop()
    pauses = _pauses.get(loop)
    if pauses is None:
        pauses = _pauses[loop] = _Pauses()
    return pauses


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


class Pace:
    """Pauses after so many elements of a request, in whichever of its arrays they are."""

    def __init__(self, per_slice: int = REQUEST_ELEMENTS_PER_SLICE_MAX) -> None:
        self._per_slice = self._left = per_slice

    async def over(self, elements: Iterable[T], size_of: Callable[[T], int] = _one) -> AsyncIterator[T]:
        """The elements; `size_of` returns how many usual ones take as long as one of them."""
        for element in elements:
            if self._left <= 0:
                self._left = self._per_slice
                await pause()
            self._left -= size_of(element)
            yield element


def paced(elements: Iterable[T], size_of: Callable[[T], int] = _one) -> AsyncIterator[T]:
    """The elements of a request, at a pace of their own."""
    return Pace().over(elements, size_of)


def size_of_id(group_or_transaction: str) -> int:
    """How many usual elements take as long as this id: hashing 32,000 characters takes 2 to 5 ms."""
    return 1 + len(group_or_transaction) // _ID_CHARACTERS_PER_ELEMENT


_ID_CHARACTERS_PER_ELEMENT = 64


async def results_of(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of coroutines that run at the same time; they are started in slices."""
    started = [asyncio.ensure_future(each) async for each in Pace(COSTLY_ELEMENTS_PER_SLICE_MAX).over(work)]
    return await asyncio.gather(*started)


async def release(arrays: Iterable[list[Any]]) -> None:
    """Frees the elements of arrays of a controller's request, in this order: arrays within elements come first.

    Freeing 100,000 partitions at once takes tens of milliseconds.
    """
    pace = Pace()
    async for elements in pace.over(arrays):
        async for _ in pace.over(range(len(elements))):
            elements.pop()


async def release_message(only: list[Any]) -> None:
    """Frees a message to which nothing but the list `only` refers, one element after the other.

    Its arrays are not changed, because other messages may share them: what they refer to is held until they are gone.
    """
    held, pace = only, Pace()
    async for each in pace.over(held):  # Also over what is added meanwhile.
        held += chain.from_iterable(arrays_of(each))
    del each
    held.reverse()
    await release([held])


def begin(work: Generator[None, None, T | Awaitable[T]]) -> T | Awaitable[T]:
    """Handles a request that is usually short, by a generator that yields after each of its elements.

    Returns the result if that took at most one slice, else an awaitable of it.
    """
    for _ in range(REQUEST_ELEMENTS_PER_SLICE_MAX):
        try:
            next(work)
        except StopIteration as end:
            result: T | Awaitable[T] = end.value
            return result
    return _rest(work)


async def _rest(work: Generator[None, None, T | Awaitable[T]]) -> T:
    await pause()
    result = await end_of(work, REQUEST_ELEMENTS_PER_SLICE_MAX)
    return await result if isinstance(result, Awaitable) else result


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

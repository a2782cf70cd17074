"""Does long work in slices, between which the event loop serves other connections.

A loop that may be long iterates over `sliced(elements)`, or over `sliced_batches(elements, size)` if its body takes
several elements together.  Several loops of one request share the slices of one `Slices`, so that a request with many
short arrays pauses as often as one with a long array.  A request that is usually short is handled by a coroutine that
is `started`: it costs a task only if it pauses.  Pure code has no event loop: it is a generator that yields where a
slice may end (kctl/system/steps.py), and `run_steps` runs it.

What a loop has read before a pause may have changed after it.  The next element is taken from its iterator after the
pause, so that nothing happens between the creation of an element and its use.

However many requests need long work, one iteration of the event loop runs one slice.  Otherwise the slices of a hundred
such requests would follow each other without a pause.  The oldest request continues first: if they took turns, all of
their responses would grow in memory at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from kctl.limits import COSTLY_ELEMENTS_PER_SLICE_MAX, REQUEST_ELEMENTS_PER_SLICE_MAX, SLICE_OBJECTS
from kctl.protocol.codec import arrays_of
from kctl.system.steps import Steps

T = TypeVar("T")
_END: Any = object()
"""What iterators return after the last element."""


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
        """Wait until an iteration of the loop has time for a slice of this task, and no older one needs it."""
        loop = asyncio.get_running_loop()
        resumed = loop.create_future()
        heapq.heappush(self._waiting, (self._age(), resumed))
        self._schedule(loop)
        await resumed

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Stop the slices of all tasks."""
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
        if task is not None and task in self._ages:
            return self._ages[task]
        self._tasks += 1
        if task is not None:  # The first slice of work that is `started` is not in a task; the others are.
            self._ages[task] = self._tasks
        return self._tasks

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
    """End a slice of long work; return when the next one may run."""
    await _of_this_loop().end()


def held() -> contextlib.AbstractContextManager[None]:
    """Stop long work while a long response waits until it is encoded, so that few of them are in memory."""
    return _of_this_loop().held()


def _of_this_loop() -> _Pauses:
    loop = asyncio.get_running_loop()
    pauses = _pauses.get(loop)
    if pauses is None:
        pauses = _pauses[loop] = _Pauses()
    return pauses


class Slices:
    """Pauses after so many elements, in whichever of the loops of one request they are."""

    def __init__(self, per_slice: int = REQUEST_ELEMENTS_PER_SLICE_MAX, *, is_urgent: bool = False) -> None:
        """Urgent work, of the controller, does not wait for that of clients."""
        self._per_slice = self._left = per_slice
        self._is_urgent = is_urgent

    async def of(self, elements: Iterable[T], size_of: Callable[[T], int] | None = None) -> AsyncIterator[T]:
        """Yield the elements; `size_of` returns how many usual ones take as long as one of them."""
        iterator = iter(elements)
        while True:
            if self._left <= 0:
                self._left = self._per_slice
                await (asyncio.sleep(0) if self._is_urgent else pause())
            element = next(iterator, _END)
            if element is _END:
                return
            self._left -= 1 if size_of is None else size_of(element)
            yield element


def sliced(
    elements: Iterable[T],
    per_slice: int = REQUEST_ELEMENTS_PER_SLICE_MAX,
    size_of: Callable[[T], int] | None = None,
    *,
    is_urgent: bool = False,
) -> AsyncIterator[T]:
    """Return the elements, in slices of their own.  See `Slices`."""
    return Slices(per_slice, is_urgent=is_urgent).of(elements, size_of)


async def sliced_batches(
    elements: Sequence[T], size: int = SLICE_OBJECTS, *, is_urgent: bool = False
) -> AsyncIterator[Sequence[T]]:
    """Yield the elements in sequences of at most `size`, each of which is a slice."""
    for start in range(0, len(elements), size):
        if start:
            await (asyncio.sleep(0) if is_urgent else pause())
        yield elements[start : start + size]


def batches(elements: Sequence[T], size: int = SLICE_OBJECTS) -> Iterator[Sequence[T]]:
    """Yield the elements in sequences of at most `size`, without a pause, for loops that wait for each of them
    anyway.
    """
    for start in range(0, len(elements), size):
        yield elements[start : start + size]


async def gather_sliced(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of coroutines that run at the same time; they are started in slices."""
    tasks = [asyncio.ensure_future(coroutine) async for coroutine in sliced(work, COSTLY_ELEMENTS_PER_SLICE_MAX)]
    return await asyncio.gather(*tasks)


def size_of_id(group_or_transaction: str) -> int:
    """Return how many usual elements take as long as this id: hashing 32,000 characters takes 2 to 5 ms."""
    return 1 + len(group_or_transaction) // _ID_CHARACTERS_PER_ELEMENT


_ID_CHARACTERS_PER_ELEMENT = 64


def started(work: Coroutine[Any, Any, T]) -> T | Awaitable[T]:
    """Run a coroutine until it waits or ends; return its result, or an awaitable that runs the rest.

    Until it waits for the first time, the coroutine must not need a task, as `asyncio.timeout` does.
    """
    try:
        awaited = work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    return _rest(work, awaited)


async def _rest(work: Coroutine[Any, Any, T], awaited: object) -> T:
    return await _resumed(work, awaited)


@types.coroutine
def _resumed(work: Coroutine[Any, Any, T], awaited: object) -> Generator[Any, Any, T]:
    """Continue a coroutine that waits for `awaited`: the task that runs this one waits for it instead."""
    try:
        while True:
            try:
                value = yield awaited
            except BaseException as error:
                awaited = work.throw(error)
            else:
                awaited = work.send(value)
    except StopIteration as end:
        result: T = end.value
        return result


async def release(arrays: Iterable[list[Any]]) -> None:
    """Free the elements of arrays of a controller's request, in this order: arrays within elements come first.

    Freeing 100,000 partitions at once takes tens of milliseconds.
    """
    slices = Slices()
    async for elements in slices.of(arrays):
        async for _ in slices.of(range(len(elements))):
            elements.pop()


async def release_message(only: list[Any]) -> None:
    """Free a message to which nothing but the list `only` refers, one element after the other.

    Its arrays are not changed, because other messages may share them: what they refer to is held until they are gone.
    """
    held = only
    async for element in sliced(held):  # Also over what is added meanwhile.
        held += chain.from_iterable(arrays_of(element))
    del element
    held.reverse()
    await release([held])


async def run_steps(steps: Steps[T], *, is_urgent: bool = False) -> T:
    """Run a generator with a pause wherever it yields; return its result.

    Urgent work, of the controller, does not wait for that of clients.
    """
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await (asyncio.sleep(0) if is_urgent else pause())

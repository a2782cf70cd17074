"""The groups or transactional ids of all partitions that a coordinator leads, by id.

A partition has its own objects (`LedPartition.objects`), so that those of a partition that is loaded or lost start and
stop being found by one flag, however many they are.  They are added before that and removed after that, some at a time.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol, TypeVar, overload

from kctl.server.coordination.partitions import LedPartition
from kctl.system.environment import Timer, TimerTask

# Periodic checks of all objects of a coordinator, some at a time, so that no request waits for all of them.
#
# A failure for one object is logged, and the others and the next check are not affected.
#
# Owner: event loop.


log = logging.getLogger(__name__)

T = TypeVar("T")


def visit_all(hosted: Iterable[T], visit: Callable[[T], int]) -> int:
    """Call `visit` for each of them now; return the sum of its results."""
    size = 0
    for object_ in hosted:
        try:
            size += visit(object_)
        except Exception:
            log.exception("cannot check an object, continuing with the next object=%r", object_)
            size += 1
    return size


def taken(waiting: deque[T]) -> Iterator[T]:
    """Take the objects out, the first one first."""
    while waiting:
        yield waiting.popleft()


class Turns:
    """Walks over many objects: some objects of all walks in each turn of the loop.

    Walks that are begun while others are under way get their part of each turn, so that turns do not become longer.
    """

    def __init__(self, timer: Timer, per_turn: int) -> None:
        """`per_turn` is the sum of the results of `visit` after which a turn ends."""
        self._timer = timer
        self._per_turn = per_turn
        self._walks: deque[Iterator[int]] = deque()
        """Each visits an object when it is continued; while there are any, a turn is scheduled."""

    def visit(self, waiting: Iterator[T], visit: Callable[[T], int]) -> None:
        """Call `visit` for the first objects now, unless others are under way, and for the rest in later turns.

        `visit` returns how many usual objects took as long as this one.
        """
        is_idle = not self._walks
        self._walks.append(visit_all((object_,), visit) for object_ in waiting)
        if is_idle:
            self._run()

    def _run(self) -> None:
        left = self._per_turn
        while self._walks and left > 0:
            size = next(self._walks[0], None)
            if size is None:
                self._walks.popleft()
            else:
                left -= size
                self._walks.rotate(-1)
        if self._walks:
            self._timer.schedule(0, self._run)


class PeriodicChecks:
    """Periodic checks, until `cancel`."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._due: dict[Callable[[], None], TimerTask] = {}

    def every(self, interval_ms: int, check: Callable[[], None]) -> None:
        """Call `check` after each interval, for the first time when the first interval has passed."""

        def due() -> None:
            # Scheduled before the check, which may fail.
            self.every(interval_ms, check)
            check()

        self._due[check] = self._timer.schedule(interval_ms, due)

    def cancel(self) -> None:
        """Cancel all periodic checks."""
        for task in self._due.values():
            task.cancel()
        self._due.clear()


_LEAVERS_AT_ONCE = 50
"""How many are unloaded in an iteration of the loop at a stop."""
D = TypeVar("D")


class Hosted(Protocol):
    """A group or a transactional id."""

    @property
    def partition(self) -> LedPartition[Any]:
        """The partition of the internal topic to which it belongs."""
        ...


HostedT = TypeVar("HostedT", bound=Hosted)


class HostedObjects(Mapping[str, HostedT]):
    """Finds the objects of the partitions that are served; others, which are loaded or removed, are not found."""

    def __init__(self, turns: Turns, unload: Callable[[HostedT], int]) -> None:
        """`unload` ends an object that has been removed, and returns its size for `turns`."""
        self._turns = turns
        self._unload = unload
        self._by_id: dict[str, HostedT] = {}
        self._served = 0
        self._leaving: deque[LedPartition[HostedT]] = deque()
        """Partitions whose objects are to be unloaded; while there are any, a turn is scheduled."""

    def __getitem__(self, key: str) -> HostedT:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    @overload
    def get(self, key: str, /) -> HostedT | None: ...
    @overload
    def get(self, key: str, /, default: HostedT | D) -> HostedT | D: ...
    def get(self, key: str, /, default: HostedT | D | None = None) -> HostedT | D | None:
        """Return the object, if its partition is served."""
        found = self._by_id.get(key)
        return found if found is not None and found.partition.is_served else default

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def __len__(self) -> int:
        return self._served

    def __iter__(self) -> Iterator[str]:
        return (key for key in list(self._by_id) if key in self)

    def present(self) -> Iterator[HostedT]:
        """Yield the objects that exist now, also those that are loaded, hidden or removed when it is their turn.

        An object that is removed meanwhile is freed when it is passed, not at the end together with all others.
        """
        waiting = list(self._by_id.values())
        waiting.reverse()
        while waiting:
            yield waiting.pop()

    def add(self, key: str, added: HostedT) -> None:
        """Add an object to its partition; it is found when the partition is served."""
        partition = added.partition
        self._by_id[key] = partition.objects[key] = added
        self._served += partition.is_served

    def remove(self, key: str, removed: HostedT) -> None:
        """Remove an object, unless that has been done."""
        if self._by_id.get(key) is removed:
            del self._by_id[key]
        if removed.partition.objects.pop(key, None) is not None:
            self._served -= removed.partition.is_served

    def serve(self, partition: LedPartition[HostedT]) -> None:
        """Make the objects of a partition visible."""
        partition.is_served = True
        self._served += len(partition.objects)

    def leave(self, partition: LedPartition[HostedT]) -> int:
        """Hide the objects of a partition and unload them in this and later turns of the loop; return their number."""
        count = len(partition.objects)
        if partition.is_served:
            partition.is_served = False
            self._served -= count
        is_idle = not self._leaving
        self._leaving.append(partition)
        if is_idle:
            self._turns.visit(self._leavers(), self._unload)
        return count

    async def left(self) -> None:
        """Return when all objects of partitions that are not served any more are unloaded."""
        while self._leaving:
            visit_all(islice(self._leavers(), _LEAVERS_AT_ONCE), self._unload)
            await asyncio.sleep(0)

    def _leavers(self) -> Iterator[HostedT]:
        while self._leaving:
            objects = self._leaving[0].objects
            if objects:
                key, object_ = objects.popitem()
                self.remove(key, object_)
                yield object_
            else:
                self._leaving.popleft()

"""The groups or transactional ids of all partitions that a coordinator leads, by id.

A partition has its own objects (`LedPartition.objects`), so that those of a partition that is loaded or lost start and
stop being found by one flag, however many they are.  They are added before that and removed after that, some at a time.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol, TypeVar, overload

from kctl.server.coordinators.partitions import LedPartition
from kctl.server.coordinators.periodic_checks import Turns, visit_all

_LEAVERS_AT_ONCE = 50
"""How many are unloaded in an iteration of the loop at a stop."""
D = TypeVar("D")


class Hosted(Protocol):
    """A group or a transactional id."""

    @property
    def partition(self) -> LedPartition[Any]:
        """The partition of the internal topic to which it belongs."""
        ...


T = TypeVar("T", bound=Hosted)


class HostedObjects(Mapping[str, T]):
    """Finds the objects of the partitions that are served; others, which are loaded or removed, are not found."""

    def __init__(self, turns: Turns, unload: Callable[[T], int]) -> None:
        """`unload` ends an object that has been removed, and returns its size for `turns`."""
        self._turns = turns
        self._unload = unload
        self._by_id: dict[str, T] = {}
        self._served = 0
        self._leaving: deque[LedPartition[T]] = deque()
        """Partitions whose objects are to be unloaded; while there are any, a turn is scheduled."""

    def __getitem__(self, key: str) -> T:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    @overload
    def get(self, key: str, /) -> T | None: ...
    @overload
    def get(self, key: str, /, default: T | D) -> T | D: ...
    def get(self, key: str, /, default: T | D | None = None) -> T | D | None:
        """The object, if its partition is served."""
        found = self._by_id.get(key)
        return found if found is not None and found.partition.is_served else default

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def __len__(self) -> int:
        return self._served

    def __iter__(self) -> Iterator[str]:
        return (key for key in list(self._by_id) if key in self)

    def present(self) -> Iterator[T]:
        """The objects that exist now, also those that are loaded, hidden or removed when it is their turn.

        An object that is removed meanwhile is freed when it is passed, not at the end together with all others.
        """
        waiting = list(self._by_id.values())
        waiting.reverse()
        while waiting:
            yield waiting.pop()

    def add(self, key: str, added: T) -> None:
        """Adds an object to its partition; it is found when the partition is served."""
        partition = added.partition
        self._by_id[key] = partition.objects[key] = added
        self._served += partition.is_served

    def remove(self, key: str, removed: T) -> None:
        """Removes an object, unless that has been done."""
        if self._by_id.get(key) is removed:
            del self._by_id[key]
        if removed.partition.objects.pop(key, None) is not None:
            self._served -= removed.partition.is_served

    def serve(self, partition: LedPartition[T]) -> None:
        """Makes the objects of a partition visible."""
        partition.is_served = True
        self._served += len(partition.objects)

    def leave(self, partition: LedPartition[T]) -> int:
        """Hides the objects of a partition and unloads them in this and later turns of the loop; their number."""
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
        """Returns when all objects of partitions that are not served any more are unloaded."""
        while self._leaving:
            visit_all(islice(self._leavers(), _LEAVERS_AT_ONCE), self._unload)
            await asyncio.sleep(0)

    def _leavers(self) -> Iterator[T]:
        while self._leaving:
            objects = self._leaving[0].objects
            if objects:
                key, each = objects.popitem()
                self.remove(key, each)
                yield each
            else:
                self._leaving.popleft()

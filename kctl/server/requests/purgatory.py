"""Where requests wait until something happens or their time is up.  Kafka's DelayedOperationPurgatory.

An operation watches keys (partitions, groups).  Whoever changes what a key stands for calls `check(key)`; each watcher
looks whether it can complete now.  An operation completes once: by `try_complete`, by its timeout, or by failing.  One
that fails does not disturb whoever made the change, nor the other watchers.

An operation leaves with its caller: it is forgotten when its future is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kctl.environment import Timer, TimerTask
from kctl.limits import DELAYED_TRIED_MAX

K = TypeVar("K", bound=Hashable)


class DelayedOperation(Protocol):
    """Something that waits; its caller waits for `future`."""

    @property
    def future(self) -> asyncio.Future[Any] | None: ...

    def try_complete(self) -> bool:
        """Completes if it can; answers whether it has."""
        ...

    def on_timeout(self) -> None:
        """Completes with what there is."""
        ...


class _Waiting(Generic[K]):
    __slots__ = ("done", "is_trying", "keys", "operation", "timeout")

    def __init__(self, operation: DelayedOperation, keys: tuple[K, ...]) -> None:
        self.operation = operation
        self.keys = keys
        self.done = False
        self.is_trying = False
        self.timeout: TimerTask | None = None


class Purgatory(Generic[K]):
    """The waiting operations of one kind.  Owner: event loop."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._watchers: dict[K, dict[_Waiting[K], None]] = {}
        self._size = 0

    def __len__(self) -> int:
        """How many operations wait."""
        return self._size

    def complete_or_watch(self, operation: DelayedOperation, keys: Iterable[K], timeout_ms: int) -> None:
        """Completes the operation now if possible, else when a key is checked, at the latest after `timeout_ms`."""
        if operation.try_complete():
            return
        waiting = _Waiting(operation, tuple(keys))
        for key in waiting.keys:
            self._watchers.setdefault(key, {})[waiting] = None
        self._size += 1
        if operation.future is not None:
            operation.future.add_done_callback(partial(self._caller_done, waiting))
        waiting.timeout = self._timer.schedule(timeout_ms, lambda: self._expire(waiting))

    def watches(self, key: K) -> bool:
        """Whether anything waits for this key; a cheap question for the hot path."""
        return key in self._watchers

    def check(self, *keys: K) -> None:
        """Something changed for the keys: completes what can complete.

        What waits for several of them is tried once, as a follower's fetch does that waits for hundreds of partitions
        and looks at each of them in every try.
        """
        if self._watchers:
            self._try_in_slices([*{waiting: None for key in keys for waiting in self._watchers.get(key, ())}])

    def expire_all(self) -> None:
        """Completes everything with what there is; for shutdown."""
        for waiting in {w: None for watchers in self._watchers.values() for w in watchers}:
            self._expire(waiting)

    def _try_in_slices(self, waiting: list[_Waiting[K]]) -> None:
        """The first DELAYED_TRIED_MAX now, the others in later iterations of the loop."""
        for each in waiting[:DELAYED_TRIED_MAX]:
            if not each.done and not each.is_trying:
                self._try(each)
        if len(waiting) > DELAYED_TRIED_MAX:
            asyncio.get_running_loop().call_soon(self._try_in_slices, waiting[DELAYED_TRIED_MAX:])

    def _try(self, waiting: _Waiting[K]) -> None:
        """An operation may wake others of its key while it completes, but not itself."""
        waiting.is_trying = True
        try:
            if waiting.operation.try_complete():
                self._remove(waiting)
        except Exception as error:
            self._remove(waiting)
            _fail(waiting.operation, error)
        finally:
            waiting.is_trying = False

    def _expire(self, waiting: _Waiting[K]) -> None:
        if waiting.done:
            return
        self._remove(waiting)
        try:
            waiting.operation.on_timeout()
        except Exception as error:
            _fail(waiting.operation, error)

    def _caller_done(self, waiting: _Waiting[K], future: asyncio.Future[Any]) -> None:
        if future.cancelled() and not waiting.done:
            self._remove(waiting)

    def _remove(self, waiting: _Waiting[K]) -> None:
        waiting.done = True
        self._size -= 1
        if waiting.timeout is not None:
            waiting.timeout.cancel()
        for key in waiting.keys:
            watchers = self._watchers.get(key)
            if watchers is not None:
                watchers.pop(waiting, None)
                if not watchers:
                    del self._watchers[key]


def _fail(operation: DelayedOperation, error: Exception) -> None:
    """Gives the error to the caller of the operation, or to the loop if there is none."""
    if operation.future is None:
        asyncio.get_running_loop().call_exception_handler({"message": "a delayed operation failed", "exception": error})
    elif not operation.future.done():
        operation.future.set_exception(error)

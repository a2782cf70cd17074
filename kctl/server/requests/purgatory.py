"""Delayed operations: requests that wait for an event or a timeout.  Kafka: DelayedOperationPurgatory.

An operation watches keys (partitions, groups).  Code that changes the state of a key calls `check(key)`, which tries to
complete the operations that watch it.  They get the changed keys: an operation that watches thousands of partitions,
each of which changes, must not examine all of them each time.  An operation completes once: by `try_complete`, by its
timeout, or by failing.  A failure does not affect the caller of `check` or the other operations.

An operation is removed when its future is cancelled, that is, when its caller is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, KeysView, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kctl.limits import SLICE_OBJECTS, Subject, bound
from kctl.server.loop.slices import sliced_batches
from kctl.system.environment import Timer, TimerTask

DELAYED_TRIED_MAX = bound(
    Subject.CONNECTIONS,
    "waiting requests that one change completes in a row; one that waits for 50 partitions counts as two",
    100,
    "requests",
    on_excess="the other connections get their turn first",
)


K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)
_KEYS_AS_ONE_OPERATION = 50
"""An operation with this many keys counts twice for DELAYED_TRIED_MAX, since its response describes all of them."""


class DelayedOperation(Protocol[K_contra]):
    """An operation that waits; its caller awaits `future`."""

    @property
    def future(self) -> asyncio.Future[Any] | None:
        """The future of its result."""
        ...

    def try_complete(self, changed: Collection[K_contra]) -> bool:
        """Complete if possible; return True if it has completed.

        Only the keys in `changed` have changed since the last try.
        """
        ...

    def on_timeout(self) -> None:
        """Complete with the current state."""
        ...


class Changes(Generic[K]):
    """An operation whose caller examines the changed keys itself, in slices: collects them until it takes them.

    Several callers may not take at the same time.
    """

    future: asyncio.Future[Any] | None = None

    def __init__(self) -> None:
        self.is_over = False
        """Whether the timeout has passed."""
        self._changed: dict[K, None] = {}
        self._wake: asyncio.Future[None] | None = None

    def try_complete(self, changed: Collection[K]) -> bool:
        """Store the changed keys, and complete nothing."""
        self._changed.update(dict.fromkeys(changed))
        self._wake_caller()
        return False

    def on_timeout(self) -> None:
        """Set `is_over`."""
        self.is_over = True
        self._wake_caller()

    async def take(self) -> list[K]:
        """Return the keys that have changed since the last call; wait until there are some or `is_over`."""
        if not self._changed and not self.is_over:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        changed, self._changed = list(self._changed), {}
        return changed

    def _wake_caller(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class _Waiting(Generic[K]):
    __slots__ = ("done", "is_trying", "keys", "on_caller_done", "operation", "timeout")

    def __init__(self, operation: DelayedOperation[K], keys: Sequence[K]) -> None:
        self.operation = operation
        self.keys = keys
        self.done = False
        self.is_trying = False
        self.timeout: TimerTask | None = None
        self.on_caller_done: Callable[[asyncio.Future[Any]], None] | None = None
        """The callback of the future, until the operation is done; None if it has no future."""


class Purgatory(Generic[K]):
    """The delayed operations of one kind.  Owner: event loop."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._watchers: dict[K, dict[_Waiting[K], None]] = {}
        self.watched: KeysView[K] = self._watchers.keys()
        """The keys that operations watch; a view, for a cheap check before `check`."""
        self._size = 0
        self.expired_count = 0
        """Operations that ended by their timeout, or at shutdown."""

    def __len__(self) -> int:
        """Return the number of delayed operations."""
        return self._size

    @property
    def watch_count(self) -> int:
        """How often operations are listed under a key."""
        return sum(map(len, self._watchers.values()))

    def complete_or_watch(self, operation: DelayedOperation[K], keys: Iterable[K], timeout_ms: int) -> None:
        """Complete the operation now if possible, else when a key is checked, at the latest after `timeout_ms`."""
        watched = tuple(keys)
        if not operation.try_complete(watched):
            self.watch(operation, watched, timeout_ms)

    def watch(self, operation: DelayedOperation[K], keys: Iterable[K], timeout_ms: int) -> None:
        """As `complete_or_watch`, for an operation that cannot complete now."""
        self._wait(_Waiting(operation, tuple(keys)), timeout_ms)

    async def watch_sliced(self, changes: Changes[K], keys: Sequence[K], timeout_ms: int) -> Callable[[], None]:
        """Collect changes of many keys; return the function that ends it."""
        waiting: _Waiting[K] = _Waiting(changes, ())
        self._wait(waiting, timeout_ms)
        listed: list[K] = []
        waiting.keys = listed
        try:
            async for some in sliced_batches(keys):
                if waiting.done:
                    break
                listed += some
                for key in some:
                    self._watchers.setdefault(key, {})[waiting] = None
        except BaseException:
            self._stop(waiting)
            raise
        return partial(self._stop, waiting)

    def _stop(self, waiting: _Waiting[K]) -> None:
        if not waiting.done:
            self._remove(waiting)

    def _wait(self, waiting: _Waiting[K], timeout_ms: int) -> None:
        operation = waiting.operation
        for key in waiting.keys:
            self._watchers.setdefault(key, {})[waiting] = None
        self._size += 1
        if operation.future is not None:
            waiting.on_caller_done = partial(self._caller_done, waiting)
            operation.future.add_done_callback(waiting.on_caller_done)
        waiting.timeout = self._timer.schedule(timeout_ms, lambda: self._expire(waiting))

    def check(self, *keys: K) -> None:
        """Complete the operations of these keys that can complete.

        An operation that watches several of them is tried once.
        """
        if not self._watchers:
            return
        changed: dict[_Waiting[K], list[K]] = {}
        for key in keys:
            for waiting in self._watchers.get(key, ()):
                changed.setdefault(waiting, []).append(key)
        if changed:
            self._try_in_slices(list(changed.items()))

    def expire_all(self) -> None:
        """Complete all operations with their current state, for shutdown."""
        for waiting in {w: None for watchers in self._watchers.values() for w in watchers}:
            self._expire(waiting)

    def _try_in_slices(self, changed: list[tuple[_Waiting[K], list[K]]], start: int = 0) -> None:
        """Try DELAYED_TRIED_MAX operations now, the others in later iterations of the loop."""
        left = DELAYED_TRIED_MAX
        for number in range(start, len(changed)):
            if left <= 0:
                asyncio.get_running_loop().call_soon(self._try_in_slices, changed, number)
                return
            waiting, keys = changed[number]
            if not waiting.done and not waiting.is_trying:
                left -= 1 + len(waiting.keys) // _KEYS_AS_ONE_OPERATION
                self._try(waiting, keys)

    def _try(self, waiting: _Waiting[K], changed: Collection[K]) -> None:
        """Try to complete an operation; while it completes, it may wake others of its key, but not itself."""
        waiting.is_trying = True
        future, on_caller_done = waiting.operation.future, waiting.on_caller_done
        if future is not None and on_caller_done is not None:
            # It is for cancelled operations: one that completes would only call it in the next iteration of the loop.
            future.remove_done_callback(on_caller_done)
        try:
            if waiting.operation.try_complete(changed):
                self._remove(waiting)
            elif future is not None and on_caller_done is not None:
                future.add_done_callback(on_caller_done)
        except Exception as error:
            self._remove(waiting)
            _fail(waiting.operation, error)
        finally:
            waiting.is_trying = False

    def _expire(self, waiting: _Waiting[K]) -> None:
        if waiting.done:
            return
        self.expired_count += 1
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
        waiting.on_caller_done = None  # It refers to `waiting`, which would be left to the garbage collector.
        self._size -= 1
        if waiting.timeout is not None:
            waiting.timeout.cancel()
        if len(waiting.keys) > SLICE_OBJECTS:
            self._unlist_in_slices(waiting)
        else:
            self._unlist(waiting, waiting.keys)

    def _unlist_in_slices(self, waiting: _Waiting[K], start: int = 0) -> None:
        end = start + SLICE_OBJECTS
        self._unlist(waiting, waiting.keys[start:end])
        if end < len(waiting.keys):
            asyncio.get_running_loop().call_soon(self._unlist_in_slices, waiting, end)

    def _unlist(self, waiting: _Waiting[K], keys: Iterable[K]) -> None:
        for key in keys:
            watchers = self._watchers.get(key)
            if watchers is not None:
                watchers.pop(waiting, None)
                if not watchers:
                    del self._watchers[key]


def _fail(operation: DelayedOperation[Any], error: Exception) -> None:
    """Pass the error to the caller of the operation, or to the loop if there is none."""
    if operation.future is None:
        asyncio.get_running_loop().call_exception_handler({"message": "a delayed operation failed", "exception": error})
    elif not operation.future.done():
        operation.future.set_exception(error)

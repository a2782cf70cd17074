"""An event loop in a thread of its own, for clients without asyncio, and work that outlives those who wait for it."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from kctl.errors import UsageError

T = TypeVar("T")

CLOSED = "the client is closed"


class ForkGuard:
    """Knows whether the process is a child that was forked after a client was opened: its threads are not there."""

    def __init__(self, name: str) -> None:
        self.is_in_child = False
        self.problem = f"the {name} was opened before this process was forked: open one in the child process"
        _GUARDS.add(self)


_GUARDS: weakref.WeakSet[ForkGuard] = weakref.WeakSet()


def _note_fork() -> None:
    for guard in _GUARDS:
        guard.is_in_child = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


class LoopThread:
    """Runs coroutines for the threads that call `run`, one after the other."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._one_caller = threading.RLock()
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        """Calls that the thread in `run` executes while it waits, or the next thread that enters it."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`; cancel it on KeyboardInterrupt.  Raises UsageError after `close`."""
        with self._one_caller:
            if not self._thread.is_alive():
                work.close()
                raise UsageError(CLOSED)
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
            future.add_done_callback(lambda _: self._calls.put(_nothing))
            try:
                while not future.done():
                    self._calls.get()()
                return future.result()
            except BaseException:
                future.cancel()
                raise
            finally:
                del future

    def run_beside(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, beside the calls of other threads; cancel it on KeyboardInterrupt.

        Raises UsageError after `close`, and in the thread of the loop, which would wait for itself.
        """
        if self.is_current() or not self._thread.is_alive():
            work.close()
            is_callback = self.is_current()
            raise UsageError("a callback must not wait: call this in another thread" if is_callback else CLOSED)
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except CancelledError:
            raise UsageError(CLOSED) from None
        except BaseException:
            future.cancel()
            raise
        finally:
            del future

    def is_current(self) -> bool:
        """Return whether the caller is the thread of the loop."""
        return threading.get_ident() == self._thread.ident

    async def in_caller(self, call: Callable[[], None]) -> None:
        """Execute `call` in the thread that is in `run`, where it may call `run` again.  Raises what it raises."""
        done: Future[None] = Future()
        self._calls.put(partial(_complete, done, call))
        try:
            await asyncio.wrap_future(done)
        finally:
            del done

    def close(self) -> None:
        """Stop the loop and wait for the thread."""
        if self._thread.is_alive():
            self.run(_cancel_all())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


def _complete(done: Future[None], call: Callable[[], None]) -> None:
    """Execute the call and pass its result or exception to the future."""
    if not done.set_running_or_notify_cancel():
        return
    try:
        call()
    except BaseException as error:
        done.set_exception(error)
    else:
        done.set_result(None)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _nothing() -> None:
    """End the wait of `run`."""


class SharedWork:
    """Runs coroutines as tasks, which go on when a caller who waits for one is cancelled.  Owner: event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Return a task for the work; what it raises is for those who wait for it, if there are any."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def run(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Return the result of the work, which goes on if the caller is cancelled."""
        return await asyncio.shield(self.start(work, name))

    async def finished(self) -> None:
        """Wait for what was started before."""
        if others := self._tasks - {asyncio.current_task()}:
            await asyncio.wait(others)

    async def stop(self) -> None:
        """Cancel everything, and wait for its end."""
        others = self._tasks - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: the caller who would get it may have been cancelled

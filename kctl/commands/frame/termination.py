"""Ends work on an event loop when SIGINT or SIGTERM arrives, or when the reader of its output leaves."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from kctl.commands.frame.exit_status import Terminated
from kctl.system.standard_streams import ReaderLeft, end_writes, take_end_of_writes, watch_reader

T = TypeVar("T")
_ERRORS: dict[int, type[BaseException]] = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


async def terminable(work: Awaitable[T]) -> T:
    """Await `work`; SIGINT and SIGTERM end it and raise KeyboardInterrupt and Terminated.

    A write to a standard stream raises the exception, also one that waits for a slow reader.  Otherwise the task is
    cancelled: an exception that the handler of a signal raises would end whichever task or callback is running, and the
    others would be reported with tracebacks.  A second signal does that.
    """
    task = asyncio.current_task()
    if task is None or threading.current_thread() is not threading.main_thread():
        return await work
    loop = asyncio.get_running_loop()
    arrived: type[BaseException] | None = None

    def terminate(number: int, _frame: object) -> None:
        nonlocal arrived
        if arrived is not None or task.done():
            raise _ERRORS[number]
        arrived = _ERRORS[number]
        loop.call_soon_threadsafe(cancel)  # The loop may be waiting.
        end_writes(arrived)

    def cancel() -> None:
        if take_end_of_writes():
            task.cancel()

    before = {number: signal.signal(number, terminate) for number in _ERRORS}
    try:
        return await work
    except asyncio.CancelledError:
        if arrived is not None and not task.uncancel():
            raise arrived from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def noted_signals() -> Iterator[Callable[[], None]]:
    """Note the first SIGINT or SIGTERM; the function that is yielded raises its exception, and so does the end.

    For work within callbacks of a library in C, which loses an exception that the handler of a signal raises there.  A
    write to a standard stream raises it as well, and a second signal does so at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    arrived: type[BaseException] | None = None

    def note(number: int, _frame: object) -> None:
        nonlocal arrived
        if arrived is not None:
            raise _ERRORS[number]
        arrived = _ERRORS[number]
        end_writes(arrived)

    def check() -> None:
        if arrived is not None:
            take_end_of_writes()
            raise arrived

    before = {number: signal.signal(number, note) for number in _ERRORS}
    try:
        yield check
        check()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def read_by_someone(work: Awaitable[T]) -> T:
    """Await `work`; cancel it and raise ReaderLeft when the reader of stdout leaves, also while nothing is written."""
    task = asyncio.current_task()
    has_left = False

    def leave() -> None:
        nonlocal has_left
        has_left = True
        if task is not None:
            task.cancel()

    with _watching(leave):
        try:
            return await work
        except asyncio.CancelledError:
            if has_left and task is not None and not task.uncancel():
                raise ReaderLeft(errno.EPIPE, os.strerror(errno.EPIPE)) from None
            raise


@contextlib.contextmanager
def _watching(leave: Callable[[], None]) -> Iterator[None]:
    """Call `leave` once, when the reader of stdout leaves."""
    loop = asyncio.get_running_loop()
    descriptor = watch_reader(sys.stdout)
    if descriptor is None:
        yield
        return

    def left() -> None:
        loop.remove_reader(descriptor)
        leave()

    loop.add_reader(descriptor, left)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)

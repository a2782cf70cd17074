"""Ends work on an event loop when SIGTERM arrives."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable
from typing import TypeVar

from kctl.commands.frame.exit_status import Terminated

T = TypeVar("T")


async def terminable(work: Awaitable[T]) -> T:
    """Await `work`; SIGTERM cancels the task and raises Terminated, as asyncio.run does for SIGINT.

    An exception that the handler of a signal raises would end whichever task or callback is running, and the others
    would be reported with tracebacks.  A second SIGTERM does that.
    """
    task = asyncio.current_task()
    if task is None or threading.current_thread() is not threading.main_thread():
        return await work
    loop = asyncio.get_running_loop()
    has_arrived = False

    def terminate(_number: int, _frame: object) -> None:
        nonlocal has_arrived
        if has_arrived or task.done():
            raise Terminated
        has_arrived = True
        task.cancel()
        loop.call_soon_threadsafe(lambda: None)  # The loop may be waiting.

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        return await work
    except asyncio.CancelledError:
        if has_arrived and not task.uncancel():
            raise Terminated from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)

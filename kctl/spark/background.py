"""Work in a daemon thread, so that an interrupt of the main thread does not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def in_background(work: Callable[[], Result], *, name: str) -> Future[Result]:
    """Starts the work in a thread of its own."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def is_done_within(future: Future[Result], timeout_s: float) -> bool:
    """Waits for the end of the work, at most this long."""
    try:
        future.exception(timeout=timeout_s)
    except TimeoutError:
        return False
    return True

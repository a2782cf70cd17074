"""Periodic tasks of the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


async def run_every(
    interval_ms: int, task: Callable[[], Awaitable[None] | None], *, first_after_ms: int | None = None
) -> None:
    """Runs `task` until cancelled; a failure is logged and does not stop later runs."""
    await asyncio.sleep((interval_ms if first_after_ms is None else first_after_ms) / 1000)
    while True:
        try:
            result = task()
            if result is not None:
                await result
        except Exception:
            name = getattr(task, "__name__", repr(task))
            log.exception("periodic task failed, trying again task=%s retry_ms=%s", name, interval_ms)
        await asyncio.sleep(interval_ms / 1000)

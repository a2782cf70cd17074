"""Truncates logs without holding the event loop while their producers are read.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Callable

from kctl.server.loop.tasks import in_thread
from kctl.storage.log.log import Log


async def truncate(log: Log, offset: int, is_current: Callable[[], bool]) -> bool:
    """Truncate the log, unless `is_current` is false when its producers have been read; return whether it did.

    Raises LogDirFailure, ApiError.
    """
    reload = log.plan_truncation(offset)
    if reload is None:
        return log.truncate_to(offset)
    try:
        await in_thread(reload.run)
        return is_current() and log.truncate_to(offset, reload)
    finally:
        await in_thread(reload.release)

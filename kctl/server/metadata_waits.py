"""Requests that wait until the metadata cache shows what they asked for: leaders of new partitions, a topic gone.

Kafka's DelayedCreatePartitions and DelayedDeleteTopics.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from kctl.environment import Timer
from kctl.server.requests.purgatory import Purgatory


class _Wait:
    """A DelayedOperation that resolves a future."""

    def __init__(self, is_reached: Callable[[], bool], future: asyncio.Future[bool]) -> None:
        self._is_reached = is_reached
        self.future = future

    def try_complete(self) -> bool:
        if not self._is_reached():
            return False
        if not self.future.done():
            self.future.set_result(True)
        return True

    def on_timeout(self) -> None:
        if not self.future.done():
            self.future.set_result(self._is_reached())


class MetadataWaits:
    """Whoever updates the metadata cache calls `changed` afterwards."""

    def __init__(self, timer: Timer) -> None:
        self._purgatory: Purgatory[str] = Purgatory(timer)

    def changed(self, topics: Iterable[str]) -> None:
        """The cache has news about these topics."""
        for topic in topics:
            self._purgatory.check(topic)

    def expire_all(self) -> None:
        """Lets everybody go with what there is; for shutdown."""
        self._purgatory.expire_all()

    def until(self, topic: str, is_reached: Callable[[], bool], timeout_ms: int) -> asyncio.Future[bool]:
        """Whether the cache came to show of this topic what `is_reached` looks for, within the time."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._purgatory.complete_or_watch(_Wait(is_reached, future), (topic,), timeout_ms)
        return future

"""Requests that wait for a state of the metadata cache: leaders of new partitions, a deleted topic.

Kafka: DelayedCreatePartitions and DelayedDeleteTopics.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from kctl.server.requests.purgatory import Purgatory
from kctl.system.environment import Timer


class _Wait:
    """A DelayedOperation that resolves a future."""

    def __init__(self, is_reached: Callable[[], bool], future: asyncio.Future[bool]) -> None:
        self._is_reached = is_reached
        self.future = future

    def try_complete(self, changed: Collection[str]) -> bool:
        if not self._is_reached():
            return False
        if not self.future.done():
            self.future.set_result(True)
        return True

    def on_timeout(self) -> None:
        if not self.future.done():
            self.future.set_result(self._is_reached())


class MetadataWaits:
    """Code that updates the metadata cache calls `changed` afterwards."""

    def __init__(self, timer: Timer) -> None:
        self.purgatory: Purgatory[str] = Purgatory(timer)

    def changed(self, topics: Iterable[str]) -> None:
        """Check the requests that wait for these topics, for which the cache was updated."""
        for topic in topics:
            self.purgatory.check(topic)

    def expire_all(self) -> None:
        """Complete all requests with the current state, for shutdown."""
        self.purgatory.expire_all()

    def until(self, topic: str, is_reached: Callable[[], bool], timeout_ms: int) -> asyncio.Future[bool]:
        """Return a future that is True once `is_reached` returns True for the topic, or False after the timeout."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.purgatory.complete_or_watch(_Wait(is_reached, future), (topic,), timeout_ms)
        return future

"""Fresh producer ids for transactional ids that need one; getting one takes a while, and the world goes on.

Invariant: the call that wants the id is answered, by the event that happens anew with it or with the reason why not.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from kctl.errors import ErrorCode, ZooKeeperError
from kctl.server.coordinators.replies import ParkedCall
from kctl.server.transactions.actions import InitOutcome
from kctl.server.transactions.events import InitProducer
from kctl.server.transactions.ports import FreshProducerIds

log = logging.getLogger(__name__)


class ProducerIdAllocations:
    """Those that are under way; `again` lets the event happen anew, or says why it may not."""

    def __init__(self, producer_ids: FreshProducerIds, again: Callable[[str, InitProducer], ErrorCode]) -> None:
        self._producer_ids = producer_ids
        self._again = again
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, transactional_id: str, event: InitProducer) -> None:
        """The event happens again when an id is at hand; the transactional id may live elsewhere by then."""
        allocation = self._allocate(transactional_id, event)
        task = asyncio.get_running_loop().create_task(allocation, name="allocate-producer-id")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Those who wait answer NOT_COORDINATOR."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _allocate(self, transactional_id: str, event: InitProducer) -> None:
        error = ErrorCode.NOT_COORDINATOR
        try:
            producer_id = await self._producer_ids.next()
            error = self._again(transactional_id, replace(event, fresh_producer_id=producer_id))
        except ZooKeeperError as reason:
            log.warning("no producer id could be had: %s", reason)
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        finally:
            if error is not ErrorCode.NONE:
                cast("ParkedCall[InitOutcome]", event.token).answer(InitOutcome(error))

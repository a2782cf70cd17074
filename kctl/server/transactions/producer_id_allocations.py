"""Allocates producer ids for transactional ids that need one; requests are served while an allocation is pending.

Invariant: the request that needs the id is completed, by processing its event again with the id, or with an error.

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
    """The pending allocations; `again` processes the event again, or returns the error."""

    def __init__(self, producer_ids: FreshProducerIds, again: Callable[[str, InitProducer], ErrorCode]) -> None:
        self._producer_ids = producer_ids
        self._again = again
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, transactional_id: str, event: InitProducer) -> None:
        """Allocates an id and then processes the event again; another broker may coordinate the id by then."""
        allocation = self._allocate(transactional_id, event)
        task = asyncio.get_running_loop().create_task(allocation, name="allocate-producer-id")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancels pending allocations; their requests get NOT_COORDINATOR."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _allocate(self, transactional_id: str, event: InitProducer) -> None:
        error = ErrorCode.NOT_COORDINATOR
        try:
            producer_id = await self._producer_ids.next()
            error = self._again(transactional_id, replace(event, fresh_producer_id=producer_id))
        except ZooKeeperError as reason:
            message = "cannot allocate a producer id, the client has to retry transactional_id=%s error=%s"
            log.warning(message, transactional_id, reason)
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        finally:
            if error is not ErrorCode.NONE:
                cast("ParkedCall[InitOutcome]", event.token).complete(InitOutcome(error))

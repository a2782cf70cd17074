"""Producer ids, unique in the cluster, and their allocation to transactional ids."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

from kctl.errors import BadVersionError, ErrorCode, ZooKeeperError
from kctl.output.quantities import INT64_MAX
from kctl.server.coordination.replies import ParkedCall
from kctl.server.coordination.transactions.events import EndTransaction, InitProducer, ProducerOutcome
from kctl.server.coordination.transactions.ports import FreshProducerIds
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import ZooKeeper
from kctl.zookeeper.znodes import PRODUCER_ID_BLOCK_SIZE, ProducerIdBlock

# Producer ids, unique in the cluster: each broker allocates blocks of 1,000 in ZooKeeper by conditional writes.
#
# The rest of a block is lost when the broker stops, which is harmless: there are 2^63 ids.
#
# After ZooKeeper has been restored to an older state, the next blocks were allocated before. A new producer with the id
# of an earlier one would be refused, or its first batch taken for a duplicate of the other's and not written. So the
# first block of a broker begins above the ids in its logs. Clients choose what they write there, so that only ids less
# than IDS_SKIPPED_MAX above the block count.
#
# Owner: event loop.


log = logging.getLogger(__name__)


IDS_SKIPPED_MAX = 10_000 * PRODUCER_ID_BLOCK_SIZE


class ProducerIds:
    """Allocates producer ids; see `next`."""

    def __init__(
        self, broker_id: int, zookeeper: ZooKeeper, largest_below: Callable[[int], Awaitable[int]] | None = None
    ) -> None:
        """`largest_below` returns the largest id below its argument that is in the logs of this broker, or -1."""
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._largest_below = largest_below
        self._next = 0
        self._end = -1
        self._turn = asyncio.Lock()

    async def next(self) -> int:
        """Return a producer id that was never used before.  Raises ZooKeeperError if no block can be allocated."""
        # One allocation at a time: all callers that wait share the block.
        async with self._turn:
            if self._next > self._end:
                block = await self._allocate()
                self._next, self._end = block.block_start, block.block_end
            self._next += 1
            return self._next - 1

    async def _allocate(self) -> ProducerIdBlock:
        path = paths.LATEST_PRODUCER_ID_BLOCK
        while True:
            data, stat = await self._zookeeper.get(path)
            try:
                last = znodes.decode_producer_id_block(path, data)
            except ValueError as error:
                raise ZooKeeperError(str(error), path) from None
            start = last.block_end + 1 if last is not None else 0
            if self._largest_below is not None:
                used = await self._largest_below(start + IDS_SKIPPED_MAX)
                if used >= start:
                    message = "skipping producer ids that were used: ZooKeeper has an older state first=%s last=%s"
                    log.warning(message, start, used)
                    start = used + 1
            if start > INT64_MAX - PRODUCER_ID_BLOCK_SIZE:
                raise ZooKeeperError(f"znode {path} leaves no producer ids: its last block ends at {start - 1}", path)
            block = ProducerIdBlock(self._broker_id, start, start + PRODUCER_ID_BLOCK_SIZE - 1)
            try:
                await self._zookeeper.set(path, znodes.encode_producer_id_block(block), version=stat.version)
            except BadVersionError:
                continue
            self._largest_below = None
            log.info("allocated producer ids first=%s last=%s", block.block_start, block.block_end)
            return block


# Allocates producer ids for transactional ids that need one; requests are served while an allocation is pending.
#
# Invariant: the request that needs the id is completed, by processing its event again with the id, or with an error.
#
# Owner: event loop.


class ProducerIdAllocations:
    """The pending allocations; `again` processes the event again, or returns the error."""

    def __init__(
        self, producer_ids: FreshProducerIds, again: Callable[[str, InitProducer | EndTransaction], ErrorCode]
    ) -> None:
        self._producer_ids = producer_ids
        self._again = again
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, transactional_id: str, event: InitProducer | EndTransaction) -> None:
        """Allocate an id and then process the event again; another broker may coordinate the id by then."""
        allocation = self._allocate(transactional_id, event)
        task = asyncio.get_running_loop().create_task(allocation, name="allocate-producer-id")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel pending allocations; their requests get NOT_COORDINATOR."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _allocate(self, transactional_id: str, event: InitProducer | EndTransaction) -> None:
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
                cast("ParkedCall[ProducerOutcome]", event.token).complete(ProducerOutcome(error))

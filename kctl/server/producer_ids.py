"""Producer ids, unique in the cluster: each broker takes blocks of 1,000 from ZooKeeper by compare and set.

A block that is not used up when the broker stops is lost, which costs nothing: there are 2^63 ids.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging

from kctl.errors import BadVersionError
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import ZooKeeper
from kctl.zookeeper.znodes import PRODUCER_ID_BLOCK_SIZE, ProducerIdBlock

log = logging.getLogger(__name__)


class ProducerIds:
    """`next` is all that is asked of it."""

    def __init__(self, broker_id: int, zookeeper: ZooKeeper) -> None:
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._next = 0
        self._end = -1
        self._turn = asyncio.Lock()

    async def next(self) -> int:
        """An id that nobody had before.  Raises ZooKeeperError when no block can be had."""
        # One allocation at a time: all who wait for it share the block.
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
            last = znodes.decode_producer_id_block(path, data)
            start = last.block_end + 1 if last is not None else 0
            block = ProducerIdBlock(self._broker_id, start, start + PRODUCER_ID_BLOCK_SIZE - 1)
            try:
                await self._zookeeper.set(path, znodes.encode_producer_id_block(block), version=stat.version)
            except BadVersionError:
                continue
            log.info("took producer ids from %s to %s", block.block_start, block.block_end)
            return block

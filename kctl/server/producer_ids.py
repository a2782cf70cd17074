"""Producer ids, unique in the cluster: each broker allocates blocks of 1,000 in ZooKeeper by conditional writes.

The rest of a block is lost when the broker stops, which is harmless: there are 2^63 ids.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging

from kctl.errors import BadVersionError, ZooKeeperError
from kctl.integers import INT64_MAX
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import ZooKeeper
from kctl.zookeeper.znodes import PRODUCER_ID_BLOCK_SIZE, ProducerIdBlock

log = logging.getLogger(__name__)


class ProducerIds:
    """Allocates producer ids; see `next`."""

    def __init__(self, broker_id: int, zookeeper: ZooKeeper) -> None:
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._next = 0
        self._end = -1
        self._turn = asyncio.Lock()

    async def next(self) -> int:
        """A producer id that was never used before.  Raises ZooKeeperError if no block can be allocated."""
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
            if start > INT64_MAX - PRODUCER_ID_BLOCK_SIZE:
                raise ZooKeeperError(f"znode {path} leaves no producer ids: its last block ends at {start - 1}", path)
            block = ProducerIdBlock(self._broker_id, start, start + PRODUCER_ID_BLOCK_SIZE - 1)
            try:
                await self._zookeeper.set(path, znodes.encode_producer_id_block(block), version=stat.version)
            except BadVersionError:
                continue
            log.info("allocated producer ids first=%s last=%s", block.block_start, block.block_end)
            return block

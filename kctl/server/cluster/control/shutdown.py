"""Controlled shutdown: before a broker stops, the controller moves its leaderships to other brokers.  KAFKA-340.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging

from kctl.client.connections.transport import ConnectionLost
from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.model import TopicPartition
from kctl.protocol.apis.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kctl.server.cluster.controller.runner import ControllerRunner
from kctl.server.peers.connections import BrokerPeers, Purpose
from kctl.server.peers.metadata import MetadataCache

log = logging.getLogger(__name__)

_LOCAL_TIMEOUT_S = 10.0


class ControlledShutdown:
    """The controlled shutdown of one broker; `run` ends when nothing is left to move or all attempts have failed."""

    def __init__(
        self,
        broker_id: int,
        *,
        broker_epoch: int,
        controller: ControllerRunner,
        metadata: MetadataCache,
        peers: BrokerPeers,
        version: int,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._metadata = metadata
        self._peers = peers
        self._version = version

    async def run(self, *, tries_max: int, backoff_ms: int) -> bool:
        """Return True if all leaderships that could move have moved."""
        if not self._metadata.brokers:
            return True  # No controller ever assigned a partition to this broker.
        for attempt in range(tries_max):
            try:
                remaining = await self._send_request()
                if not remaining:
                    return True
                message = "leaderships are left to move attempt=%d attempts=%d partitions=%s"
                log.info(message, attempt + 1, tries_max, len(remaining))
            except (ConnectionLost, MalformedRequest, ApiError, TimeoutError) as error:
                message = "cannot request a controlled shutdown attempt=%d attempts=%d error=%s"
                log.warning(message, attempt + 1, tries_max, error or "no response")
            if attempt + 1 < tries_max and len(self._metadata.brokers) > 1:
                await asyncio.sleep(backoff_ms / 1000)
        log.warning(
            "stopping without a controlled shutdown, partitions may briefly have no leader broker=%s",
            self._broker_id,
        )
        return False

    async def _send_request(self) -> list[TopicPartition]:
        if self._controller.state.is_active:
            async with asyncio.timeout(_LOCAL_TIMEOUT_S):
                return await self._controller.controlled_shutdown(self._broker_id)
        connection = await self._peers.connect(self._metadata.controller_id, Purpose.CONTROLLED_SHUTDOWN)
        try:
            request = ControlledShutdownRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch)
            response = await connection.send(request, ControlledShutdownResponse, version=self._version)
        finally:
            await connection.close()
        if response.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode.of(response.error_code))
        return [
            TopicPartition(partition.topic_name, partition.partition_index)
            for partition in response.remaining_partitions
        ]

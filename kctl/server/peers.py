"""Connections to other brokers, by id, on the inter-broker listener.

Owner: event loop.
"""

from __future__ import annotations

from kctl.client.transport import Connection, ConnectionLost, Transport
from kctl.model import Endpoint
from kctl.server.metadata_cache import MetadataCache


class BrokerPeers:
    """Connects to brokers in the metadata cache."""

    def __init__(
        self, broker_id: int, *, transport: Transport, metadata: MetadataCache, listener: str, timeout_ms: int
    ) -> None:
        self._broker_id = broker_id
        self._transport = transport
        self._metadata = metadata
        self._listener = listener
        self._timeout_ms = timeout_ms

    async def connect(self, broker_id: int, purpose: str) -> Connection:
        """Connects to a broker in the metadata.  Raises ConnectionLost."""
        broker = self._metadata.brokers.get(broker_id)
        endpoint = broker.endpoint(self._listener) if broker is not None else None
        if endpoint is None:
            raise ConnectionLost(f"broker {broker_id} is unknown, or has no listener {self._listener}")
        return await self.connect_to(endpoint, purpose)

    async def connect_to_controller(self, purpose: str) -> Connection:
        """Connects to the controller in the metadata.  Raises ConnectionLost."""
        return await self.connect(self._metadata.controller_id, purpose)

    async def connect_to(self, endpoint: Endpoint, purpose: str) -> Connection:
        """Connects to an endpoint.  Raises ConnectionLost."""
        return await self._transport.connect(
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self._broker_id}-{purpose}",
            connect_timeout_ms=self._timeout_ms,
            timeout_ms=self._timeout_ms,
        )

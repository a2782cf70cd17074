"""The connections of a producer to brokers: one to each leader, with growing pauses after an attempt that failed.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.metadata import Broker

LATE_S = 1.0
"""A broker that has not responded for this time is not asked for metadata, if there is another one."""


class ProducerBroker:
    """What is known of one broker."""

    __slots__ = ("attempt_s", "connecting", "connection", "failures", "in_flight", "sent_s")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.in_flight = 0
        self.sent_s = 0.0
        """When the last request was sent, or the last response has arrived."""
        self.failures = 0
        self.attempt_s = 0.0
        """When the next attempt to connect may be made."""


class ProducerBrokers:
    """The leaders that a producer sends to, by node id."""

    def __init__(
        self,
        client: ClusterClient,
        in_flight_max: int,
        *,
        find_broker: Callable[[int], Broker | None],
        on_open: Callable[[], None],
        on_failure: Callable[[int, Exception], None],
        jitter: Callable[[], float] = lambda: random.uniform(0.8, 1.2),
    ) -> None:
        """`on_open` is called after a success, and when an attempt may be made after a pause; `on_failure` with node
        id and ConnectionLost, or what makes further attempts useless.  `jitter` is the factor of a pause.
        """
        self._client = client
        self._in_flight_max = in_flight_max
        self._find_broker = find_broker
        self._on_open = on_open
        self._on_failure = on_failure
        self._jitter = jitter
        self._brokers: dict[int, ProducerBroker] = {}

    def __getitem__(self, node_id: int) -> ProducerBroker:
        """Return a broker to which there was a connection."""
        return self._brokers[node_id]

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return sum(broker.in_flight for broker in self._brokers.values())

    def rooms(self, node_id: int) -> int:
        """How many requests may be sent to a broker; -1 if it has no connection."""
        broker = self._brokers.get(node_id)
        if broker is None or broker.connection is None or not broker.connection.is_open:
            return -1
        return self._in_flight_max - broker.in_flight

    def late_addresses(self) -> list[str]:
        """Return the addresses of brokers that do not respond now."""
        late_s = asyncio.get_running_loop().time() - LATE_S
        return [
            broker.connection.address
            for broker in self._brokers.values()
            if broker.connection is not None and broker.in_flight and broker.sent_s < late_s
        ]

    def connect(self, node_id: int) -> None:
        """Begins to connect to a broker, unless that is in progress or the pause after a failure has not ended."""
        broker = self._brokers.setdefault(node_id, ProducerBroker())
        if broker.connecting is not None and not broker.connecting.done():
            return
        loop = asyncio.get_running_loop()
        left_s = broker.attempt_s - loop.time()
        if left_s > 0:
            loop.call_later(left_s, self._on_open)
            return
        broker.connecting = loop.create_task(self._open(node_id, broker), name=f"connect to broker {node_id}")

    def running(self) -> list[asyncio.Task[None]]:
        """Return the attempts that have been made."""
        return [broker.connecting for broker in self._brokers.values() if broker.connecting is not None]

    async def _open(self, node_id: int, broker: ProducerBroker) -> None:
        """Connect to a broker.  The pauses between attempts grow as those of Kafka's clients do."""
        settings = self._client.settings
        address = self._find_broker(node_id)
        try:
            if address is None:
                raise ConnectionLost(f"broker {node_id} is not in the cluster")
            broker.connection = await self._client.connected(address)
            broker.failures = 0
        except ConnectionLost as error:
            pause_ms = min(settings.reconnect_backoff_ms << min(broker.failures, 20), settings.reconnect_backoff_ms_max)
            broker.failures += 1
            broker.attempt_s = asyncio.get_running_loop().time() + pause_ms * self._jitter() / 1000
            self._on_failure(node_id, error)
        except Exception as error:
            self._on_failure(node_id, error)
        self._on_open()

"""A follower and the leader that it fetches from, without a network."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TypeVar

from kctl.client.connections.transport import Connection
from kctl.client.connections.versions import BrokerVersions
from kctl.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kctl.server.peers.connections import Purpose
from kctl.server.peers.versions import inter_broker_versions
from kctl.server.replication.follower.fetcher import FetchSettings
from kctl.server.replication.follower.fetchers import ReplicaFetchers
from kctl.server.replication.follower.leader_endpoint import Peers
from kctl.server.replication.throttles import ReplicationThrottles
from tests.unit.handlers.disk import Disk

T = TypeVar("T")

FETCH_S = 0.1
"""The time that a leader takes for a response."""


class OneLeader:
    """Peers, and the connection to the only one: the leader of `orders` and of empty topics, of one partition each."""

    address = "leader:9092"
    versions = BrokerVersions({})
    is_open = True

    def __init__(self, session_id: int = 0) -> None:
        self.fetches = 0
        self.listed: list[int] = []
        """The number of partitions in each request."""
        self._session_id = session_id

    @abstractmethod
    def reply(self, requested: FetchPartition) -> PartitionData:
        """The response for the partition of `orders`."""

    async def connect(self, _broker_id: int, _purpose: Purpose) -> Connection:
        return self

    async def send(
        self, request: object, response_class: type[T], *, version: int | None = None, timeout_ms: int | None = None
    ) -> T:
        assert isinstance(request, FetchRequest)
        self.fetches += 1
        self.listed.append(len(request.topics))
        await asyncio.sleep(FETCH_S)
        empty = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=b"")
        topics = [
            FetchableTopicResponse(
                topic=topic.topic, partitions=[self.reply(topic.partitions[0]) if topic.topic == "orders" else empty]
            )
            for topic in request.topics
        ]
        response = FetchResponse(session_id=self._session_id, responses=topics)
        assert isinstance(response, response_class)
        return response

    async def post(self, request: object, *, version: int | None = None) -> None:
        raise AssertionError(request)

    async def close(self) -> None:
        """Nothing to end."""


def fetchers_of(disk: Disk, peers: Peers) -> ReplicaFetchers:
    """The fetchers of the broker with this disk, one per leader."""
    return ReplicaFetchers(
        replicas=disk.replicas,
        peers=peers,
        clock=disk.clock,
        settings=FetchSettings(500, 1, 1 << 20, 1 << 20, 1000, inter_broker_versions("2.8")),
        quota=ReplicationThrottles(0, disk.configs).follower,
        per_leader=1,
    )

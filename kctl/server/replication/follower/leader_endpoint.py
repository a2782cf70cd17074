"""Requests that a fetcher sends to a leader, over one connection.

    fetch               records of the partitions in `session`, which lists only what has changed
    epoch_end_offsets   where the leader's log ends in the last epochs of these partitions
    end_offset          the leader's log end offset
    start_offset        the leader's log start offset

Versions follow from inter.broker.protocol.version; they are not negotiated.  The fetch session ends with the
connection.  An error of one partition is part of its result; exceptions concern all partitions.  Kafka: LeaderEndPoint.

Owner: event loop; one request at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from kctl.client.connections.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from kctl.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kctl.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kctl.server.peers.connections import Purpose
from kctl.server.peers.versions import UNSUPPORTED, InterBrokerVersions
from kctl.server.replication.follower.rules import FetchRequests, Position

_EARLIEST = -2
_LATEST = -1
_FIRST_FETCH_WITH_DIVERGENCE = 12


class Peers(Protocol):
    """Connections to other brokers."""

    async def connect(self, broker_id: int, purpose: Purpose) -> Connection:
        """Open a connection.  Raises ConnectionLost, also when the broker is not in the metadata."""
        ...


class LastEpoch(NamedTuple):
    """The last epoch in a follower's log, and the follower's current leader epoch."""

    leader_epoch: int
    current_leader_epoch: int


class LeaderEndpoint:
    """One leader; call `connect` before requests, and `disconnect` after ConnectionLost or MalformedRequest."""

    def __init__(self, leader_id: int, *, replica_id: int, peers: Peers, versions: InterBrokerVersions) -> None:
        self.leader_id = leader_id
        self._replica_id = replica_id
        self._peers = peers
        self._versions = versions
        self.session = FetchRequests()
        """The partitions to fetch."""
        self._connection: Connection | None = None

    @property
    def supports_leader_epochs(self) -> bool:
        """True if brokers of this protocol version support OffsetForLeaderEpoch."""
        return self._versions.offset_for_leader_epoch != UNSUPPORTED

    @property
    def supports_divergence(self) -> bool:
        """True if a fetch carries the follower's last epoch, so that the response names the diverging one.  KIP-595."""
        return self._versions.fetch >= _FIRST_FETCH_WITH_DIVERGENCE

    async def connect(self) -> None:
        """Connect unless connected.  Raises ConnectionLost."""
        if self._connection is None or not self._connection.is_open:
            self.session.lost()
            self._connection = await self._peers.connect(self.leader_id, Purpose.REPLICA)

    async def disconnect(self) -> None:
        """End the session and the connection, if any."""
        self.session.lost()
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def fetch(
        self, *, wait_max_ms: int, min_bytes: int, partition_max_bytes: int, response_max_bytes: int
    ) -> list[tuple[TopicPartition, PartitionData]]:
        """Fetch; return the partitions in the response.

        Raises ConnectionLost, MalformedRequest, and ApiError when the leader refuses the session.
        """
        fetch = self.session.next()
        request = FetchRequest(
            replica_id=self._replica_id,
            max_wait_ms=wait_max_ms,
            min_bytes=min_bytes,
            max_bytes=response_max_bytes,
            session_id=fetch.session_id,
            session_epoch=fetch.session_epoch,
            topics=_fetch_topics(fetch.positions, partition_max_bytes),
            forgotten_topics_data=_forgotten_topics(fetch.forgotten) if fetch.forgotten else [],
        )
        response = await self._connected.send(request, FetchResponse, version=self._versions.fetch)
        if response.error_code != ErrorCode.NONE:
            self.session.lost()
            raise ApiError(ErrorCode.of(response.error_code))
        self.session.on_response(response.session_id)
        return [
            (TopicPartition(topic.topic, result.partition_index), result)
            for topic in response.responses
            for result in topic.partitions
        ]

    async def epoch_end_offsets(
        self, last_epochs: Mapping[TopicPartition, LastEpoch]
    ) -> list[tuple[TopicPartition, EpochEndOffset]]:
        """Request the end offsets of these epochs.  KIP-101.  Raises ConnectionLost, MalformedRequest."""
        assert self.supports_leader_epochs
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        for (topic, index), (leader_epoch, current_leader_epoch) in last_epochs.items():
            topics.setdefault(topic, []).append(
                OffsetForLeaderPartition(
                    partition=index, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
                )
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._replica_id,
            topics=[OffsetForLeaderTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
        )
        version = self._versions.offset_for_leader_epoch
        response = await self._connected.send(request, OffsetForLeaderEpochResponse, version=version)
        return [
            (TopicPartition(found.topic, result.partition), result)
            for found in response.topics
            for result in found.partitions
        ]

    async def end_offset(
        self, topic_partition: TopicPartition, current_leader_epoch: int
    ) -> ListOffsetsPartitionResponse:
        """Return the log end offset, in `offset` of the result.  Raises ConnectionLost, MalformedRequest."""
        return await self._offset(topic_partition, current_leader_epoch, _LATEST)

    async def start_offset(
        self, topic_partition: TopicPartition, current_leader_epoch: int
    ) -> ListOffsetsPartitionResponse:
        """Return the log start offset, in `offset` of the result.  Raises ConnectionLost, MalformedRequest."""
        return await self._offset(topic_partition, current_leader_epoch, _EARLIEST)

    async def _offset(
        self, topic_partition: TopicPartition, current_leader_epoch: int, timestamp: int
    ) -> ListOffsetsPartitionResponse:
        requested = ListOffsetsPartition(
            partition_index=topic_partition.partition, current_leader_epoch=current_leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._replica_id, topics=[ListOffsetsTopic(name=topic_partition.topic, partitions=[requested])]
        )
        response = await self._connected.send(request, ListOffsetsResponse, version=self._versions.list_offsets)
        return response.topics[0].partitions[0]

    @property
    def _connected(self) -> Connection:
        assert self._connection is not None
        return self._connection


def _fetch_topics(positions: Mapping[TopicPartition, Position], partition_max_bytes: int) -> list[FetchTopic]:
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, index), position in positions.items():
        topics.setdefault(topic, []).append(
            FetchPartition(
                partition=index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.fetch_offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=partition_max_bytes,
            )
        )
    return [FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()]


def _forgotten_topics(partitions: Sequence[TopicPartition]) -> list[ForgottenTopic]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [ForgottenTopic(topic=topic, partitions=indexes) for topic, indexes in topics.items()]

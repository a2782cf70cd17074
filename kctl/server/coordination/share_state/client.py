"""Requests to the share coordinators of the cluster: from leaders of partitions and from group coordinators.

The coordinator of a share-partition is the leader of its partition of `__share_group_state`.  What this broker
coordinates is processed without a connection.  A request is repeated while the coordinator moves or loads, for
RETRY_MS_MAX; repeating is harmless, because a write sets states and the later one of the same leader counts.

Owner: event loop.  Kafka: PersisterStateManager, DefaultStatePersister.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.model import SHARE_GROUP_STATE_TOPIC, TopicPartition, partition_for_key
from kctl.protocol.apis import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from kctl.protocol.apis.read_share_group_state import StateBatch as SentBatch
from kctl.server.coordination.ports import InternalTopics
from kctl.server.coordination.share_state.coordinator import ShareCoordinator
from kctl.server.coordination.share_state.state import (
    Delete,
    Event,
    Initialize,
    Read,
    ShareState,
    Write,
)
from kctl.server.coordination.transactions.ports import PartitionLeaders, Peers
from kctl.server.peers.connections import Purpose
from kctl.server.share_partitions.values import (
    DeliveryState,
    ShareKey,
    StateBatch,
    StateChange,
    StoredState,
)

RETRY_MS = 100
RETRY_MS_MAX = 10_000
_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
_DELIVERY_STATES = {state.value: state for state in DeliveryState}
T = TypeVar("T")


class ShareStateClient:
    """share_partitions.values.ShareStates, and the requests of group coordinators."""

    def __init__(
        self,
        broker_id: int,
        *,
        local: ShareCoordinator,
        topics: InternalTopics,
        leaders: PartitionLeaders,
        peers: Peers,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._topics = topics
        self._leaders = leaders
        self._peers = peers
        self._sleep = sleep
        self._connections: dict[int, Connection] = {}
        self._connecting: dict[int, asyncio.Lock] = {}

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Begin the state of a share-partition, or set its start anew.  Raises ApiError."""
        api = initialize_share_group_state
        partition = api.InitializedPartition(
            partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        request = api.InitializeShareGroupStateRequest(
            group_id=key.group_id, topics=[api.InitializedTopic(topic_id=key.topic_id, partitions=[partition])]
        )
        await self._process(
            key, Initialize(state_epoch, start_offset), request, api.InitializeShareGroupStateResponse, lambda _: None
        )

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        """Return the state, and fence leaders of earlier epochs.  Raises ApiError."""
        api = read_share_group_state
        partition = api.ReadPartition(partition=key.partition, leader_epoch=leader_epoch)
        request = api.ReadShareGroupStateRequest(
            group_id=key.group_id, topics=[api.ReadTopic(topic_id=key.topic_id, partitions=[partition])]
        )
        state = await self._process(key, Read(leader_epoch), request, api.ReadShareGroupStateResponse, _stored_in)
        if isinstance(state, StoredState):
            return state
        assert state is not None
        return StoredState(state.state_epoch, state.start_offset, state.batches)

    async def write(self, key: ShareKey, change: StateChange) -> None:
        """Return when the change is stored.  Raises ApiError."""
        api = write_share_group_state
        partition = api.WrittenPartition(
            partition=key.partition,
            state_epoch=change.state_epoch,
            leader_epoch=change.leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=change.delivery_complete_count,
            state_batches=sent_batches(change.batches),
        )
        request = api.WriteShareGroupStateRequest(
            group_id=key.group_id, topics=[api.WrittenTopic(topic_id=key.topic_id, partitions=[partition])]
        )
        await self._process(key, Write(change), request, api.WriteShareGroupStateResponse, lambda _: None)

    async def delete(self, key: ShareKey) -> None:
        """Delete the state.  Raises ApiError."""
        api = delete_share_group_state
        partition = api.DeletedPartition(partition=key.partition)
        request = api.DeleteShareGroupStateRequest(
            group_id=key.group_id, topics=[api.DeletedTopic(topic_id=key.topic_id, partitions=[partition])]
        )
        await self._process(key, Delete(), request, api.DeleteShareGroupStateResponse, lambda _: None)

    async def summary(self, key: ShareKey) -> ShareState | None:
        """Return epochs, start offset and count of what is stored; None without state.  Raises ApiError."""
        api = read_share_group_state_summary
        partition = api.SummaryPartition(partition=key.partition, leader_epoch=-1)
        request = api.ReadShareGroupStateSummaryRequest(
            group_id=key.group_id, topics=[api.SummaryTopic(topic_id=key.topic_id, partitions=[partition])]
        )
        return await self._process(key, None, request, api.ReadShareGroupStateSummaryResponse, _summary_in)

    async def close(self) -> None:
        """Close the connections to other brokers."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()

    async def _process(
        self,
        key: ShareKey,
        event: Event | None,
        request: object,
        response_class: type[Any],
        convert: Callable[[Any], T],
    ) -> T | ShareState | None:
        """Process the event here or send the request, again and again while the coordinator is not available."""
        left_ms = RETRY_MS_MAX
        while True:
            try:
                return await self._attempt(key, event, request, response_class, convert)
            except ApiError as error:
                if error.code not in _RETRIABLE or left_ms <= 0:
                    raise
            await self._sleep(RETRY_MS / 1000)
            left_ms -= RETRY_MS

    async def _attempt(
        self,
        key: ShareKey,
        event: Event | None,
        request: object,
        response_class: type[Any],
        convert: Callable[[Any], T],
    ) -> T | ShareState | None:
        count = self._topics.partition_count(SHARE_GROUP_STATE_TOPIC)
        if count is None:
            self._topics.ensure_topic(SHARE_GROUP_STATE_TOPIC, None)
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the topic of the share coordinator is being created")
        leader = self._leaders.leader_of(TopicPartition(SHARE_GROUP_STATE_TOPIC, partition_for_key(key.text, count)))
        if leader is None or leader < 0:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the share coordinator has no leader")
        if leader == self._broker_id:
            if event is None:
                return self._local.summary(key, -1)
            return await self._local.process(key, event)
        try:
            connection = await self._connection(leader)
            response = await connection.send(request, response_class)
        except (ConnectionLost, MalformedRequest) as error:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        partitions = [part for topic in response.results for part in topic.partitions]
        if len(partitions) != 1 or partitions[0].partition != key.partition:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the share coordinator has answered something else")
        code = ErrorCode.of(partitions[0].error_code)
        if code is not ErrorCode.NONE:
            raise ApiError(code, partitions[0].error_message or code.description)
        return convert(partitions[0])

    async def _connection(self, broker_id: int) -> Connection:
        async with self._connecting.setdefault(broker_id, asyncio.Lock()):
            connection = self._connections.get(broker_id)
            if connection is None or not connection.is_open:
                connection = self._connections[broker_id] = await self._peers.connect(broker_id, Purpose.SHARE_STATE)
            return connection


def sent_batches(batches: tuple[StateBatch, ...]) -> list[SentBatch]:
    """Return batches as requests have them."""
    return [
        SentBatch(
            first_offset=batch.first,
            last_offset=batch.last,
            delivery_state=batch.state.value,
            delivery_count=batch.delivery_count,
        )
        for batch in batches
    ]


def received_batches(batches: list[SentBatch]) -> tuple[StateBatch, ...]:
    """Return the batches of a request or response.  Raises ApiError(INVALID_REQUEST) for an unknown state."""
    received = []
    for batch in batches:
        state = _DELIVERY_STATES.get(batch.delivery_state)
        if state is None or state is DeliveryState.ACQUIRED:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{batch.delivery_state} is not a state of records")
        received.append(StateBatch(batch.first_offset, batch.last_offset, state, batch.delivery_count))
    return tuple(received)


def _stored_in(part: read_share_group_state.PartitionState) -> StoredState:
    return StoredState(part.state_epoch, part.start_offset, received_batches(part.state_batches))


def _summary_in(part: read_share_group_state_summary.PartitionSummary) -> ShareState | None:
    if part.start_offset < 0 and part.state_epoch == 0:
        return None
    return ShareState(
        part.state_epoch, part.start_offset, part.leader_epoch, delivery_complete_count=part.delivery_complete_count
    )

"""What ShareFetch and ShareAcknowledge have in common: sessions, acknowledgements, and the ends of sessions.

A session ends by a request, by a new session of the member, or with the connection that has opened it: then what the
member has not acknowledged is released at once, and does not wait for its locks to expire.

Owner: event loop.  Kafka: SharePartitionManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.share_acknowledge import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint
from kctl.security.acls import Operation, ResourceType
from kctl.server.loop.slices import gather_sliced
from kctl.server.peers.metadata import MetadataCache
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.share_partitions.acknowledging import acknowledgements
from kctl.server.share_partitions.manager import ShareManager
from kctl.server.share_partitions.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MemberKey,
    ShareSession,
    ShareSessions,
    TopicIdPartition,
)
from kctl.server.share_partitions.values import ShareKey
from kctl.system.environment import Clock

_IDLE_MS = 300_000
"""A session that was not used for so long makes room for a new one."""


class Acknowledged(NamedTuple):
    """The result of the acknowledgements of a partition."""

    error: ErrorCode
    message: str | None = None


class ShareService:
    """The share sessions of a broker."""

    def __init__(self, manager: ShareManager, topics: MetadataCache, clock: Clock, *, sessions_max: int) -> None:
        self._manager = manager
        self._topics = topics
        self._clock = clock
        self._sessions = ShareSessions(sessions_max)

    @property
    def session_count(self) -> int:
        """The number of open sessions."""
        return len(self._sessions)

    def session(
        self,
        key: MemberKey,
        epoch: int,
        added: Iterable[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
        peer: Peer,
    ) -> ShareSession | None:
        """Return the session of a request after it was updated; None if the request ends it.  Raises ApiError."""
        now_ms = self._clock.monotonic_ms()
        if not key.group_id or not key.member_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a share session needs a group id and a member id")
        if epoch == INITIAL_EPOCH:
            self._manager.release_everywhere(*key)
            session = self._sessions.open(key, now_ms, _IDLE_MS)
            if peer.end is not None:
                peer.end.watch(key, partial(self._disconnected, key, session))
        else:
            session = self._sessions.resume(key, epoch, now_ms)
        if epoch == FINAL_EPOCH:
            return None
        session.update(added, forgotten)
        return session

    def close(self, key: MemberKey) -> None:
        """End the session, and release what the member has not acknowledged."""
        self._sessions.close(key)
        self._manager.release_everywhere(*key)
        if not self._sessions.has_group(key.group_id):
            self._manager.forget_group(key.group_id)

    def _disconnected(self, key: MemberKey, session: ShareSession) -> None:
        """End the session of a connection, unless the member has opened another one."""
        if self._sessions.has(key, session):
            self.close(key)

    def name(self, partition: TopicIdPartition) -> TopicPartition | None:
        """Return the partition by name; None if there is no such topic."""
        name = self._topics.topic_name(partition.topic_id)
        return None if name is None else TopicPartition(name, partition.partition)

    def checked_name(self, partition: TopicIdPartition, context: RequestContext) -> TopicPartition:
        """Return the partition by name.  Raises ApiError: UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED."""
        named = self.name(partition)
        if named is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        context.check(Operation.READ, ResourceType.TOPIC, named.topic)
        return named

    def leader(self, partition: TopicIdPartition, error: int) -> LeaderIdAndEpoch:
        """Return the leader for a response with NOT_LEADER_OR_FOLLOWER; unknown for others."""
        named = self.name(partition) if error == ErrorCode.NOT_LEADER_OR_FOLLOWER else None
        info = None if named is None else self._topics.partition(named)
        return (
            LeaderIdAndEpoch()
            if info is None
            else LeaderIdAndEpoch(leader_id=info.leader, leader_epoch=info.leader_epoch)
        )

    def endpoints(self, leaders: Iterable[LeaderIdAndEpoch], listener: str) -> list[NodeEndpoint]:
        """Return the addresses of leaders on the listener of the client."""
        endpoints = []
        for broker_id in sorted({leader.leader_id for leader in leaders}):
            broker = self._topics.brokers.get(broker_id)
            endpoint = None if broker is None else broker.endpoint(listener)
            if broker is not None and endpoint is not None:
                endpoints.append(
                    NodeEndpoint(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                )
        return endpoints

    async def acknowledge(
        self,
        key: MemberKey,
        requested: Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]],
        context: RequestContext,
        *,
        may_renew: bool,
    ) -> dict[TopicIdPartition, Acknowledged]:
        """Return the results, when all that is accepted is stored."""
        if not requested:
            return {}
        work = (
            self._acknowledge(key, partition, batches, context, may_renew) for partition, batches in requested.items()
        )
        return dict(zip(requested, await gather_sliced(work), strict=True))

    async def _acknowledge(
        self,
        key: MemberKey,
        partition: TopicIdPartition,
        batches: Sequence[AcknowledgementBatch],
        context: RequestContext,
        may_renew: bool,
    ) -> Acknowledged:
        try:
            named = self.checked_name(partition, context)
            wanted = acknowledgements(
                ((batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in batches),
                may_renew=may_renew and self._manager.settings(key.group_id).may_renew,
            )
            # After a change of the leader nothing is acquired here, which the state of the records says.
            share_key = ShareKey(key.group_id, partition.topic_id, partition.partition)
            hosted = await self._manager.get(share_key, named.topic)
            error = await self._manager.acknowledge(hosted, key.member_id, wanted)
        except ApiError as refusal:
            return Acknowledged(refusal.code, refusal.message or refusal.code.description)
        return Acknowledged(error, None if error is ErrorCode.NONE else error.description)

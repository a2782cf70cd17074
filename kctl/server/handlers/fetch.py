"""Fetch (key 1, versions 0-18): records from partitions, as slices of their segment files.

replication/partition_reading decides which records a reader may read; the fetch offset of a follower also reports its
log end offset.  The response is sent when min_bytes are available, max_wait_ms have passed, or there is an error.  The
first batch is returned whole even if it is larger than the limits (KIP-74), because its reader could not continue
without it.  Sessions: KIP-227, replication/fetch_session.

Version notes: 0-1 get message format 0 and 2-3 format 1 (replication/old_formats); 3 complete first batch; 4 isolation
level; 5 log start offset; 6 KAFKA_STORAGE_ERROR; 7 sessions; 9 leader epochs (KIP-320); 10 zstd; 11 rack, and
followers serve consumers; 12 flexible, last fetched epoch; 13 topic ids, UNKNOWN_TOPIC_ID if there is none; 15
followers name themselves in a tagged field; 17-18 fields of KRaft, which are ignored.

A session has either names or ids, else FETCH_SESSION_TOPIC_ID_ERROR.  That is also the response when the topic of an id
has been deleted, or that of an unknown id is there: the client begins a new session.
A consumer that exceeds its quota gets an empty response, and the records do not count.  KIP-219.
With a rack-aware replica.selector.class the leader redirects consumers to an in-sync replica in their rack (KIP-392).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.limits import READ_PER_SLICE_MAX
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import FetchRequest, FetchResponse, FetchTopic
from kctl.security.acls import Operation, ResourceType
from kctl.server.loop.slices import pause, sliced, sliced_batches
from kctl.server.network.dispatch import waiting_reply
from kctl.server.peers.metadata import MetadataCache, is_placeholder
from kctl.server.replication.fetching.fetch_reading import Fetch, FetchKey
from kctl.server.replication.fetching.fetch_replies import DelayedFetch, FetchReply, respond_sliced
from kctl.server.replication.fetching.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchPosition,
    FetchSession,
    FetchSessionCache,
)
from kctl.server.replication.fetching.partition_reading import Reader, is_of_one_history
from kctl.server.replication.fetching.replica_selector import ReplicaSelector
from kctl.server.replication.isr_changes import IsrChanges
from kctl.server.replication.partition import ANY_EPOCH
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.replication.throttles import ReplicationThrottles
from kctl.server.requests.context import EVERYTHING_ALLOWED, RequestContext
from kctl.server.requests.purgatory import Purgatory
from kctl.server.requests.quotas.accounts import RequestAccount
from kctl.server.requests.record_work import RecordWork
from kctl.system.environment import Clock, Random

_READ, _TOPIC = Operation.READ, ResourceType.TOPIC
"""Constants, because Python 3.11 takes 0.1 us to find a member of an enum."""
READ_COMMITTED = 1
_FULL = frozenset({FINAL_EPOCH, INITIAL_EPOCH})
"""Session epochs of requests that do not continue a session."""
_TOPIC_OF = attrgetter("topic_partition.topic")
_NONE: frozenset[str] = frozenset()
FIRST_VERSION_OF_SESSIONS = 7
FIRST_VERSION_WITH_IDS = 13


class FetchHandler:
    """Serves Fetch requests.  Owner: event loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory[FetchKey],
        sessions: FetchSessionCache,
        isr_changes: IsrChanges,
        *,
        throttles: ReplicationThrottles,
        selector: ReplicaSelector,
        clock: Clock,
        random: Random,
        work: RecordWork,
        fetch_max_bytes: int,
        metadata: MetadataCache,
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._purgatory = purgatory
        self._sessions = sessions
        self._isr_changes = isr_changes
        self._throttles = throttles
        self._selector = selector
        self._clock = clock
        self._random = random
        self._work = work
        self._fetch_max_bytes = fetch_max_bytes

    def handle(self, request: FetchRequest, context: RequestContext) -> FetchResponse | asyncio.Future[FetchResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        now_ms = self._clock.monotonic_ms()
        try:
            if context.api_version >= FIRST_VERSION_WITH_IDS:
                self._set_names(request)
            session = self._session(request, context.api_version, now_ms)
            if _is_long(request, session, context):
                return _task(self._respond_sliced(request, context, session, now_ms), context.account)
            if session is not None:
                self._sessions.update(session, _positions(request.topics), _forgotten(request))
        except ApiError as error:
            return _failed(error)
        requested = [] if session else list(_positions(request.topics))
        positions = session.positions.values() if session else requested
        denied = _denied_topics(positions, context, is_follower=request.replica_id >= 0)
        reply = self._reply(request, context, session, requested, denied)
        fetch = reply.fetch
        if len(fetch.positions) > READ_PER_SLICE_MAX:
            # All positions of the session are active again, because its reader or what it may read is another.
            return _task(self._finish_sliced(request, reply, session, denied, now_ms), context.account)
        if request.replica_id >= 0 and not denied:
            self.note_follower(request.replica_id, session, fetch.positions, now_ms)
        return self._read_or_wait(request, context, session, reply)

    def continue_session(
        self, request: FetchRequest, context: RequestContext, session: FetchSession
    ) -> FetchResponse | asyncio.Future[FetchResponse]:
        """As `handle`, for a request that has been applied to its session: its topics do not matter.

        All of the session must be permitted, in at most READ_PER_SLICE_MAX active positions.
        """
        return self._read_or_wait(request, context, session, self._reply(request, context, session, [], _NONE))

    def delayed(
        self,
        request: FetchRequest,
        context: RequestContext,
        session: FetchSession | None,
        positions: list[FetchPosition],
        future: asyncio.Future[FetchResponse],
    ) -> DelayedFetch:
        """Return a fetch of permitted positions that waits already, and has found nothing new before."""
        return DelayedFetch(self._reply(request, context, session, positions, _NONE), future)

    def _read_or_wait(
        self, request: FetchRequest, context: RequestContext, session: FetchSession | None, reply: FetchReply
    ) -> FetchResponse | asyncio.Future[FetchResponse]:
        fetch = reply.fetch
        if fetch.is_converted:
            return _task(self._read_sliced(reply, request), context.account)
        if request.max_wait_ms <= 0 or not fetch.has_nothing_new():
            reading = fetch.read()
            if request.max_wait_ms <= 0 or fetch.is_enough(reading):
                return reply.response(reading)
            fetch.wait_after(reading)
        if session is not None and len(session.positions) > READ_PER_SLICE_MAX:
            # More partitions than one slice has may change before there are min_bytes.
            return _task(self._read_sliced(reply, request), context.account)
        delayed = DelayedFetch(reply, waiting_reply(context))
        fetch.watch(fetch.positions)
        self._purgatory.watch(delayed, fetch.watched_keys, request.max_wait_ms)
        return delayed.future

    async def _respond_sliced(
        self, request: FetchRequest, context: RequestContext, session: FetchSession | None, now_ms: int
    ) -> FetchResponse:
        """As `handle`, for so many partitions that each of its steps is a loop with pauses."""
        await pause()  # Several such requests may arrive together.
        requested = [position async for position in sliced(_positions(request.topics), READ_PER_SLICE_MAX)]
        if session is not None:
            try:
                self._sessions.update(session, requested, _forgotten(request))
            except ApiError as error:
                return _failed(error)
        await pause()
        denied: frozenset[str] = frozenset()
        all_positions = list(session.positions.values()) if session else requested
        async for positions in sliced_batches(all_positions, READ_PER_SLICE_MAX):
            denied |= _denied_topics(positions, context, is_follower=request.replica_id >= 0)
        reply = self._reply(request, context, session, requested, denied)
        return await self._finish_sliced(request, reply, session, denied, now_ms)

    async def _finish_sliced(
        self,
        request: FetchRequest,
        reply: FetchReply,
        session: FetchSession | None,
        denied: frozenset[str],
        now_ms: int,
    ) -> FetchResponse:
        await pause()
        if request.replica_id >= 0 and not denied:
            async for positions in sliced_batches(reply.fetch.positions, READ_PER_SLICE_MAX):
                self.note_follower(request.replica_id, session, positions, now_ms)
        return await self._read_sliced(reply, request)

    def _read_sliced(self, reply: FetchReply, request: FetchRequest) -> Coroutine[Any, Any, FetchResponse]:
        return respond_sliced(reply, self._purgatory, self._work, request.max_wait_ms)

    def _reply(
        self,
        request: FetchRequest,
        context: RequestContext,
        session: FetchSession | None,
        requested: list[FetchPosition],
        denied: frozenset[str],
    ) -> FetchReply:
        max_bytes = min(request.max_bytes, self._fetch_max_bytes)
        limited = context.limited
        if limited is not None:
            if request.replica_id >= 0:
                context.exempt()
            else:
                max_bytes = limited.fetch_bytes_max(max_bytes)
        reader = Reader(
            context.api_version,
            replica_id=request.replica_id,
            is_committed_only=request.isolation_level == READ_COMMITTED,
            rack=request.rack_id,
            listener=context.peer.listener,
        )
        if session is not None and (denied or session.reader != reader.kind):
            session.activate_all()
            session.reader = reader.kind
        fetch = Fetch(
            self._replicas,
            requested if session is None else session.active(),
            reader,
            session=session,
            quota=self._throttles.leader,
            selector=self._selector,
            clock=self._clock,
            min_bytes=request.min_bytes,
            max_bytes=max_bytes,
            denied=denied,
        )
        needs_session = request.session_epoch == INITIAL_EPOCH and context.api_version >= FIRST_VERSION_OF_SESSIONS
        ids: dict[str, UUID] = {}
        if context.api_version >= FIRST_VERSION_WITH_IDS:
            ids = {topic.topic: topic.topic_id for topic in request.topics} if session is None else session.topic_ids
        create = partial(self._create_session, fetch, ids) if needs_session else _no_session
        return FetchReply(fetch, session, create, context, ids)

    def _session(self, request: FetchRequest, version: int, now_ms: int) -> FetchSession | None:
        """Return the session that an incremental request continues; None for a full request."""
        if version < FIRST_VERSION_OF_SESSIONS:
            return None
        if request.session_epoch in _FULL:
            if request.session_id != NO_SESSION:
                self._sessions.close(request.session_id)
            return None
        session = self._sessions.resume(request.session_id, request.session_epoch, now_ms)
        if version >= FIRST_VERSION_WITH_IDS:
            if not session.topic_ids or not self._has_same_topics(session):
                raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
            session.topic_ids |= {topic.topic: topic.topic_id for topic in request.topics}
        elif session.topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def _has_same_topics(self, session: FetchSession) -> bool:
        """Return whether the ids of the session stand for the same topics as before."""
        version = self._metadata.topics_version
        if session.topics_version != version:
            name_of = self._metadata.name_or_placeholder
            if any(name_of(topic_id) != name for name, topic_id in session.topic_ids.items()):
                return False
            session.topics_version = version
        return True

    def _set_names(self, request: FetchRequest) -> None:
        """Set the names that the ids of topics stand for, and the replica id."""
        if request.replica_state is not None:
            request.replica_id = request.replica_state.replica_id
        name_of = self._metadata.name_or_placeholder
        for topic in request.topics:
            topic.topic = name_of(topic.topic_id)
        for forgotten in request.forgotten_topics_data:
            forgotten.topic = name_of(forgotten.topic_id)

    def note_follower(
        self, replica_id: int, session: FetchSession | None, positions: Sequence[FetchPosition], now_ms: int
    ) -> None:
        """Update the follower's log end from its fetch offset: this may advance the high watermark and add it to the
        ISR.

        Skipped for a follower whose log diverges from the leader's.
        """
        if session is not None:
            session.followed_ms = now_ms
        moved: list[TopicPartition] = []
        for position in positions:
            partition = self._replicas.partitions.get(position.topic_partition)
            if partition is None or partition.leader != partition.broker_id or replica_id not in partition.followers:
                continue
            if position.current_leader_epoch not in {ANY_EPOCH, partition.leader_epoch}:
                continue
            if not is_of_one_history(partition.log, position):
                continue
            has_moved = partition.record_fetch(replica_id, position.fetch_offset, position.log_start_offset, now_ms)
            self._isr_changes.may_expand(partition, replica_id)
            if has_moved:
                moved.append(position.topic_partition)
        if moved:
            self._replicas.partitions_moved(moved)

    def _create_session(self, fetch: Fetch, topic_ids: dict[str, UUID]) -> FetchSession | None:
        """Return a new session for a full request, or None if the cache is full."""
        reader = fetch.reader
        session = self._sessions.create(
            self._random.randrange(1, 1 << 31),
            fetch.positions,
            is_follower=reader.is_follower,
            now_ms=self._clock.monotonic_ms(),
        )
        if session is not None:
            session.reader, session.woken = reader.kind, self._replicas.woken_sessions
            session.topic_ids, session.topics_version = topic_ids, self._metadata.topics_version
        return session


def _no_session() -> FetchSession | None:
    return None


def _failed(error: ApiError) -> FetchResponse:
    return FetchResponse(error_code=error.code, session_id=NO_SESSION, responses=[])


def _task(work: Awaitable[FetchResponse], account: RequestAccount | None) -> asyncio.Future[FetchResponse]:
    """Return a task, which ends when the connection is closed; its time counts for the quota of request time."""
    if account is not None and account.is_timed:
        work = account.measured(work)
    return asyncio.ensure_future(work)


def _is_long(request: FetchRequest, session: FetchSession | None, context: RequestContext) -> bool:
    """Return whether the request names or examines more partitions than one slice has."""
    count = 0
    if session is not None:
        # The topics of all partitions of a consumer are authorized, because permissions may have changed.
        is_authorized = request.replica_id >= 0 or context.access is EVERYTHING_ALLOWED
        count = session.active_count if is_authorized else len(session.positions)
    for topic in request.topics:
        count += 1 + len(topic.partitions)
    return count > READ_PER_SLICE_MAX


def _forgotten(request: FetchRequest) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.topic, index) for topic in request.forgotten_topics_data for index in topic.partitions)


def _positions(topics: Iterable[FetchTopic]) -> Iterable[FetchPosition]:
    for topic in topics:
        for partition in topic.partitions:
            yield FetchPosition(
                TopicPartition(topic.topic, partition.partition),
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.log_start_offset,
            )


def _denied_topics(
    positions: Collection[FetchPosition], context: RequestContext, *, is_follower: bool
) -> frozenset[str]:
    """Return the topics that the client may not read; a client that claims to be a follower may read all or none."""
    if is_follower and context.allows_on_cluster(Operation.CLUSTER_ACTION):
        return frozenset()
    if is_follower:
        return frozenset(map(_TOPIC_OF, positions))
    permitted = context.permitted(_READ, _TOPIC)
    if permitted is not None:
        for position in positions:
            if position.topic_partition.topic not in permitted:
                return context.denied(
                    _READ, _TOPIC, (name for name in map(_TOPIC_OF, positions) if not is_placeholder(name))
                )
    return _NONE

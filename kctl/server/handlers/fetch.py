"""Fetch (key 1, versions 0-12): records from partitions, as slices of their segment files.

replication/fetch_reading decides which records a reader may read; the fetch offset of a follower also reports its log
end offset.  The response is sent when min_bytes are available, max_wait_ms have passed, or something is urgent: an
error, or for a follower a new high watermark.  The first batch is returned whole even if it is larger than the limits
(KIP-74), because its reader could not continue without it.  Sessions: KIP-227, replication/fetch_session.

Version notes: 0-1 get message format 0 and 2-3 format 1 (replication/old_formats); 3 complete first batch; 4 isolation
level; 5 log start offset; 6 KAFKA_STORAGE_ERROR; 7 sessions; 9 leader epochs (KIP-320); 10 zstd; 11 rack, and
followers serve consumers; 12 flexible, last fetched epoch.
A consumer that exceeds its quota gets an empty response, and the records do not count.  KIP-219.
With a rack-aware replica.selector.class the leader redirects consumers to an in-sync replica in their rack (KIP-392).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from kctl.environment import Clock, Random
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol import codec
from kctl.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kctl.security.acls import Operation, ResourceType
from kctl.server.quotas.accounts import RequestAccount
from kctl.server.replication.fetch_reading import Fetch, Reader, Reading, is_of_one_history
from kctl.server.replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchPosition,
    FetchSession,
    FetchSessionCache,
)
from kctl.server.replication.isr_changes import IsrChanges
from kctl.server.replication.partition import ANY_EPOCH
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.replication.replica_selector import ReplicaSelector
from kctl.server.replication.throttles import ReplicationThrottles
from kctl.server.requests.context import RequestContext
from kctl.server.requests.purgatory import Purgatory
from kctl.server.requests.record_work import RecordWork

READ_COMMITTED = 1
FIRST_VERSION_OF_SESSIONS = 7


class FetchHandler:
    """Serves Fetch requests.  Owner: event loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory[TopicPartition],
        sessions: FetchSessionCache,
        isr_changes: IsrChanges,
        *,
        throttles: ReplicationThrottles,
        selector: ReplicaSelector,
        clock: Clock,
        random: Random,
        work: RecordWork,
        fetch_max_bytes: int,
    ) -> None:
        self._replicas = replicas
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
        """Serves one request: returns the response, or an awaitable if it has to wait."""
        now_ms = self._clock.monotonic_ms()
        try:
            session = self._session(request, context.api_version, now_ms)
        except ApiError as error:
            return FetchResponse(error_code=error.code, session_id=NO_SESSION, responses=[])
        positions = list(session.positions.values()) if session else list(_positions(request))
        denied = _denied_topics(positions, context, is_follower=request.replica_id >= 0)
        if request.replica_id >= 0 and not denied:
            self._note_follower(request.replica_id, positions, now_ms)
        max_bytes = min(request.max_bytes, self._fetch_max_bytes)
        account = context.account
        if account is not None:
            if request.replica_id >= 0:
                account.exempt()
            elif account.fetch_bytes_max is not None:
                max_bytes = int(min(max_bytes, account.fetch_bytes_max))
        reader = Reader(
            context.api_version,
            replica_id=request.replica_id,
            is_committed_only=request.isolation_level == READ_COMMITTED,
            rack=request.rack_id,
            listener=context.listener,
        )
        fetch = Fetch(
            self._replicas,
            positions,
            reader,
            quota=self._throttles.leader,
            selector=self._selector,
            clock=self._clock,
            min_bytes=min(request.min_bytes, max_bytes),
            max_bytes=max_bytes,
            denied=denied,
        )
        needs_session = request.session_epoch == INITIAL_EPOCH and context.api_version >= FIRST_VERSION_OF_SESSIONS
        delayed = DelayedFetch(self, fetch, session, account, needs_session=needs_session)
        if fetch.is_converted:
            return asyncio.ensure_future(self._respond_in_old_format(fetch, delayed, request.max_wait_ms))
        reading = fetch.read()
        if request.max_wait_ms <= 0 or fetch.is_enough(reading):
            return delayed.response(reading)
        delayed.future = asyncio.get_running_loop().create_future()
        fetch.wait_after(reading)
        self._purgatory.watch(delayed, [position.topic_partition for position in positions], request.max_wait_ms)
        return delayed.future

    async def _respond_in_old_format(self, fetch: Fetch, delayed: DelayedFetch, max_wait_ms: int) -> FetchResponse:
        """Serves a fetch with down-conversion; continues to wait if no records remain to send."""
        deadline_ms = self._clock.monotonic_ms() + max_wait_ms
        reading = fetch.read()
        if max_wait_ms > 0 and not fetch.is_enough(reading):
            reading = await self._later_reading(fetch, None, max_wait_ms)
        while True:
            seen = fetch.upper_bounds()
            has_response = await fetch.convert(reading, self._work)
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if has_response or left_ms <= 0 or not fetch.positions or not fetch.needs_bytes:
                return delayed.response(reading)
            reading = await self._later_reading(fetch, seen, left_ms)
            await asyncio.sleep(0)  # A reading that is there at once does not yield to the event loop.

    async def _later_reading(self, fetch: Fetch, seen: dict[TopicPartition, int] | None, max_wait_ms: int) -> Reading:
        wait = _WaitForRecords(fetch, seen)
        keys = [position.topic_partition for position in fetch.positions]
        self._purgatory.complete_or_watch(wait, keys, max_wait_ms)
        return await wait.future

    def _session(self, request: FetchRequest, version: int, now_ms: int) -> FetchSession | None:
        """The session that an incremental request continues; None for a full request."""
        if version < FIRST_VERSION_OF_SESSIONS:
            return None
        if request.session_epoch in {FINAL_EPOCH, INITIAL_EPOCH}:
            self._sessions.close(request.session_id)
            return None
        session = self._sessions.resume(request.session_id, request.session_epoch, now_ms)
        forgotten = (TopicPartition(t.topic, p) for t in request.forgotten_topics_data for p in t.partitions)
        self._sessions.update(session, _positions(request), forgotten)
        return session

    def _note_follower(self, replica_id: int, positions: list[FetchPosition], now_ms: int) -> None:
        """Updates the follower's log end from its fetch offset: may advance the high watermark and add it to the ISR.

        Skipped for a follower whose log diverges from the leader's.
        """
        moved: list[TopicPartition] = []
        for position in positions:
            partition = self._replicas.partitions.get(position.topic_partition)
            if partition is None or not partition.is_leader or replica_id not in partition.followers:
                continue
            if position.current_leader_epoch not in {ANY_EPOCH, partition.leader_epoch}:
                continue
            if not is_of_one_history(partition.log, position):
                continue
            has_moved = partition.record_fetch(replica_id, position.fetch_offset, position.log_start_offset, now_ms)
            self._isr_changes.may_expand(partition, replica_id)
            if has_moved:
                moved.append(position.topic_partition)
        self._replicas.partitions_moved(moved)

    def create_session(self, fetch: Fetch) -> FetchSession | None:
        """A new session for a full request, or None if the cache is full."""
        session_id = self._random.randrange(1, 1 << 31)
        return self._sessions.create(
            session_id, fetch.positions, is_follower=fetch.reader.is_follower, now_ms=self._clock.monotonic_ms()
        )


class _WaitForRecords:
    """Waits until a fetch has enough to read, beyond the end offsets in `seen`."""

    def __init__(self, fetch: Fetch, seen: dict[TopicPartition, int] | None) -> None:
        self.future: asyncio.Future[Reading] = asyncio.get_running_loop().create_future()
        self._fetch = fetch
        self._seen = seen

    def try_complete(self, changed: Collection[TopicPartition]) -> bool:
        """Completes if min_bytes are available or something is urgent."""
        if self._seen is not None:
            changed = [tp for tp in changed if self._fetch.upper_bound_of(tp) != self._seen[tp]]
            if not changed:
                return False  # The bytes that are available have no form in the old format.
        reading = self._fetch.read_if_enough(changed)
        if reading is None:
            return False
        self._settle(reading)
        return True

    def on_timeout(self) -> None:
        self._settle(self._fetch.read())

    def _settle(self, reading: Reading) -> None:
        if not self.future.done():
            self.future.set_result(reading)


class DelayedFetch:
    """A fetch that waits until min_bytes are available."""

    def __init__(
        self,
        handler: FetchHandler,
        fetch: Fetch,
        session: FetchSession | None,
        account: RequestAccount | None,
        *,
        needs_session: bool,
    ) -> None:
        self.future: asyncio.Future[FetchResponse] | None = None
        self._handler = handler
        self._fetch = fetch
        self._session = session
        self._account = account
        self._needs_session = needs_session

    def try_complete(self, changed: Collection[TopicPartition]) -> bool:
        """Completes if min_bytes are available or something is urgent."""
        reading = self._fetch.read_if_enough(changed)
        if reading is None:
            return False
        self._complete(reading)
        return True

    def on_timeout(self) -> None:
        """Completes with the records that are available."""
        self._complete(self._fetch.read())

    def response(self, reading: Reading) -> FetchResponse:
        """The response with this reading; an empty one if a quota is exceeded."""
        if self._account is not None and self._account.throttle_fetch(lambda: self._size_bytes(reading)):
            session_id = NO_SESSION if self._session is None else self._session.session_id
            return FetchResponse(error_code=ErrorCode.NONE, session_id=session_id, responses=[])
        self._fetch.note_sent(reading)
        session = self._session
        if session is not None:
            changed = session.changes(reading.results, reading.record_bytes)
            results = {topic_partition: reading.results[topic_partition] for topic_partition in changed}
            return FetchResponse(error_code=ErrorCode.NONE, session_id=session.session_id, responses=_by_topic(results))
        if self._needs_session and reading.results:
            session = self._handler.create_session(self._fetch)
            if session is not None:
                session.changes(reading.results, reading.record_bytes)
        return FetchResponse(
            error_code=ErrorCode.NONE,
            session_id=session.session_id if session else NO_SESSION,
            responses=_by_topic(reading.results),
        )

    def _size_bytes(self, reading: Reading) -> int:
        """The size of the response with its length, as Kafka counts it for the quota."""
        results = reading.results
        if self._session is not None:
            pending = self._session.pending(results, reading.record_bytes)
            results = {topic_partition: results[topic_partition] for topic_partition in pending}
        response = FetchResponse(error_code=ErrorCode.NONE, session_id=NO_SESSION, responses=_by_topic(results))
        return 4 + sum(len(chunk) for chunk in codec.encode(response, self._fetch.reader.version))

    def _complete(self, reading: Reading) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(self.response(reading))


def _positions(request: FetchRequest) -> Iterable[FetchPosition]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield FetchPosition(
                TopicPartition(topic.topic, partition.partition),
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.log_start_offset,
            )


def _denied_topics(positions: list[FetchPosition], context: RequestContext, *, is_follower: bool) -> frozenset[str]:
    """The topics that the client may not read; a client that claims to be a follower may read all or none."""
    topics = (position.topic_partition.topic for position in positions)
    if is_follower:
        return frozenset() if context.allows_on_cluster(Operation.CLUSTER_ACTION) else frozenset(topics)
    return context.denied(Operation.READ, ResourceType.TOPIC, topics)


def _by_topic(results: dict[TopicPartition, PartitionData]) -> list[FetchableTopicResponse]:
    topics: dict[str, list[PartitionData]] = {}
    for topic_partition, result in results.items():
        topics.setdefault(topic_partition.topic, []).append(result)
    return [FetchableTopicResponse(topic=topic, partitions=partitions) for topic, partitions in topics.items()]

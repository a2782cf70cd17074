"""Answers a Fetch request that was read into flat values (kctl.records.compiled.fetch_frame), or has it wait.

It does what kctl/server/handlers/fetch.py does with fewer calls, for partitions that have nothing unusual.  Anything
else is left to that handler: without a session reading changes nothing, and what a request of a session has changed in
it is not changed again.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from kctl.limits import READ_PER_SLICE_MAX
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import FetchRequest, FetchTopic
from kctl.records.compiled.fetch_frame import (
    FetchedTopic,
    PlainFetch,
    PlainPosition,
    ReadPartition,
    write_fetch_response,
)
from kctl.security.acls import CLUSTER_NAME, Operation, ResourceType
from kctl.server.network.dispatch import PlainReply, waiting_reply
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.fetching.fetch_reading import FetchKey
from kctl.server.replication.fetching.fetch_replies import NOT_RECORDS_BYTES_MAX, DelayedFetch
from kctl.server.replication.fetching.fetch_session import (
    NO_SESSION,
    FetchPosition,
    FetchSession,
    FetchSessionCache,
)
from kctl.server.replication.fetching.partition_reading import FIRST_VERSION_THAT_READS_FROM_FOLLOWERS
from kctl.server.replication.fetching.plain_reading import (
    FIRST_VERSION_WITH_IDS,
    PlainReading,
    read_records,
    requested_ids,
    with_records,
)
from kctl.server.replication.partition import ANY_EPOCH
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.replication.throttles import ReplicationQuota
from kctl.server.requests.context import EVERYTHING_ALLOWED, AccessControl, Peer, RequestContext
from kctl.server.requests.purgatory import Purgatory
from kctl.server.requests.quotas.meters import LimitedClient
from kctl.storage.log.lookup import RecordsSlice
from kctl.system.environment import Clock

_READ, _TOPIC = Operation.READ, ResourceType.TOPIC
_CLUSTER_ACTION, _CLUSTER = Operation.CLUSTER_ACTION, ResourceType.CLUSTER

Finish = Callable[[RequestContext], Any]
"""Returns for a request what a handler returns."""


class FetchRequests(Protocol):
    """The part of the handler of all Fetch requests that this one uses."""

    def note_follower(
        self, replica_id: int, session: FetchSession, positions: Sequence[FetchPosition], now_ms: int
    ) -> None:
        """Update what is known of a follower from its fetch offsets."""

    def continue_session(self, request: FetchRequest, context: RequestContext, session: FetchSession) -> Any:
        """Serve a request that has been applied to its session; return what a handler returns."""

    def delayed(
        self,
        request: FetchRequest,
        context: RequestContext,
        session: FetchSession | None,
        positions: list[FetchPosition],
        future: asyncio.Future[Any],
    ) -> DelayedFetch:
        """Return a fetch that waits already, and has found nothing new before."""


class PlainFetchHandler:
    """Serves Fetch requests that were read into flat values."""

    def __init__(
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory[FetchKey],
        sessions: FetchSessionCache,
        requests: FetchRequests,
        *,
        quota: ReplicationQuota,
        clock: Clock,
        fetch_max_bytes: int,
        metadata: MetadataCache,
    ) -> None:
        """`quota` is that of the leader for throttled followers."""
        self._replicas = replicas
        self._purgatory = purgatory
        self._sessions = sessions
        self._requests = requests
        self._quota = quota
        self._clock = clock
        self._fetch_max_bytes = fetch_max_bytes
        self._metadata = metadata

    def handle(
        self,
        request: PlainFetch,
        frame: memoryview,
        peer: Peer,
        access: AccessControl,
        limited: LimitedClient | None,
    ) -> PlainReply | Finish | None:
        """Serve one request: return the reply, or a function that makes the response.

        Return None, and change nothing, for what is left to the other handler.
        """
        del frame
        if request[4] != NO_SESSION:
            return self._continue(request, peer, access, limited)
        version, correlation_id, _, _, _, _, is_committed, max_wait_ms, min_bytes, max_bytes, topics, positions = (
            request
        )
        if len(positions) > 1 and _has_doubles(topics, positions):
            return None
        max_bytes = min(max_bytes, self._fetch_max_bytes)
        if limited is not None and limited.fetch is not None and max_bytes > limited.fetch.left:
            max_bytes = limited.fetch_bytes_max(max_bytes)
        slices: list[RecordsSlice] = []
        read = self._read(positions, peer, access, max_bytes, slices, is_committed=is_committed)
        if read is None:
            return None
        total = 0
        for records in slices:
            total += records.size
        enough_bytes = min(min_bytes, max_bytes)
        if max_wait_ms > 0 and total < enough_bytes:
            if slices or not _is_complete(positions, read, is_committed=is_committed) or _limits_fetch(limited):
                return None
            return partial(self._wait, request, None, _fetch_positions(positions), max_bytes)
        if limited is not None and not limited.admits_fetch(total + NOT_RECORDS_BYTES_MAX):
            return None
        pieces = write_fetch_response(version, correlation_id, NO_SESSION, is_committed, topics, read)
        counters = self._replicas.traffic.found
        for position, partition in zip(positions, read, strict=True):
            traffic = counters(position[0])
            traffic.fetch_requests += 1
            traffic.bytes_out += partition[4]
        return with_records(pieces, slices), 1 + len(read)

    def _read(
        self,
        positions: list[PlainPosition],
        peer: Peer,
        access: AccessControl,
        max_bytes: int,
        slices: list[RecordsSlice],
        *,
        is_committed: bool,
    ) -> list[ReadPartition] | None:
        """Return what is known of each partition, and add the records of those that have any to `slices`.

        Return None if something is unusual.
        """
        granted = None
        if access is not EVERYTHING_ALLOWED:
            granted = access.granted.get((peer.principal, peer.client_host, _READ, _TOPIC))
            if granted is None or access.audited.allowed:
                return None
        replicas = self._replicas.partitions
        read: list[ReadPartition] = []
        left = max_bytes
        for topic, index, leader_epoch, offset, partition_max_bytes, last_epoch, _ in positions:
            partition = replicas.get((topic, index))  # type: ignore[call-overload]
            if (
                partition is None
                or (granted is not None and topic not in granted)
                or (leader_epoch not in (partition.leader_epoch, ANY_EPOCH))
                or last_epoch != ANY_EPOCH
                or not partition.may_lead
            ):
                return None
            log, high_watermark = partition.log, partition.high_watermark
            if log.log_directory.failure is not None or not log.log_start_offset <= offset <= log.log_end_offset:
                return None
            size = 0
            last_stable_offset = partition.last_stable_offset
            end = last_stable_offset if is_committed else high_watermark
            limit = min(left, partition_max_bytes)
            if offset < end and (limit > 0 or not slices):
                records = read_records(self._replicas, partition, offset, limit, end, not slices, is_committed)
                if records is None:
                    return None
                size = records.size
                if size:
                    slices.append(records)
                    left -= size
            read.append((index, high_watermark, last_stable_offset, log.log_start_offset, size))
        return read

    def _continue(
        self, request: PlainFetch, peer: Peer, access: AccessControl, limited: LimitedClient | None
    ) -> PlainReply | Finish | None:
        """As `handle`, for a request of a session."""
        version, _, _, replica_id, session_id, epoch, _, max_wait_ms, min_bytes, max_bytes, topics, positions = request
        session = self._sessions.expected(session_id, epoch)
        kind = (replica_id, replica_id >= 0 or version < FIRST_VERSION_THAT_READS_FROM_FOLLOWERS)
        if session is None or session.reader != kind:
            return None
        if version >= FIRST_VERSION_WITH_IDS:
            if not session.topic_ids or session.topics_version != self._metadata.topics_version:
                return None
        elif session.topic_ids:
            return None
        known: list[tuple[FetchPosition, PlainPosition]] = []
        for values in positions:
            position = session.positions.get(values[:2])  # type: ignore[call-overload]
            if position is None:
                return None
            known.append((position, values))
        count = len(topics) + len(positions) + session.active_count
        if access is not EVERYTHING_ALLOWED:
            if not _is_granted(session, peer, access, is_follower=replica_id >= 0):
                return None
            count += len(session.positions)
        if count > READ_PER_SLICE_MAX:
            return None
        now_ms = self._clock.monotonic_ms()
        self._sessions.resume(session_id, epoch, now_ms)
        session.update_known(known)
        active = session.active()
        if replica_id >= 0:
            self._requests.note_follower(replica_id, session, active, now_ms)
        max_bytes = min(max_bytes, self._fetch_max_bytes)
        if limited is not None and limited.fetch is not None and max_bytes > limited.fetch.left:
            max_bytes = limited.fetch_bytes_max(max_bytes)
        reading = self.reading(request, max_bytes)
        if reading.read(active):
            if max_wait_ms <= 0 or reading.is_enough(min_bytes):
                if limited is None or limited.admits_fetch(reading.total_bytes + NOT_RECORDS_BYTES_MAX):
                    return reading.reply(session)
            elif not reading.has_more and len(session.positions) <= READ_PER_SLICE_MAX and not _limits_fetch(limited):
                reading.watch()
                return partial(self._wait, request, session, active, max_bytes)
        return partial(self._continue_elsewhere, request, session)

    def reading(self, request: PlainFetch, max_bytes: int) -> PlainReading:
        """Return a new reading."""
        return PlainReading(self._replicas, self._quota, request, max_bytes=max_bytes)

    def watch(self, positions: Iterable[FetchPosition]) -> None:
        """Let positions of a session be notified of the next change."""
        for position in positions:
            partition = self._replicas.partitions.get(position.topic_partition)
            if partition is not None:
                position.watch(partition)

    def delayed(
        self,
        request: PlainFetch,
        context: RequestContext,
        session: FetchSession | None,
        positions: list[FetchPosition],
        future: asyncio.Future[Any],
    ) -> DelayedFetch:
        """See FetchRequests."""
        return self._requests.delayed(_decoded(request), context, session, positions, future)

    def _wait(
        self,
        request: PlainFetch,
        session: FetchSession | None,
        positions: list[FetchPosition],
        max_bytes: int,
        context: RequestContext,
    ) -> asyncio.Future[Any]:
        """Wait for records; there is nothing new."""
        waiting = PlainDelayedFetch(self, request, session, positions, max_bytes, context)
        keys: Iterable[FetchKey] = (
            [position.topic_partition for position in positions] if session is None else (session,)
        )
        self._purgatory.watch(waiting, keys, request[7])
        return waiting.future

    def _continue_elsewhere(self, request: PlainFetch, session: FetchSession, context: RequestContext) -> Any:
        return self._requests.continue_session(_decoded(request), context, session)


class PlainDelayedFetch:
    """A fetch that waits until min_bytes are available, and has found nothing new so far."""

    __slots__ = ("_context", "_delayed", "_handler", "_max_bytes", "_positions", "_request", "_session", "future")

    def __init__(
        self,
        handler: PlainFetchHandler,
        request: PlainFetch,
        session: FetchSession | None,
        positions: list[FetchPosition],
        max_bytes: int,
        context: RequestContext,
    ) -> None:
        self.future: asyncio.Future[Any] = waiting_reply(context)
        self._handler = handler
        self._request = request
        self._session = session
        self._positions = positions
        self._max_bytes = max_bytes
        self._context = context
        self._delayed: DelayedFetch | None = None
        """Goes on with the fetch after something unusual."""

    def try_complete(self, changed: Collection[FetchKey]) -> bool:
        """Complete if min_bytes are available or something is urgent."""
        if self._delayed is not None:
            return self._delayed.try_complete(changed)
        session = self._session
        if session is None:
            moved = [position for position in self._positions if position.topic_partition in changed]
        else:
            moved = session.take_moved()
            self._handler.watch(moved)
            self._positions = session.active()
        reading = self._handler.reading(self._request, self._max_bytes)
        if reading.read(self._positions):
            if not reading.has_more:
                return False
            if reading.is_enough(self._request[8]) and self._complete(reading):
                return True
        return self._go_on().try_complete_moved(moved)

    def on_timeout(self) -> None:
        """Complete with the records that are available."""
        if self._delayed is None:
            if self._session is not None:
                self._positions = self._session.active()
            reading = self._handler.reading(self._request, self._max_bytes)
            if reading.read(self._positions) and self._complete(reading):
                return
        self._go_on().on_timeout()

    def _complete(self, reading: PlainReading) -> bool:
        """Send what was read; return False if a quota may be exceeded."""
        limited = self._context.limited
        if limited is not None and not limited.admits_fetch(reading.total_bytes + NOT_RECORDS_BYTES_MAX):
            return False
        if not self.future.done():
            self.future.set_result(reading.reply(self._session))
        return True

    def _go_on(self) -> DelayedFetch:
        if self._delayed is None:
            self._delayed = self._handler.delayed(
                self._request, self._context, self._session, self._positions, self.future
            )
        return self._delayed


def _has_doubles(topics: list[FetchedTopic], positions: list[PlainPosition]) -> bool:
    """Return whether a topic or a partition is named twice, or there are too many of them for one iteration."""
    return (
        len(positions) + len(topics) > READ_PER_SLICE_MAX
        or len({position[:2] for position in positions}) < len(positions)
        or len({name for name, _ in topics}) < len(topics)
    )


def _limits_fetch(limited: LimitedClient | None) -> bool:
    """Return whether the limit of the response has to be found out again when the fetch has waited."""
    return limited is not None and limited.fetch is not None


def _is_complete(positions: list[PlainPosition], read: list[ReadPartition], *, is_committed: bool) -> bool:
    """Return whether the reader has all that it may see."""
    return all(
        position[3] >= partition[2 if is_committed else 1] for position, partition in zip(positions, read, strict=True)
    )


def _fetch_positions(positions: list[PlainPosition]) -> list[FetchPosition]:
    return [
        FetchPosition(TopicPartition(topic, index), offset, limit, leader_epoch, last_epoch, log_start)
        for topic, index, leader_epoch, offset, limit, last_epoch, log_start in positions
    ]


def _decoded(request: PlainFetch) -> FetchRequest:
    """Return the request without its partitions, for what was applied to a session or has waited."""
    _, _, _, replica_id, session_id, epoch, is_committed, max_wait_ms, min_bytes, max_bytes, _, _ = request
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(is_committed),
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(topic=name, topic_id=UUID(bytes=topic_id), partitions=[])
            for name, topic_id in requested_ids(request).items()
        ],
    )


def _is_granted(session: FetchSession, peer: Peer, access: AccessControl, *, is_follower: bool) -> bool:
    """Return whether all of the session is permitted for sure."""
    if access.audited.allowed:
        return False
    operation, kind = (_CLUSTER_ACTION, _CLUSTER) if is_follower else (_READ, _TOPIC)
    granted = access.granted.get((peer.principal, peer.client_host, operation, kind))
    if granted is None:
        return False
    if is_follower:
        return CLUSTER_NAME in granted
    return all(topic in granted for topic, _ in session.positions)

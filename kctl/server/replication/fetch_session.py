"""Fetch sessions: the broker keeps a client's partitions, so that requests and responses carry only changes.  KIP-227.

A session is an ordered set of partitions, the least recently served first.  The client sends (session_id, epoch):
  (any, -1)   no session; a session with this id is closed
  (any, 0)    create a session with the partitions of this request; a session with this id is closed
  (id, n)     continue session id: listed partitions are added or changed, forgotten ones are removed
Epochs increase by one per request and wrap from 2^31-1 to 1; any other epoch gets INVALID_FETCH_SESSION_EPOCH and
changes nothing.  It is always valid to respond with session id 0, "no session", as a full cache does.

Owner: event loop.  Pure: the caller passes time and ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kctl.errors import ApiError, ErrorCode
from kctl.limits import FETCH_SESSION_PARTITIONS_MAX
from kctl.model import TopicPartition

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_EPOCH_MAX = (1 << 31) - 1
EVICTION_MS = 120_000
"""A session unused for this long may be evicted.  Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS."""


@dataclass(slots=True)
class FetchPosition:
    """A client's fetch position in one partition, and the offsets that it was last sent."""

    topic_partition: TopicPartition
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1

    def take(self, newer: FetchPosition) -> None:
        """Takes over the fields that the client sends and keeps the offsets that it was sent."""
        self.fetch_offset = newer.fetch_offset
        self.partition_max_bytes = newer.partition_max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset


class PartitionResult(Protocol):
    """The fields of a response partition that decide whether it is sent."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    preferred_read_replica: int

    @property
    def records(self) -> object:
        """The records read, or None."""
        ...


class FetchSession:
    """The partitions of one client."""

    __slots__ = ("epoch", "is_follower", "last_used_ms", "positions", "session_id")

    def __init__(self, session_id: int, *, is_follower: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.is_follower = is_follower
        self.last_used_ms = now_ms
        self.positions: dict[TopicPartition, FetchPosition] = {}

    def update(self, changed: Iterable[FetchPosition], forgotten: Iterable[TopicPartition]) -> None:
        """Applies an incremental request."""
        for position in changed:
            known = self.positions.get(position.topic_partition)
            if known is None:
                self.positions[position.topic_partition] = position
            else:
                known.take(position)
        for topic_partition in forgotten:
            self.positions.pop(topic_partition, None)

    def pending(
        self, results: Mapping[TopicPartition, PartitionResult], record_bytes: Mapping[TopicPartition, int]
    ) -> list[TopicPartition]:
        """The partitions that `changes` would return; stores nothing, for a response that may not be sent."""
        return [
            topic_partition
            for topic_partition, result in results.items()
            if (position := self.positions.get(topic_partition)) is not None
            and _has_changed(position, result, has_records=record_bytes.get(topic_partition, 0) > 0)
        ]

    def changes(
        self, results: Mapping[TopicPartition, PartitionResult], record_bytes: Mapping[TopicPartition, int]
    ) -> list[TopicPartition]:
        """The partitions whose response has changed for the client; stores their offsets as sent.

        Partitions with records move to the end of the order, so that the other ones are served first next time.
        """
        changes: list[TopicPartition] = []
        for topic_partition, result in results.items():
            position = self.positions.get(topic_partition)
            if position is None:
                continue
            has_records = record_bytes.get(topic_partition, 0) > 0
            if _has_changed(position, result, has_records=has_records):
                changes.append(topic_partition)
            # After an error, the next response is always sent.
            position.sent_high_watermark = -1 if result.error_code else result.high_watermark
            position.sent_log_start_offset = result.log_start_offset
            if has_records:
                self.positions[topic_partition] = self.positions.pop(topic_partition)
        return changes


def _has_changed(position: FetchPosition, result: PartitionResult, *, has_records: bool) -> bool:
    return (
        has_records
        or result.error_code != ErrorCode.NONE
        or result.preferred_read_replica >= 0
        or result.high_watermark != position.sent_high_watermark
        or result.log_start_offset != position.sent_log_start_offset
    )


class FetchSessionCache:
    """The sessions of a broker, at most `slots_max` of them (max.incremental.fetch.session.cache.slots), with at most
    FETCH_SESSION_PARTITIONS_MAX partitions together.
    """

    def __init__(self, slots_max: int) -> None:
        self._slots_max = slots_max
        self._sessions: dict[int, FetchSession] = {}
        self._partition_count = 0
        self.eviction_count = 0

    @property
    def partition_count(self) -> int:
        """The partitions of all sessions."""
        return self._partition_count

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, session_id: int, epoch: int, now_ms: int) -> FetchSession:
        """The session of an incremental request, with its epoch incremented.

        Raises ApiError FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        # Keeps the least recently used first, for eviction.
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def create(
        self, session_id: int, positions: Iterable[FetchPosition], *, is_follower: bool, now_ms: int
    ) -> FetchSession | None:
        """A new session, or None if the cache is full and no session can be evicted."""
        if session_id in self._sessions or not self._make_room(now_ms, is_follower=is_follower):
            return None
        session = FetchSession(session_id, is_follower=is_follower, now_ms=now_ms)
        session.update(positions, ())
        if self._partition_count + len(session.positions) > FETCH_SESSION_PARTITIONS_MAX:
            return None
        self._sessions[session_id] = session
        self._partition_count += len(session.positions)
        return session

    def update(
        self, session: FetchSession, changed: Iterable[FetchPosition], forgotten: Iterable[TopicPartition]
    ) -> None:
        """Applies an incremental request; a session without partitions is closed.

        Raises ApiError(FETCH_SESSION_ID_NOT_FOUND), and closes the session, if all sessions together have too many
        partitions then.  The client creates a new one.
        """
        if self._sessions.get(session.session_id) is not session:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)  # Another connection has closed it meanwhile.
        before = len(session.positions)
        session.update(changed, forgotten)
        self._partition_count += len(session.positions) - before
        if self._partition_count > FETCH_SESSION_PARTITIONS_MAX:
            self.close(session.session_id)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.positions:
            self.close(session.session_id)

    def close(self, session_id: int) -> None:
        """Removes a session; an unknown id is ignored."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.positions)

    def _make_room(self, now_ms: int, *, is_follower: bool) -> bool:
        if len(self._sessions) < self._slots_max:
            return True
        for session_id, session in self._sessions.items():
            # Followers' sessions are evicted after those of consumers: they have more partitions and live longer.
            is_stale = now_ms - session.last_used_ms > EVICTION_MS
            if is_stale or (is_follower and not session.is_follower):
                self.close(session_id)
                self.eviction_count += 1
                return True
        return False

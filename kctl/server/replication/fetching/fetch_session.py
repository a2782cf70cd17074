"""Fetch sessions: the broker keeps a client's partitions, so that requests and responses carry only changes.  KIP-227.

A session is an ordered set of partitions, the least recently served first.  The client sends (session_id, epoch):
  (any, -1)   no session; a session with this id is closed
  (any, 0)    create a session with the partitions of this request; a session with this id is closed
  (id, n)     continue session id: listed partitions are added or changed, forgotten ones are removed
Epochs increase by one per request and wrap from 2^31-1 to 1; any other epoch gets INVALID_FETCH_SESSION_EPOCH and
changes nothing.  It is always valid to respond with session id 0, "no session", as a full cache does.

A request examines only the active partitions of its session, so that its cost does not grow with the session.  All
partitions are active at first.  One rests when its reader has everything: there is nothing to send before a change of
its log, high watermark or role.  Such a change makes it active again, see kctl/storage/log/watchers.

A partition notifies a position once; what examines the position registers it again.  So each partition of an open
session is registered with its partition, or it is active and, if a fetch of the session waits, that fetch is about to
examine it.

Owner: event loop.  Pure: the caller passes time and ids.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.model import TopicPartition
from kctl.records.compiled.fetch_frame import PlainPosition
from kctl.storage.log.watchers import Watchers

FETCH_SESSION_PARTITIONS_MAX = bound(
    Subject.FETCH_SESSIONS,
    "partitions in all fetch sessions together",
    2_000_000,
    "partitions",
    on_excess="no new session; a session that grows beyond it is closed with FETCH_SESSION_ID_NOT_FOUND",
)


_NO_ERROR = ErrorCode.NONE
"""A constant, because Python 3.11 takes 0.1 us to find a member of an enum."""
NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_EPOCH_MAX = (1 << 31) - 1
EVICTION_MS = 120_000
"""A session unused for this long may be evicted.  Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS."""


_BY_ORDER = attrgetter("order")


class WatchedPartition(Protocol):
    """The part of a partition that a fetch position uses."""

    @property
    def watchers(self) -> Watchers:
        """Those who are notified of changes."""
        ...


class Follower(Protocol):
    """The methods of the state of a follower in one partition that its session uses."""

    def begin_rest(self, session: FetchSession) -> None:
        """Count each fetch of the session as a fetch of this partition, until `end_rest`, without a call per fetch."""
        ...

    def end_rest(self) -> None:
        """From now on each fetch is recorded."""
        ...


@dataclass(slots=True, eq=False)
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
    session: FetchSession | None = None
    order: int = 0
    """Positions with lower numbers are served first."""
    is_resting: bool = False
    follower: Follower | None = None
    """The follower whose fetches count while the position rests."""
    watched: Watchers | None = None
    """The watchers of the partition that will notify it; None after a notification."""

    @property
    def is_watching(self) -> bool:
        """Whether the position belongs to an open session."""
        return self.session is not None and self.session.is_open

    def watch(self, partition: WatchedPartition) -> None:
        """Register for a notification of the next change of the partition."""
        if self.watched is not partition.watchers:
            self.watched = partition.watchers
            self.watched.add(self)

    def moved(self) -> bool:
        """Make the position of a changed partition active, so that the session's waiting fetch examines it.

        Further changes do not matter before that, so it is not notified of them.
        """
        self.watched = None
        session = self.session
        if session is not None and session.is_open:
            session.moved(self)
        return False

    def high_watermark_moved(self) -> bool:
        """Make the position active after a change of the high watermark.

        A follower that waits for records goes on waiting (KAFKA-9952).
        """
        session = self.session
        if session is not None and session.is_open and session.is_follower:
            session.activate(self)
            return True
        return self.moved()

    def take(self, newer: FetchPosition) -> None:
        """Take over the fields that the client sends and keep the offsets that it was sent."""
        self.fetch_offset = newer.fetch_offset
        self.partition_max_bytes = newer.partition_max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset

    def take_values(self, values: PlainPosition) -> None:
        """As `take`, from the values of a request that was read without objects."""
        (
            _,
            _,
            self.current_leader_epoch,
            self.fetch_offset,
            self.partition_max_bytes,
            self.last_fetched_epoch,
            self.log_start_offset,
        ) = values


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

    __slots__ = (
        "_active",
        "_moved",
        "_next_order",
        "epoch",
        "followed_ms",
        "is_follower",
        "is_open",
        "last_used_ms",
        "positions",
        "reader",
        "session_id",
        "topic_ids",
        "topics_version",
        "woken",
    )

    def __init__(self, session_id: int, *, is_follower: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.is_follower = is_follower
        self.last_used_ms = now_ms
        self.followed_ms = now_ms
        """The time of the last fetch of this follower."""
        self.is_open = True
        self.positions: dict[TopicPartition, FetchPosition] = {}
        self.reader: Hashable = None
        """The kind of reader for which the resting positions were examined."""
        self.woken: dict[FetchSession, None] = {}
        """The sessions with changes that a waiting fetch has not examined; shared by the sessions of a broker."""
        self.topic_ids: dict[str, UUID] = {}
        """The ids of its topics by their names, if the client uses ids."""
        self.topics_version = 0
        """The version of the topics of the cluster for which the ids were compared last."""
        self._active: dict[TopicPartition, FetchPosition] = {}
        self._moved: dict[TopicPartition, FetchPosition] = {}
        self._next_order = 0

    def update(self, changed: Iterable[FetchPosition], forgotten: Iterable[TopicPartition]) -> None:
        """Apply an incremental request."""
        for position in changed:
            known = self.positions.get(position.topic_partition)
            if known is None:
                self.positions[position.topic_partition] = self._active[position.topic_partition] = position
                position.session = self
                self._move_to_end(position)
            else:
                known.take(position)
                if known.is_resting:
                    self.activate(known)
        for topic_partition in forgotten:
            removed = self.positions.pop(topic_partition, None)
            if removed is not None:
                self.activate(removed)
                removed.session = None
                del self._active[topic_partition]
                self._moved.pop(topic_partition, None)

    def update_known(self, changed: Iterable[tuple[FetchPosition, PlainPosition]]) -> None:
        """As `update`, for positions of the session."""
        for position, values in changed:
            position.take_values(values)
            if position.is_resting:
                self.activate(position)

    @property
    def active_count(self) -> int:
        """The number of active partitions."""
        return len(self._active)

    def active(self) -> list[FetchPosition]:
        """Return the active partitions, in the order of the session."""
        active = list(self._active.values())
        if len(active) > 1:
            active.sort(key=_BY_ORDER)
        return active

    def activate(self, position: FetchPosition) -> None:
        """Have the position examined by the next request."""
        if position.follower is not None:
            position.follower.end_rest()
            position.follower = None
        position.is_resting = False
        self._active[position.topic_partition] = position

    def activate_all(self) -> None:
        """Have all partitions examined by the next request."""
        for position in self.positions.values():
            self.activate(position)

    def rest(self, position: FetchPosition, partition: WatchedPartition, follower: Follower | None) -> None:
        """Have the position not examined before the partition changes.

        Meanwhile the fetches of the session count as fetches of `follower`.
        """
        position.watch(partition)
        position.is_resting = True
        self._active.pop(position.topic_partition, None)
        position.follower = follower
        if follower is not None:
            follower.begin_rest(self)

    def moved(self, position: FetchPosition) -> None:
        """Note that a partition has changed."""
        if position.is_resting:
            self.activate(position)
        self._moved[position.topic_partition] = position
        self.woken[self] = None

    def take_moved(self) -> list[FetchPosition]:
        """Return the partitions that have changed since the last call; the caller registers them for the next
        change.
        """
        moved, self._moved = list(self._moved.values()), {}
        return moved

    def close(self) -> None:
        """Remove all partitions from the session."""
        self.is_open = False
        self.positions, self._active, self._moved = {}, {}, {}

    def _move_to_end(self, position: FetchPosition) -> None:
        position.order = self._next_order
        self._next_order += 1

    def pending(
        self, results: Mapping[TopicPartition, PartitionResult], record_bytes: Mapping[TopicPartition, int]
    ) -> list[TopicPartition]:
        """Return the partitions that `changes` would return; store nothing, for a response that may not be sent."""
        return [
            topic_partition
            for topic_partition, result in results.items()
            if (position := self.positions.get(topic_partition)) is not None
            and _has_changed(position, result, has_records=record_bytes.get(topic_partition, 0) > 0)
        ]

    def changes(
        self, results: Mapping[TopicPartition, PartitionResult], record_bytes: Mapping[TopicPartition, int]
    ) -> list[TopicPartition]:
        """Return the partitions whose response has changed for the client; store their offsets as sent.

        Partitions with records move to the end of the order, so that the other ones are served first next time.
        """
        changes: list[TopicPartition] = []
        for topic_partition, result in results.items():
            position = self.positions.get(topic_partition)
            if position is None:
                continue
            is_changed = self.note_sent(
                position,
                -1 if result.error_code else result.high_watermark,  # After an error, the next response is always sent.
                result.log_start_offset,
                has_records=record_bytes.get(topic_partition, 0) > 0,
            )
            if is_changed or result.error_code != _NO_ERROR or result.preferred_read_replica >= 0:
                changes.append(topic_partition)
        return changes

    def note_sent(
        self, position: FetchPosition, high_watermark: int, log_start_offset: int, *, has_records: bool
    ) -> bool:
        """Store what was read of one partition as sent; return whether it has changed for the client."""
        is_changed = (
            has_records
            or high_watermark != position.sent_high_watermark
            or log_start_offset != position.sent_log_start_offset
        )
        position.sent_high_watermark = high_watermark
        position.sent_log_start_offset = log_start_offset
        if has_records:
            topic_partition = position.topic_partition
            self.positions[topic_partition] = self.positions.pop(topic_partition)
            self._move_to_end(position)
        return is_changed


def _has_changed(position: FetchPosition, result: PartitionResult, *, has_records: bool) -> bool:
    return (
        has_records
        or result.error_code != _NO_ERROR
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

    def expected(self, session_id: int, epoch: int) -> FetchSession | None:
        """Return the session that `resume` would, and change nothing; None if it would raise an error."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.epoch == epoch else None

    def resume(self, session_id: int, epoch: int, now_ms: int) -> FetchSession:
        """Return the session of an incremental request, with its epoch incremented.

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
        """Return a new session, or None if the cache is full and no session can be evicted."""
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
        """Apply an incremental request; a session without partitions is closed.

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
        """Remove a session; an unknown id is ignored."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.positions)
            session.close()

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

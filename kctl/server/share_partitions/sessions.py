"""Share sessions: the partitions that a member fetches from this broker, and the epoch of its next request.

A session belongs to a member of a group.  Epoch 0 opens it, -1 closes it, and each other request has the next epoch, so
that a request that is sent twice is refused.  Pure.  Kafka: ShareSessionCache, ShareSession, SharePartitionManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = (1 << 31) - 1
SESSION_PARTITIONS_MAX = bound(
    Subject.FETCH_SESSIONS,
    "partitions of one share session",
    5_000,
    "partitions",
    on_excess="INVALID_REQUEST",
)


class MemberKey(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


class TopicIdPartition(NamedTuple):
    """A partition as share sessions name it."""

    topic_id: UUID
    partition: int


class ShareSession:
    """What one member fetches."""

    def __init__(self) -> None:
        self.epoch = 1
        """That of the next request."""
        self.partitions: dict[TopicIdPartition, None] = {}
        self.used_ms = 0

    def update(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Add and remove partitions.  Raises ApiError(INVALID_REQUEST) if there are too many."""
        for partition in forgotten:
            self.partitions.pop(partition, None)
        new = dict.fromkeys(added)
        if len(self.partitions.keys() | new.keys()) > SESSION_PARTITIONS_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"a share session has at most {SESSION_PARTITIONS_MAX} partitions"
            )
        self.partitions.update(new)

    def rotated(self) -> list[TopicIdPartition]:
        """Return the partitions, each time beginning with another one, so that each gets its part of the limits."""
        partitions = list(self.partitions)
        if partitions:
            first = partitions[0]
            del self.partitions[first]
            self.partitions[first] = None
        return partitions


class ShareSessions:
    """The sessions of a broker, by member."""

    def __init__(self, most: int) -> None:
        """`most` is group.share.max.share.sessions."""
        self._most = most
        self._sessions: dict[MemberKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: MemberKey, now_ms: int, idle_ms: int) -> ShareSession:
        """Return a new session, in place of an old one.

        Raises ApiError(SHARE_SESSION_LIMIT_REACHED) if there are too many which were used within `idle_ms`.
        """
        self._sessions.pop(key, None)
        if len(self._sessions) >= self._most:
            # Sessions are in the order of their last use.
            oldest = next(iter(self._sessions))
            if now_ms - self._sessions[oldest].used_ms < idle_ms:
                raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            del self._sessions[oldest]
        session = self._sessions[key] = ShareSession()
        session.used_ms = now_ms
        return session

    def resume(self, key: MemberKey, epoch: int, now_ms: int) -> ShareSession:
        """Return the session of a request, whose epoch is the next one or that of the end.

        Raises ApiError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.pop(key, None)
        if session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        self._sessions[key] = session
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.used_ms = now_ms
        return session

    def has(self, key: MemberKey, session: ShareSession) -> bool:
        """Return whether this is the present session of the member."""
        return self._sessions.get(key) is session

    def has_group(self, group_id: str) -> bool:
        """Return whether a member of the group has a session."""
        return any(key.group_id == group_id for key in self._sessions)

    def close(self, key: MemberKey) -> None:
        """Forget the session."""
        self._sessions.pop(key, None)

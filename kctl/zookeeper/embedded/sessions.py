"""Sessions: an id and a password, which outlive connections, and a deadline for the next message of the client.

Times are monotonic milliseconds, as arguments.  Pure.  Owner: the keeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_MASK64 = (1 << 64) - 1


@dataclass(slots=True)
class Session:
    """A session, which owns ephemeral znodes."""

    id: int
    password: bytes
    timeout_ms: int
    deadline_ms: int


class Sessions:
    """All open sessions.  Those loaded from the store expire a whole timeout after `now_ms`, as in ZooKeeper."""

    def __init__(self, stored: Iterable[tuple[int, bytes, int]], *, now_ms: int, wall_ms: int) -> None:
        self._sessions = {
            session_id: Session(session_id, password, timeout_ms, now_ms + timeout_ms)
            for session_id, password, timeout_ms in stored
        }
        self._next_id = max(first_session_id(wall_ms), *(session_id + 1 for session_id in self._sessions), 0)

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def find(self, session_id: int) -> Session | None:
        """Return the session, None if it does not exist."""
        return self._sessions.get(session_id)

    def open(self, password: bytes, timeout_ms: int, *, now_ms: int) -> Session:
        """Open a session."""
        session = Session(self._next_id, password, timeout_ms, now_ms + timeout_ms)
        self._next_id += 1
        self._sessions[session.id] = session
        return session

    def touch(self, session_id: int, *, now_ms: int) -> None:
        """Extend the deadline of a session."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.deadline_ms = now_ms + session.timeout_ms

    def extend(self, duration_ms: int) -> None:
        """Extend the deadlines of all sessions."""
        for session in self._sessions.values():
            session.deadline_ms += duration_ms

    def remove(self, session_id: int) -> bool:
        """Remove a session; return False if it did not exist."""
        return self._sessions.pop(session_id, None) is not None

    def overdue(self, now_ms: int) -> list[int]:
        """Return the ids of the sessions whose deadline has passed."""
        return [session.id for session in self._sessions.values() if session.deadline_ms <= now_ms]

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline, None without sessions."""
        return min((session.deadline_ms for session in self._sessions.values()), default=None)


def first_session_id(wall_ms: int, server_id: int = 1) -> int:
    """Return the first id of a start: server id, time, counter; ids of later starts are larger.  SessionTrackerImpl."""
    return (wall_ms << 24 & _MASK64) >> 8 | server_id << 56

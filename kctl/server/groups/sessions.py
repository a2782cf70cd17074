"""The session timer of a member.

Heartbeats are by far the most frequent request, so they move a deadline and do not touch the timer; the timer checks
the deadline when it fires and is scheduled again for the rest.
"""

from __future__ import annotations

from kctl.server.groups.actions import Action, CancelTimer, ScheduleTimer
from kctl.server.groups.events import Now, TimerKey, TimerKind
from kctl.server.groups.members import Member


def expect_heartbeat(member: Member, timeout_ms: int, now: Now, out: list[Action]) -> None:
    """Sets the session deadline to `timeout_ms` from now."""
    due_ms = now.monotonic_ms + timeout_ms
    member.session_deadline_ms = due_ms
    if member.timer_due_ms is None or due_ms < member.timer_due_ms:
        member.timer_due_ms = due_ms
        out.append(ScheduleTimer(session_timer(member.member_id), timeout_ms))


def forget_session(member: Member, out: list[Action]) -> None:
    """Cancels the member's session timer."""
    if member.timer_due_ms is not None:
        member.timer_due_ms = None
        out.append(CancelTimer(session_timer(member.member_id)))


def session_timer(member_id: str) -> TimerKey:
    """The key of the member's session timer; a pending member has one too."""
    return TimerKey(TimerKind.SESSION, member_id)

"""How a member gets from the tasks that it owns to its target assignment: it revokes first, and is given what is free.

    STABLE ----------tasks to revoke----------> UNREVOKED
      ^  ^                                          |
      |  +---all released--- UNRELEASED <----+      | the member does not report them any more
      +--------------------------------------+------+

An active task is free when nobody has it active, and the member's process does not have it in another role; a standby
task when the process does not have it in any role, because a process has one directory for the state of a task.

Pure.  Kafka: CurrentAssignmentBuilder of streams groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.newer_groups import MemberState
from kctl.server.coordination.streams_groups.state import (
    NO_TASKS,
    OwnedTasks,
    StreamsAssignment,
    TaskId,
    Tasks,
    TaskSets,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGoal:
    """What a member is led to."""

    target: TaskSets
    target_epoch: int
    has_active_owner: Callable[[TaskId], bool]
    """Returns whether a member of any process has the task active, or still has to revoke it."""
    is_in_process: Callable[[TaskId], bool]
    """Returns whether a member of the same process has the task in any role."""
    owned: TaskSets | None
    """What the member says that it owns; None if it says nothing."""

    def is_still_owned(self, tasks: OwnedTasks) -> bool:
        """Return whether the member has one of these; it may if it says nothing."""
        return not tasks.is_empty and (self.owned is None or self.owned.shares_any(tasks))


def reconcile_tasks(current: StreamsAssignment, goal: TaskGoal) -> StreamsAssignment:
    """Return the next assignment of the member; the same if it has to wait.  Raises ApiError(FENCED_MEMBER_EPOCH)."""
    match current.state:
        case MemberState.STABLE:
            return current if current.epoch == goal.target_epoch else _next(current, goal, current.epoch)
        case MemberState.UNREVOKED:
            if goal.owned is None or goal.owned.shares_any(current.revoking):
                return current
            return _next(current, goal, current.epoch + 1)
        case MemberState.UNRELEASED:
            return _next(current, goal, current.epoch)
        case MemberState.UNKNOWN:
            if goal.owned is None or goal.owned != TaskSets():
                message = "The state of the member is unknown. The member must abandon all its tasks and rejoin."
                raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, message)
            return _next(current, goal, goal.target_epoch)


@dataclass(slots=True)
class _Difference:
    """The tasks of one role: kept, to revoke, and added; `is_waiting` if some are not free yet."""

    kept: dict[str, frozenset[int]]
    revoked: dict[str, frozenset[int]]
    added: dict[str, frozenset[int]]
    is_waiting: bool = False

    def assigned(self) -> dict[str, frozenset[int]]:
        """Return what the member has when nothing is left to revoke."""
        names = {**self.kept, **self.added}
        return {name: self.kept.get(name, frozenset()) | self.added.get(name, frozenset()) for name in names}


def _compare(current: Mapping[str, Iterable[int]], target: Tasks, is_taken: Callable[[TaskId], bool]) -> _Difference:
    difference = _Difference({}, {}, {})
    for name in {**target, **current}:
        has, wanted = frozenset(current.get(name, ())), target.get(name, frozenset())
        missing = wanted - has
        free = frozenset(number for number in missing if not is_taken(TaskId(name, number)))
        difference.is_waiting |= len(free) < len(missing)
        for part, numbers in (
            (difference.kept, has & wanted),
            (difference.revoked, has - wanted),
            (difference.added, free),
        ):
            if numbers:
                part[name] = numbers
    return difference


def _next(current: StreamsAssignment, goal: TaskGoal, epoch: int) -> StreamsAssignment:
    def is_active_taken(task: TaskId) -> bool:
        return goal.has_active_owner(task) or goal.is_in_process(task)

    owned = current.assigned
    active = _compare(owned.active, goal.target.active, is_active_taken)
    standby = _compare(owned.standby, goal.target.standby, goal.is_in_process)
    warmup = _compare(owned.warmup, goal.target.warmup, goal.is_in_process)

    def with_epochs(tasks: Tasks) -> dict[str, dict[int, int]]:
        return {
            name: {number: owned.active.get(name, {}).get(number, goal.target_epoch) for number in sorted(numbers)}
            for name, numbers in tasks.items()
        }

    revoking = OwnedTasks(with_epochs(active.revoked), standby.revoked, warmup.revoked)
    if goal.is_still_owned(revoking):
        return replace(
            current,
            epoch=epoch,
            previous_epoch=current.epoch,
            state=MemberState.UNREVOKED,
            assigned=OwnedTasks(with_epochs(active.kept), standby.kept, warmup.kept),
            revoking=revoking,
        )
    is_waiting = active.is_waiting or standby.is_waiting or warmup.is_waiting
    return StreamsAssignment(
        epoch=goal.target_epoch,
        previous_epoch=current.epoch,
        state=MemberState.UNRELEASED if is_waiting else MemberState.STABLE,
        assigned=OwnedTasks(with_epochs(active.assigned()), standby.assigned(), warmup.assigned()),
        revoking=NO_TASKS,
    )

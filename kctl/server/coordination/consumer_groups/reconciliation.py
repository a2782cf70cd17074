"""How a member gets from what it owns to its target assignment: it revokes first, and is given what nobody owns.

    STABLE -----------partitions to revoke----------> UNREVOKED
      ^  ^                                                    |
      |  +---all released--- UNRELEASED <----+     | the member does not report them any more
      +-------------------------------------------------+-----+

A member keeps its epoch until it has revoked what it has to, and then gets that of the target assignment, though some
of its partitions may still be used by others.  Pure.  Kafka: CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.consumer_groups.state import MemberAssignment, PartitionEpochs, Partitions
from kctl.server.coordination.newer_groups import MemberState


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a member is led to."""

    target: Partitions
    target_epoch: int
    subscribed_ids: frozenset[UUID]
    has_subscription_changed: bool
    is_free: Callable[[UUID, int], bool]
    """Returns whether no other member owns the partition."""
    owned: Partitions | None
    """What the member says that it owns; None if it says nothing."""

    def is_still_owned(self, partitions: PartitionEpochs) -> bool:
        """Return whether the member has one of these; it may if it says nothing."""
        if self.owned is None:
            return True
        return any(not partitions.get(topic_id, {}).keys().isdisjoint(held) for topic_id, held in self.owned.items())


def reconcile(current: MemberAssignment, goal: Goal) -> MemberAssignment:
    """Return the next assignment of the member; the same if it has to wait.  Raises ApiError(FENCED_MEMBER_EPOCH)."""
    match current.state:
        case MemberState.STABLE:
            if current.epoch != goal.target_epoch:
                return _next(current, goal, current.epoch)
            return _without_unsubscribed(current, goal) if goal.has_subscription_changed else current
        case MemberState.UNREVOKED:
            if goal.is_still_owned(current.revoking):
                return _without_unsubscribed(current, goal) if goal.has_subscription_changed else current
            return _next(current, goal, current.epoch)
        case MemberState.UNRELEASED:
            return _next(current, goal, current.epoch)
        case MemberState.UNKNOWN:
            if goal.owned is None or any(goal.owned.values()):
                message = "the state of the member is unknown; it must give up its partitions and join again"
                raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, message)
            return _next(current, goal, goal.target_epoch)


def _next(current: MemberAssignment, goal: Goal, epoch: int) -> MemberAssignment:
    kept: dict[UUID, dict[int, int]] = {}
    revoked: dict[UUID, dict[int, int]] = {}
    added: dict[UUID, list[int]] = {}
    is_waiting = False
    for topic_id in {**goal.target, **current.assigned}:
        wanted = goal.target.get(topic_id, frozenset()) if topic_id in goal.subscribed_ids else frozenset()
        has = current.assigned.get(topic_id, {})
        if keeps := {number: since for number, since in has.items() if number in wanted}:
            kept[topic_id] = keeps
        if len(keeps) < len(has):
            revoked[topic_id] = {number: since for number, since in has.items() if number not in wanted}
        missing = wanted - has.keys()
        own = current.revoking.get(topic_id, {})
        free = [number for number in missing if number in own or goal.is_free(topic_id, number)]
        is_waiting |= len(free) < len(missing)
        if free:
            added[topic_id] = free
    if revoked and goal.is_still_owned(revoked):
        return MemberAssignment(
            epoch=epoch,
            previous_epoch=current.epoch,
            state=MemberState.UNREVOKED,
            assigned=kept,
            revoking=revoked,
        )
    for topic_id, numbers in added.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(numbers, goal.target_epoch))
    return MemberAssignment(
        epoch=goal.target_epoch,
        previous_epoch=current.epoch,
        state=MemberState.UNRELEASED if is_waiting else MemberState.STABLE,
        assigned=kept,
        revoking={},
    )


def _without_unsubscribed(current: MemberAssignment, goal: Goal) -> MemberAssignment:
    """Take the partitions of topics to which the member does not subscribe any more, before the next target."""
    gone = [topic_id for topic_id in current.assigned if topic_id not in goal.subscribed_ids]
    if not gone:
        return replace(current, previous_epoch=current.epoch)
    assigned = {topic_id: numbers for topic_id, numbers in current.assigned.items() if topic_id not in gone}
    revoking = dict(current.revoking)
    for topic_id in gone:
        revoking[topic_id] = {**revoking.get(topic_id, {}), **current.assigned[topic_id]}
    if not goal.is_still_owned(revoking):
        return replace(current, previous_epoch=current.epoch, assigned=assigned)
    return replace(
        current,
        previous_epoch=current.epoch,
        state=MemberState.UNREVOKED,
        assigned=assigned,
        revoking=revoking,
    )

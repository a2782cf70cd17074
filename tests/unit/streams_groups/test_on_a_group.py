"""A streams group as a part of a group: what follows when the log refuses a change."""

from __future__ import annotations

from dataclasses import replace

from kctl.errors import ErrorCode
from kctl.server.coordination.groups.actions import Action, PersistNewerGroup, ScheduleTimer
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.events import AppendDone, Event, Now, TimerFired, TimerKey, TimerKind
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.step import step
from kctl.server.coordination.streams_groups.requests import StreamsGroupSettings, StreamsHeartbeat
from tests.unit.streams_groups.test_heartbeat import JOIN, Topics

SETTINGS = StreamsGroupSettings(assignment_interval_ms=0, initial_rebalance_delay_ms=0)
REVOCATION = TimerKey(TimerKind.REVOCATION, "m")


def new_group() -> Group:
    group = Group("g", GroupConfig(streams=lambda _: SETTINGS))
    group.topics = Topics(2)
    return group


def run(group: Group, event: Event, *, is_refused: bool = False) -> list[Action]:
    """Process the event and the result of its append."""
    actions = step(group, event, Now(1, 1))
    for action in list(actions):
        if isinstance(action, PersistNewerGroup):
            error = ErrorCode.NOT_ENOUGH_REPLICAS if is_refused else ErrorCode.NONE
            actions += step(group, AppendDone(action.append_id, error, is_written=not is_refused), Now(1, 1))
    return actions


def test_a_member_whose_removal_was_refused_is_removed_though_it_sends_heartbeats() -> None:
    group = new_group()
    run(group, JOIN)
    run(group, replace(JOIN, member_id="n", process_id="q"))
    assert group.streams is not None
    run(group, StreamsHeartbeat(member_id="m", member_epoch=group.streams.assignment("m").epoch))
    assert REVOCATION.member_id in group.revocation_epochs
    refused = run(group, TimerFired(REVOCATION), is_refused=True)
    assert any(isinstance(action, ScheduleTimer) and action.key == REVOCATION for action in refused)
    run(group, StreamsHeartbeat(member_id="m", member_epoch=group.streams.assignment("m").epoch))
    run(group, TimerFired(REVOCATION))
    assert set(group.streams.members) == {"n"}


def test_a_refused_join_leaves_no_group() -> None:
    group = new_group()
    run(group, JOIN, is_refused=True)
    assert group.newer is None
    assert group.is_vacant

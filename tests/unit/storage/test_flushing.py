"""The recovery point of a log."""

from __future__ import annotations

from kctl.storage.config import LogConfig
from kctl.storage.log.flushing import FlushPlan, FlushState
from kctl.testing.sim_files import SimFiles

CONFIG = LogConfig(flush_ms=1000)


def plan(state: FlushState, offset: int) -> FlushPlan:
    return FlushPlan(SimFiles(), "/data", [], offset=offset, truncations=state.truncations)


def test_a_completed_flush_moves_the_recovery_point_forward_only() -> None:
    state = FlushState(5, now_ms=0)
    late, early = plan(state, 9), plan(state, 7)
    for flush_plan in (late, early):
        state.flushed(flush_plan, CONFIG, log_end_offset=10, now_ms=None)
    assert (state.recovery_point, state.last_flush_ms) == (9, 0)


def test_a_flush_planned_before_a_truncation_moves_no_recovery_point() -> None:
    state = FlushState(5, now_ms=0)
    old = plan(state, 9)
    state.truncated(7)
    state.flushed(old, CONFIG, log_end_offset=8, now_ms=3)
    assert (state.recovery_point, state.last_flush_ms, state.truncations) == (5, 3, 1)


def test_a_truncation_takes_the_recovery_point_back() -> None:
    state = FlushState(9, now_ms=0)
    state.truncated(4)
    assert state.recovery_point == 4


def test_a_segment_that_is_closed_has_to_be_synced_once_more() -> None:
    state = FlushState(10, now_ms=0)
    state.segment_closed(6, log_end_offset=10)
    assert state.recovery_point == 9
    assert state.is_due(1, CONFIG, active_base_offset=10, log_end_offset=10)


def test_records_of_the_active_segment_wait_for_flush_ms() -> None:
    state = FlushState(10, now_ms=0)
    assert not state.is_due(999, CONFIG, active_base_offset=10, log_end_offset=12)
    assert state.is_due(1000, CONFIG, active_base_offset=10, log_end_offset=12)
    assert not state.is_due(1000, CONFIG, active_base_offset=10, log_end_offset=10), "nothing is unsynced"


def test_records_held_back_by_flush_messages_are_released_by_the_sync() -> None:
    config = LogConfig(flush_messages=2)
    state = FlushState(0, now_ms=0)
    state.unsettled_from = 1
    state.flushed(plan(state, 3), config, log_end_offset=6, now_ms=None)
    assert state.unsettled_from == 3
    state.flushed(plan(state, 6), config, log_end_offset=7, now_ms=None)
    assert state.unsettled_from is None, "fewer than flush.messages are unsynced"

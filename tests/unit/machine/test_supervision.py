"""When the process of a broker is started again, aborted, killed and stopped."""

from __future__ import annotations

import signal
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kctl.server.process.machine.supervision import (
    ABORT_MS,
    RESTART_MS,
    RESTART_MS_MAX,
    STEADY_MS,
    WATCHDOG_MS,
    Action,
    Elapsed,
    Ended,
    Event,
    Fail,
    Heard,
    Launch,
    Phase,
    Ready,
    RestartLater,
    Signal,
    State,
    Stop,
    step,
)

SERVING = State(Phase.SERVING, has_served=True, serving_since_ms=0, due_ms=WATCHDOG_MS)


def after(state: State, *events: tuple[int, Event]) -> tuple[State, list[Action]]:
    """The state and all actions after events at these times."""
    done: list[Action] = []
    for now_ms, event in events:
        state, actions = step(state, event, now_ms)
        done += actions
    return state, done


def test_process_that_ends_is_started_again_after_a_delay() -> None:
    state, actions = after(SERVING, (STEADY_MS, Ended()))
    assert (state.phase, actions) == (Phase.WAITING, [RestartLater(RESTART_MS)])
    assert state.due_ms == STEADY_MS + RESTART_MS
    early, nothing = after(state, (STEADY_MS + RESTART_MS - 1, Elapsed()))
    assert (early, nothing) == (state, [])
    state, actions = after(state, (STEADY_MS + RESTART_MS, Elapsed()))
    assert (state.phase, state.restarts, actions) == (Phase.STARTING, 1, [Launch()])


def test_delay_doubles_up_to_a_bound_until_the_broker_serves_for_some_time() -> None:
    state, delays = SERVING, []
    for _ in range(20):
        state, actions = after(state, (0, Ended()))
        delays += [action.delay_ms for action in actions if isinstance(action, RestartLater)]
        state, _ = after(state, (state.due_ms or 0, Elapsed()))
    assert delays[:7] == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, RESTART_MS_MAX]
    assert set(delays[7:]) == {RESTART_MS_MAX}
    steady, _ = after(state, (0, Ready()))
    _, actions = after(steady, (STEADY_MS, Ended()))
    assert actions == [RestartLater(RESTART_MS)]
    _, actions = after(steady, (STEADY_MS - 1, Ended()))
    assert actions == [RestartLater(RESTART_MS_MAX)]


def test_process_that_ends_before_it_ever_served_ends_the_service() -> None:
    state, actions = after(State(), (0, Ended()))
    assert (state.phase, actions) == (Phase.ENDED, [Fail()])


def test_process_that_does_not_report_is_aborted_and_then_killed() -> None:
    state, actions = after(SERVING, (WATCHDOG_MS - 1, Elapsed()))
    assert actions == []
    state, actions = after(state, (WATCHDOG_MS, Elapsed()))
    assert (state.phase, actions) == (Phase.ABORTED, [Signal(signal.SIGABRT)])
    state, actions = after(state, (WATCHDOG_MS + ABORT_MS, Elapsed()))
    assert actions == [Signal(signal.SIGKILL)]
    state, actions = after(state, (WATCHDOG_MS + ABORT_MS + 1, Ended()))
    assert (state.phase, actions) == (Phase.WAITING, [RestartLater(RESTART_MS)])


def test_report_postpones_the_watchdog() -> None:
    state, actions = after(SERVING, (WATCHDOG_MS - 1, Heard()), (WATCHDOG_MS, Elapsed()))
    assert (state.due_ms, actions) == (2 * WATCHDOG_MS - 1, [])


def test_stop_ends_each_phase() -> None:
    for phase in (Phase.STARTING, Phase.SERVING, Phase.ABORTED):
        state, actions = after(replace(SERVING, phase=phase), (0, Stop()), (1, Stop()))
        assert (state.phase, actions) == (Phase.STOPPING, [Signal(signal.SIGTERM)])
        state, actions = after(state, (2, Ended()))
        assert (state.phase, actions) == (Phase.ENDED, [])
    state, actions = after(replace(SERVING, phase=Phase.WAITING), (0, Stop()))
    assert (state.phase, actions) == (Phase.ENDED, [])


def test_broker_that_reports_may_take_its_time_to_stop() -> None:
    state, _ = after(SERVING, (0, Stop()), (WATCHDOG_MS - 1, Heard()))
    assert after(state, (WATCHDOG_MS, Elapsed()))[1] == []
    assert after(state, (2 * WATCHDOG_MS, Elapsed()))[1] == [Signal(signal.SIGKILL)]


EVENTS = st.sampled_from([Ready(), Heard(), Ended(), Stop(), Elapsed()])


@given(st.lists(st.tuples(st.integers(0, 100_000), EVENTS), max_size=60))
def test_at_most_one_process_runs_and_none_is_launched_after_the_stop(moves: list[tuple[int, Event]]) -> None:
    state, now_ms, is_running, is_stopped = State(), 0, True, False
    for passed_ms, event in moves:
        now_ms += passed_ms
        if isinstance(event, Ended) and not is_running:
            continue
        is_running = is_running and not isinstance(event, Ended)
        is_stopped = is_stopped or isinstance(event, Stop)
        state, actions = step(state, event, now_ms)
        for action in actions:
            if isinstance(action, Launch):
                assert not is_running
                assert not is_stopped
                is_running = True
            if isinstance(action, Signal):
                assert is_running
        if is_stopped and not is_running:
            assert state.phase is Phase.ENDED
        if state.phase in {Phase.WAITING, Phase.SERVING}:
            assert state.due_ms is not None

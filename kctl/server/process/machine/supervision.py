"""Decides when the process of one broker is started, restarted and ended.  Pure.

A process that has served and ends is started again, after a delay that doubles up to RESTART_MS_MAX while it does not
serve for STEADY_MS.  One that ends before the first time it serves ends the service, so that a wrong configuration is
reported by the command.  A process whose event loop has not reported for WATCHDOG_MS is aborted, and killed if it has
not ended after ABORT_MS.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from enum import Enum

RESTART_MS = 1_000
RESTART_MS_MAX = 60_000
STEADY_MS = 60_000
WATCHDOG_MS = 60_000
ABORT_MS = 10_000


class Phase(Enum):
    """The phases of the process."""

    STARTING = "starting"
    SERVING = "serving"
    ABORTED = "aborted"
    """The process has not reported, and was sent SIGABRT."""
    WAITING = "waiting"
    """The process has ended, and is started again after a delay."""
    STOPPING = "stopping"
    ENDED = "ended"
    """The process has ended, and is not started again."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of one process."""

    phase: Phase = Phase.STARTING
    has_served: bool = False
    """Since the service was started."""
    failures: int = 0
    """How many processes in a row have ended without serving for STEADY_MS."""
    serving_since_ms: int | None = None
    due_ms: int | None = None
    """When `Elapsed` is due; None if nothing happens by time."""
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """The broker serves clients."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The broker has reported that its event loop runs."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The process has ended."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The service stops."""


@dataclass(frozen=True, slots=True)
class Elapsed:
    """The time `due_ms` has come."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a process."""


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal to the process."""

    number: signal.Signals


@dataclass(frozen=True, slots=True)
class RestartLater:
    """The process has ended and is started again after this delay: to be logged."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Fail:
    """The service cannot start."""


Event = Ready | Heard | Ended | Stop | Elapsed
Action = Launch | Signal | RestartLater | Fail


def step(state: State, event: Event, now_ms: int) -> tuple[State, tuple[Action, ...]]:
    """Return the next state, and what has to be done.  The first process is launched by the caller."""
    match event:
        case Stop():
            return _stop(state, now_ms)
        case Ended():
            return _ended(state, now_ms)
        case Ready() if state.phase is Phase.STARTING:
            serving = replace(state, phase=Phase.SERVING, has_served=True, serving_since_ms=now_ms)
            return replace(serving, due_ms=now_ms + WATCHDOG_MS), ()
        case Heard() if state.phase in {Phase.SERVING, Phase.STOPPING}:
            return replace(state, due_ms=now_ms + WATCHDOG_MS), ()
        case Elapsed() if state.due_ms is not None and now_ms >= state.due_ms:
            return _elapsed(state, now_ms)
    return state, ()


def _stop(state: State, now_ms: int) -> tuple[State, tuple[Action, ...]]:
    match state.phase:
        case Phase.WAITING | Phase.ENDED:
            return replace(state, phase=Phase.ENDED, due_ms=None), ()
        case Phase.STOPPING:
            return state, ()
        case Phase.STARTING:
            # Recovery of logs blocks nothing, but reports nothing either.
            return replace(state, phase=Phase.STOPPING, due_ms=None), (Signal(signal.SIGTERM),)
    return replace(state, phase=Phase.STOPPING, due_ms=now_ms + WATCHDOG_MS), (Signal(signal.SIGTERM),)


def _ended(state: State, now_ms: int) -> tuple[State, tuple[Action, ...]]:
    over = replace(state, phase=Phase.ENDED, due_ms=None, serving_since_ms=None)
    if state.phase in {Phase.STOPPING, Phase.ENDED}:
        return over, ()
    if not state.has_served:
        return over, (Fail(),)
    was_steady = state.serving_since_ms is not None and now_ms - state.serving_since_ms >= STEADY_MS
    failures = 0 if was_steady else state.failures
    delay_ms = min(RESTART_MS << min(failures, 16), RESTART_MS_MAX)
    waiting = replace(over, phase=Phase.WAITING, failures=failures + 1, due_ms=now_ms + delay_ms)
    return waiting, (RestartLater(delay_ms),)


def _elapsed(state: State, now_ms: int) -> tuple[State, tuple[Action, ...]]:
    match state.phase:
        case Phase.WAITING:
            return replace(state, phase=Phase.STARTING, due_ms=None, restarts=state.restarts + 1), (Launch(),)
        case Phase.SERVING:
            return replace(state, phase=Phase.ABORTED, due_ms=now_ms + ABORT_MS), (Signal(signal.SIGABRT),)
        case Phase.ABORTED | Phase.STOPPING:
            return replace(state, due_ms=None), (Signal(signal.SIGKILL),)
    return state, ()

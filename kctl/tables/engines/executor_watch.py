"""When a job that waits for executors of a Spark cluster is given up.  Pure.

Spark itself waits for ever: a standalone application whose master and workers are gone is neither failed nor ended.
Executors that a living cluster has taken away may be replaced, so they are waited for as long as for the first ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

NOTE_AFTER_MS = 5_000
"""The first executors register within a few seconds if the cluster is idle."""
LOSS_MS_MAX = 60_000
"""How long executors are waited for that are lost together with the master."""
ABSENCE_MS_MAX = 600_000
"""How long executors are waited for otherwise."""


class Seen(NamedTuple):
    """What Spark and the network say."""

    executors: int
    is_master_gone: bool = False
    """Whether no standalone master accepts a connection; False for other masters."""


@dataclass(frozen=True, slots=True)
class WatchState:
    """The absence of executors; times are of a monotonic clock."""

    absent_since_ms: int | None
    """None while there are executors."""
    gone_since_ms: int | None = None
    """Since when the master is gone as well."""
    has_had_executors: bool = False
    is_noted: bool = False


class Verdict(NamedTuple):
    """What to tell the user; empty if nothing."""

    note: str = ""
    error: str = ""


def step(state: WatchState, seen: Seen, now_ms: int) -> tuple[WatchState, Verdict]:
    """Return the state after an observation."""
    if seen.executors > 0:
        return WatchState(None, has_had_executors=True), Verdict()
    absent_since_ms = now_ms if state.absent_since_ms is None else state.absent_since_ms
    gone_since_ms = None
    if seen.is_master_gone:
        gone_since_ms = now_ms if state.gone_since_ms is None else state.gone_since_ms
    state = replace(state, absent_since_ms=absent_since_ms, gone_since_ms=gone_since_ms)
    had = state.has_had_executors
    if gone_since_ms is not None and now_ms - gone_since_ms >= LOSS_MS_MAX:
        what = "all executors were lost, and the Spark master" if had else "no executor has registered, and the master"
        return state, Verdict(error=f"{what} does not respond since {(now_ms - gone_since_ms) // 1000} s")
    absent_ms = now_ms - absent_since_ms
    if absent_ms >= ABSENCE_MS_MAX:
        minutes = f"{absent_ms // 60_000} minutes"
        if had:
            return state, Verdict(error=f"all executors were lost, and no other one has registered for {minutes}")
        return state, Verdict(
            error=f"no executor has registered within {minutes}: check that the cluster has free cores and memory, and "
            "the properties spark.executor.*"
        )
    if state.is_noted or absent_ms < NOTE_AFTER_MS:
        return state, Verdict()
    note = "all executors were lost; waiting for others" if had else "waiting for executors"
    return replace(state, is_noted=True), Verdict(note=note)

"""When a job without executors is given up, and what is said before."""

from __future__ import annotations

import pytest

from kctl.tables.engines.executor_watch import (
    ABSENCE_MS_MAX,
    LOSS_MS_MAX,
    NOTE_AFTER_MS,
    Seen,
    Verdict,
    WatchState,
    step,
)


def watched(*observations: tuple[int, Seen]) -> list[Verdict]:
    state, verdicts = WatchState(None), []
    for now_ms, seen in observations:
        state, verdict = step(state, seen, now_ms)
        verdicts.append(verdict)
    return verdicts


NONE, SOME = Seen(0), Seen(2)
GONE = Seen(0, is_master_gone=True)


def test_executors_that_register_in_time_are_not_mentioned() -> None:
    assert (
        watched((0, NONE), (NOTE_AFTER_MS - 1, NONE), (NOTE_AFTER_MS, SOME), (10 * ABSENCE_MS_MAX, SOME))
        == [Verdict()] * 4
    )


def test_waiting_for_executors_is_said_once_and_given_up() -> None:
    first, again, before, last = watched(
        *((0, NONE), (NOTE_AFTER_MS, NONE), (ABSENCE_MS_MAX - 1, NONE), (ABSENCE_MS_MAX, NONE))
    )
    assert (first, again, before) == (Verdict(), Verdict(note="waiting for executors"), Verdict())
    assert last.error.startswith("no executor has registered within 10 minutes: check that the cluster has free cores")


@pytest.mark.parametrize(
    ("absent", "after_ms", "error"),
    [
        (GONE, LOSS_MS_MAX, "all executors were lost, and the Spark master does not respond since 60 s"),
        (NONE, ABSENCE_MS_MAX, "all executors were lost, and no other one has registered for 10 minutes"),
    ],
)
def test_lost_executors_are_waited_for(absent: Seen, after_ms: int, error: str) -> None:
    start_ms = 5
    verdicts = watched(
        *((0, SOME), (start_ms, absent), (start_ms + NOTE_AFTER_MS, absent)),
        *((start_ms + after_ms - 1, absent), (start_ms + after_ms, absent)),
    )
    assert verdicts[2] == Verdict(note="all executors were lost; waiting for others")
    assert verdicts[3:] == [Verdict(), Verdict(error=error)]


def test_other_executors_and_a_master_that_is_back_start_the_time_again() -> None:
    verdicts = watched(
        *((0, SOME), (1, GONE), (LOSS_MS_MAX, SOME), (LOSS_MS_MAX + 1, GONE)),
        *((2 * LOSS_MS_MAX, NONE), (2 * LOSS_MS_MAX + 1, GONE), (3 * LOSS_MS_MAX, GONE)),
    )
    assert [verdict.error for verdict in verdicts] == [""] * 7

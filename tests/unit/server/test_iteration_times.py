"""The log states whether a long iteration computed, collected garbage, waited, or had no processor."""

from __future__ import annotations

import threading
import time

import pytest

from kctl.server.loop.slow_iterations import Reading, ThreadClocks, times_between


def times(
    *, cpu_ms: float = 0, runnable_ms: float = 0, others_ms: float = 0, collections_ms: float = 0, busy_ms: float = 100
) -> str:
    before = Reading(1.0, 5.0, 0.5)
    after = Reading(1.0 + cpu_ms / 1000, 5.0 + (cpu_ms + others_ms) / 1000, 0.5 + runnable_ms / 1000)
    return times_between(before, after, busy_s=busy_ms / 1000, collections_s=collections_ms / 1000).cause


def test_the_cause_is_what_took_the_largest_part() -> None:
    assert times(cpu_ms=100) == "cpu"
    assert times(cpu_ms=100, others_ms=100) == "cpu", "the other thread had another processor"
    assert times(cpu_ms=100, collections_ms=60) == "garbage_collection"
    assert times(collections_ms=60) == "garbage_collection", "also by another thread"
    assert times(cpu_ms=20, runnable_ms=70) == "other_processes"
    assert times(cpu_ms=20, others_ms=80) == "other_threads"
    assert times(cpu_ms=20, others_ms=5) == "waiting"


def test_the_parts_are_the_whole_although_the_clocks_were_read_earlier() -> None:
    whole = times_between(Reading(0.0, 0.0, 0.0), Reading(0.5, 0.4, 0.5), busy_s=0.1, collections_s=0.0)
    assert whole.cpu_s + whole.runnable_s + whole.blocked_s == pytest.approx(whole.busy_s)
    assert whole.cpu_s == 0.1
    assert whole.other_threads_s == 0.0


def test_the_clocks_are_those_of_one_thread() -> None:
    clocks = ThreadClocks()
    before = clocks.read()

    def compute() -> None:
        while time.thread_time() < 0.05:
            pass

    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    after = clocks.read()
    clocks.close()
    computed_s = after.process_s - before.process_s
    assert computed_s >= 0.05
    assert after.thread_s - before.thread_s < computed_s / 2

"""Folding of repeated log lines: nothing is lost without being counted, and the memory is bounded."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kctl.output.log_folding import (
    LOG_EVENTS_FOLDED_MAX,
    LOG_LINES_FOLDED_MAX,
    LOG_LINES_OF_EVENT_MAX,
    WINDOW_MS,
    WINDOW_MS_MAX,
    Folded,
    Folding,
)


class Log:
    """Lines (event, number, error) that were written, and counts."""

    def __init__(self) -> None:
        self.folding: Folding[tuple[str, int, str]] = Folding()
        self.written: list[tuple[str, int, str]] = []
        self.counts: list[Folded[tuple[str, int, str]]] = []

    def write(self, event: str, number: int = 0, error: str = "", *, now_ms: int = 0) -> None:
        self.counts += self.folding.due(now_ms)
        line = (event, number, error)
        if self.folding.admits(event, line, error, now_ms=now_ms, kept=lambda: line):
            self.written.append(line)


def test_the_first_line_is_written_and_equal_ones_are_counted() -> None:
    log = Log()
    for _ in range(1_000):
        log.write("disk failed")
    log.write("something else")
    assert log.written == [("disk failed", 0, ""), ("something else", 0, "")]
    assert log.folding.due(WINDOW_MS - 1) == []
    assert log.folding.due(WINDOW_MS) == [Folded(("disk failed", 0, ""), 999, is_equal=True)]


def test_a_persisting_failure_is_written_less_and_less_often_but_at_least_every_five_minutes() -> None:
    log = Log()
    for now_s in range(3_600):
        log.write("disk failed", now_ms=1_000 * now_s)
    assert log.written == [("disk failed", 0, "")]
    counts = [count.omitted for count in log.counts]
    assert counts[:6] == [9, 20, 40, 80, 160, WINDOW_MS_MAX // 1_000]
    assert set(counts[5:]) == {WINDOW_MS_MAX // 1_000}


def test_a_failure_that_returns_after_a_window_without_it_is_written_again() -> None:
    log = Log()
    for now_ms in (0, 1, WINDOW_MS, 3 * WINDOW_MS, 3 * WINDOW_MS + 1):
        log.write("disk failed", now_ms=now_ms)
    assert len(log.written) == 1, "it repeated in two windows"
    log.write("disk failed", now_ms=20 * WINDOW_MS)
    assert len(log.written) == 2


def test_another_error_of_a_flooded_event_is_written() -> None:
    log = Log()
    for number in range(10 * LOG_LINES_OF_EVENT_MAX):
        log.write("cannot replicate", number, "not leader")
    log.write("cannot replicate", 7_777, "disk full")
    assert len(log.written) == LOG_LINES_OF_EVENT_MAX + 1
    assert log.written[-1] == ("cannot replicate", 7_777, "disk full")
    (others,) = log.folding.close()
    assert (others.omitted, others.is_equal) == (9 * LOG_LINES_OF_EVENT_MAX, False)


def test_a_client_that_varies_everything_causes_a_bounded_number_of_lines() -> None:
    log = Log()
    for number in range(20 * LOG_LINES_OF_EVENT_MAX):
        log.write("malformed request", number, f"reason {number}")
    assert len(log.written) <= 2 * LOG_LINES_OF_EVENT_MAX


def test_any_number_of_events_uses_bounded_memory_and_each_first_line_is_written_or_counted() -> None:
    log = Log()
    for number in range(5_000):
        log.write(f"event {number}", number)
    folding = log.folding
    assert len(folding._windows) <= LOG_EVENTS_FOLDED_MAX + 1
    assert sum(len(window.lines) for window in folding._windows.values()) <= LOG_LINES_FOLDED_MAX + len(
        folding._windows
    )
    assert len(log.written) + sum(line.omitted for line in folding.close()) == 5_000


LINES = st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.sampled_from(["x", "y"]), st.integers(0, 15_000))


@given(st.lists(LINES, max_size=60))
def test_every_line_is_written_or_counted_exactly_once(lines: list[tuple[str, int, str, int]]) -> None:
    log = Log()
    now_ms = 0
    for event, number, error, later_ms in lines:
        now_ms += later_ms
        log.write(event, number, error, now_ms=now_ms)
    log.counts += log.folding.close()
    seen = Counter(log.written)
    for count in log.counts:
        assert seen[count.line], "a count follows its first line"
        seen[count.line] += count.omitted
    assert seen == Counter((event, number, error) for event, number, error, _ in lines)
    assert not log.folding._windows

"""Decides which log lines are written, and which are only counted because their event repeats.

A window of WINDOW_MS begins with the first line of an event.  In it, a line is written once; equal ones are counted.
Different lines of one event are written up to a bound, and beyond it those with an error that no earlier line had, up
to the same bound.  The others are counted.  At the end of the window the counts are returned, with the last line that
each stands for.  If there are any, the next window begins, twice as long, up to WINDOW_MS_MAX; in it, the lines that
repeated are only counted.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from kctl.limits import Subject, bound

LOG_LINES_OF_EVENT_MAX = bound(
    Subject.LONG_WORK,
    "different lines in a server's log in 10 s about one kind of failure, or about one kind of event that clients of a "
    "listener cause, and as many whose errors differ from those of earlier lines",
    100,
    "lines",
    on_excess="further ones are counted, and one line has their number; equal lines are written once and counted",
)
LOG_EVENTS_FOLDED_MAX = bound(
    Subject.LONG_WORK,
    "kinds of log lines whose repetitions are counted at a time",
    256,
    "events",
    on_excess="further kinds are counted as one",
)
LOG_LINES_FOLDED_MAX = bound(
    Subject.LONG_WORK,
    "log lines whose repetitions are counted one by one at a time",
    2_000,
    "lines",
    on_excess="only the first line of each further event is written, the others are counted",
)


T = TypeVar("T")

WINDOW_MS = 10_000
WINDOW_MS_MAX = 300_000
_OTHER_EVENTS = "other events"


class Folded(NamedTuple, Generic[T]):
    """Lines that were left out."""

    line: T
    """The last of them."""
    omitted: int
    is_equal: bool
    """Whether they were all equal to `line` and written once, or only have its event."""


@dataclass(slots=True)
class _Repeats(Generic[T]):
    """A line that was written, and the number of equal ones after it."""

    count: int = 0
    last: T | None = None


@dataclass(slots=True)
class _Window(Generic[T]):
    end_ms: int
    length_ms: int = WINDOW_MS
    lines: dict[Hashable, _Repeats[T]] = field(default_factory=dict)
    errors: set[Hashable] = field(default_factory=set)
    others: _Repeats[T] = field(default_factory=_Repeats)
    """Lines of this event that were not written."""
    has_counts: bool = False


class Folding(Generic[T]):
    """The windows of all events; T is what the caller writes as a line.

    At most LOG_EVENTS_FOLDED_MAX events are distinguished, further ones share a window.  At most LOG_LINES_FOLDED_MAX
    lines are stored; of an event without room only the first line is written.
    """

    def __init__(self) -> None:
        self._windows: dict[Hashable, _Window[T]] = {}
        self._line_count = 0

    def admits(self, event: Hashable, line: Hashable, error: Hashable, *, now_ms: int, kept: Callable[[], T]) -> bool:
        """Return whether to write the line; if not, `kept` returns what stands for it at the end of the window.

        Call `due` with the same time before.
        """
        window = self._windows.get(event)
        if window is None:
            if len(self._windows) >= LOG_EVENTS_FOLDED_MAX:
                event = _OTHER_EVENTS
            window = self._windows.setdefault(event, _Window(now_ms + WINDOW_MS))
        repeats = window.lines.get(line)
        if repeats is None:
            is_new_error = error not in window.errors and len(window.errors) < LOG_LINES_OF_EVENT_MAX
            has_room = self._line_count < LOG_LINES_FOLDED_MAX or not window.lines
            if has_room and (len(window.lines) < LOG_LINES_OF_EVENT_MAX or is_new_error):
                window.lines[line] = _Repeats()
                self._line_count += 1
                if is_new_error:
                    window.errors.add(error)
                return True
            repeats = window.others
        window.has_counts = True
        repeats.count += 1
        repeats.last = kept()
        return False

    def next_due_ms(self) -> int | None:
        """Return the end of the first window with counts; None if there is none."""
        counting = (window.end_ms for window in self._windows.values() if window.has_counts)
        return min(counting, default=None)

    def due(self, now_ms: int) -> list[Folded[T]]:
        """Return the lines that were left out in the windows that have ended, in the order of their events."""
        ended = [event for event, window in self._windows.items() if now_ms >= window.end_ms]
        counts = []
        for event in ended:
            window = self._windows[event]
            counts += self._close(event)
            length_ms = min(2 * window.length_ms, WINDOW_MS_MAX)
            if window.has_counts and now_ms < window.end_ms + length_ms:
                repeated: dict[Hashable, _Repeats[T]]
                repeated = {line: _Repeats() for line, repeats in window.lines.items() if repeats.count}
                self._windows[event] = _Window(window.end_ms + length_ms, length_ms, repeated)
                self._line_count += len(repeated)
        return counts

    def close(self) -> list[Folded[T]]:
        """Return the lines that were left out in all windows, which end."""
        return [folded for event in list(self._windows) for folded in self._close(event)]

    def _close(self, event: Hashable) -> list[Folded[T]]:
        window = self._windows.pop(event)
        self._line_count -= len(window.lines)
        folded = [Folded(line.last, line.count, True) for line in window.lines.values() if line.last is not None]
        if window.others.last is not None:
            folded.append(Folded(window.others.last, window.others.count, False))
        return folded

"""The progress of a long command as a line on stderr."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol, Self, TextIO

from kctl.output.terminal_text import cut, escape

TERMINAL_WIDTH_DEFAULT = 80
TERMINAL_HEIGHT_DEFAULT = 24
PROGRESS_INTERVAL_S = 0.1
PROGRESS_LINE_INTERVAL_S = 10.0


class Messages(Protocol):
    """The console, as far as a progress line needs it."""

    stderr: TextIO
    quiet: bool


class Progress:
    """Progress of a long command: one line that is redrawn on a terminal, elsewhere a new line after each interval."""

    def __init__(
        self, console: Messages, label: str, total: int | None, unit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._label = escape(label)
        self._total = total
        self._unit = unit
        self._clock = clock
        self._is_drawn = False
        self._interval_s = PROGRESS_INTERVAL_S if console.stderr.isatty() else PROGRESS_LINE_INTERVAL_S
        self._next_s = clock() + self._interval_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def hide(self) -> None:
        """Erase the line from a terminal, before other output; the next update may draw it again."""
        if self._is_drawn and self._console.stderr.isatty():
            self._console.stderr.write("\r\x1b[K")
            self._console.stderr.flush()
        self._is_drawn = False

    def update(self, done: int, *, total: int | None = None, note: str = "") -> None:
        """`done` of `total` is complete; may be called often.  `total` may grow."""
        self._total = self._total if total is None else total
        now_s = self._clock()
        if self._console.quiet or now_s < self._next_s:
            return
        self._next_s = now_s + self._interval_s
        self._is_drawn = True
        of_total = f" of {self._total:,} ({done * 100 // self._total}%)" if self._total else ""
        line = f"{self._label} {done:,}{of_total} {self._unit}".rstrip() + (f", {escape(note)}" if note else "")
        stderr = self._console.stderr
        # A line that reaches the last column would be wrapped, and redrawing would leave a copy of it.
        stderr.write(f"\r\x1b[K{cut(line, terminal_width(stderr) - 1)}" if stderr.isatty() else line + "\n")
        stderr.flush()


def terminal_width(stream: TextIO) -> int:
    """Return the number of columns of the terminal: COLUMNS if it is set, else as the terminal reports."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdecimal() and 0 < len(given) < 6 and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or TERMINAL_WIDTH_DEFAULT
    except (OSError, ValueError):
        return TERMINAL_WIDTH_DEFAULT


def terminal_height(stream: TextIO) -> int:
    """Return the number of lines of the terminal: LINES if it is set, else as the terminal reports."""
    given = os.environ.get("LINES", "")
    if given.isascii() and given.isdecimal() and 0 < len(given) < 6 and int(given) > 1:
        return int(given)
    try:
        return max(os.get_terminal_size(stream.fileno()).lines, 2)
    except (OSError, ValueError):
        return TERMINAL_HEIGHT_DEFAULT

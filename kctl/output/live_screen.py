"""The whole terminal as a screen that is redrawn, and its keyboard.  The terminal is restored on every way out.

rich draws on the alternate screen, so that the lines of the shell are restored afterwards.  Keys are read without
waiting for a line and without echo; Ctrl-C and Ctrl-Z keep their meaning.

Owner: event loop, in the main thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import tty
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console as RichConsole
from rich.live import Live
from rich.text import Text

READ_BYTES_MAX = 1024
_ENDING = (signal.SIGHUP, signal.SIGQUIT)
"""Signals that end a process without any of its code, unless they are handled; SIGTERM and SIGINT are by the command
line.
"""


class LiveScreen:
    """Use as a context manager on a running event loop.

    `on_input` gets the bytes of each read; `on_resize` is called when the size changes and after a stop.
    """

    def __init__(
        self,
        stdin: TextIO | None,
        stdout: TextIO,
        *,
        color: bool,
        on_input: Callable[[bytes], None],
        on_resize: Callable[[], None],
    ) -> None:
        self._input_fd = stdin.fileno() if stdin is not None and stdin.isatty() else None
        self._stdout = stdout
        self._color = color
        self._on_input = on_input
        self._on_resize = on_resize
        self._loop = asyncio.get_running_loop()
        self._saved: list[object] | None = None
        self._live: Live | None = None
        self._handled: list[signal.Signals] = []

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal."""
        try:
            size = os.get_terminal_size(self._stdout.fileno())
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def draw(self, lines: Iterable[Iterable[tuple[str, str]]]) -> None:
        """Replace the screen.  A line is a sequence of escaped text and a style of rich."""
        if self._live is None:
            return
        text = Text(no_wrap=True, overflow="crop", end="")
        for number, line in enumerate(lines):
            text.append("\n" if number else "")
            for words, style in line:
                text.append(words, style or None)
        self._live.update(text, refresh=True)

    def __enter__(self) -> Self:
        try:
            self._take()
            actions: dict[signal.Signals, Callable[[], None]] = {
                signal.SIGWINCH: self._on_resize,
                signal.SIGTSTP: self._stop,
                **{number: partial(self._end, number) for number in _ENDING},
            }
            for number, act in actions.items():
                if signal.getsignal(number) is not signal.SIG_IGN:  # SIGHUP under nohup.
                    self._loop.add_signal_handler(number, act)
                    self._handled.append(number)
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number in self._handled:
            self._loop.remove_signal_handler(number)
        self._release()

    def _take(self) -> None:
        if self._input_fd is not None:
            self._saved = termios.tcgetattr(self._input_fd)
            tty.setcbreak(self._input_fd)
            self._loop.add_reader(self._input_fd, self._read)
        console = RichConsole(
            file=self._stdout, force_terminal=True, no_color=not self._color, highlight=False, emoji=False
        )
        self._live = Live(
            console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def _release(self) -> None:
        """Restore the terminal; may be called twice."""
        live, self._live = self._live, None
        saved, self._saved = self._saved, None
        try:
            if live is not None:
                live.stop()
        finally:
            if self._input_fd is not None and saved is not None:
                self._loop.remove_reader(self._input_fd)
                termios.tcsetattr(self._input_fd, termios.TCSADRAIN, saved)  # type: ignore[arg-type]

    def _read(self) -> None:
        assert self._input_fd is not None
        try:
            received = os.read(self._input_fd, READ_BYTES_MAX)
        except OSError:
            received = b""
        if received:
            self._on_input(received)
        else:
            # The terminal is gone.
            self._loop.remove_reader(self._input_fd)
            os.kill(os.getpid(), signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        """Restore the terminal and end as without a handler, with a core dump for SIGQUIT."""
        with contextlib.suppress(OSError):  # A terminal that is gone.
            self._release()
        self._loop.remove_signal_handler(number)
        os.kill(os.getpid(), number)

    def _stop(self) -> None:
        """Ctrl-Z: gives the terminal back, stops the process, and takes the terminal again when it continues."""
        self._release()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
        self._on_resize()

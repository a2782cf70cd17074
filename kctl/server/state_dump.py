"""The dump that a running broker writes on SIGUSR1: properties without secrets, tasks and threads.

The signal is handled between two instructions of the main thread, also while it is busy, so that the dump shows where
an event loop is that responds to nothing.  Neither locals nor arguments are written, because they may be secrets or
records.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from kctl import __version__
from kctl.config.redaction import redacted
from kctl.limits import DUMPED_FRAMES_MAX, DUMPED_TASKS_MAX
from kctl.terminal_text import escape

SIGNAL = signal.SIGUSR1


def write_on_signal(path: Path, summary: Callable[[], Mapping[str, str]], properties: Mapping[str, str]) -> None:
    """Writes the dump to `path` on each signal, from now on.  To be called in the main thread, in the event loop."""
    loop = asyncio.get_running_loop()
    begin = f"kctl {__version__}, Python {platform.python_version()}, {platform.platform()}"
    shown = [f"{name}={text}" for name, text in redacted(properties).items()]

    def handle(_: int, interrupted: FrameType | None) -> None:
        # An exception, or a log message, could end or damage what is being interrupted.
        with suppress(Exception):
            numbers = [f"{name}={text}" for name, text in summary().items()]
            tasks = list(_tasks(asyncio.all_tasks(loop)))
            threads = list(_threads(interrupted))
            _replace(path, [begin, *numbers, "", "[properties]", *shown, "", *tasks, "", *threads])

    signal.signal(SIGNAL, handle)


def process_numbers() -> dict[str, str]:
    """Numbers about this process that cost nothing."""
    return {
        "pid": str(os.getpid()),
        "threads": str(threading.active_count()),
        "garbage_collections": ",".join(str(each["collections"]) for each in gc.get_stats()),
    }


def _tasks(tasks: Iterable[asyncio.Task[Any]]) -> Iterator[str]:
    """A line for each task, followed by the frames in which it waits, the outermost first."""
    listed = sorted(tasks, key=lambda task: task.get_name())
    yield f"[tasks] {len(listed)}"
    for task in listed[:DUMPED_TASKS_MAX]:
        yield f"task {task.get_name()}"
        awaited: Any = task.get_coro()
        for _ in range(DUMPED_FRAMES_MAX):
            frame = next((found for name in _FRAMES if (found := getattr(awaited, name, None)) is not None), None)
            if frame is None:
                break
            yield _line(frame)
            awaited = next((found for name in _AWAITED if (found := getattr(awaited, name, None)) is not None), None)
    if len(listed) > DUMPED_TASKS_MAX:
        yield f"{len(listed) - DUMPED_TASKS_MAX} more tasks"


_FRAMES = ("cr_frame", "gi_frame", "ag_frame")
_AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")
"""Attributes of coroutines, generators and asynchronous generators."""


def _threads(interrupted: FrameType | None) -> Iterator[str]:
    """A line for each thread, followed by its frames, the innermost first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames: dict[int, FrameType | None] = dict(sys._current_frames())  # noqa: SLF001 - documented
    frames[threading.get_ident()] = interrupted
    yield f"[threads] {len(frames)}"
    for identity, innermost in frames.items():
        yield f"thread {names.get(identity, 'unnamed')}"
        frame = innermost
        for _ in range(DUMPED_FRAMES_MAX):
            if frame is None:
                break
            yield _line(frame)
            frame = frame.f_back


def _line(frame: FrameType) -> str:
    code = frame.f_code
    return f"  {code.co_filename}:{frame.f_lineno} {code.co_qualname}"


def _replace(path: Path, lines: Iterable[str]) -> None:
    """Writes the file completely or not at all; only its owner may read it."""
    temporary = path.with_suffix(".dump.tmp")
    text = "".join(f"{escape(line)}\n" for line in lines)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise

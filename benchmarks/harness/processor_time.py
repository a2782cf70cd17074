"""Processor time of a piece of work with all the processes that it starts.  Needs Linux.

The processes are read every PERIOD_S, and new ones are looked for every SEARCH_PERIODS of these, because the kernel's
sums (RUSAGE_CHILDREN) lack processes whose parent ignores that they end: PySpark's daemon ignores SIGCHLD, so that the
sums lack those of all tasks.  What a process uses after it was read last is not counted.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

PERIOD_S = 0.02
SEARCH_PERIODS = 5
END_TIMEOUT_S = 60
_PR_SET_CHILD_SUBREAPER = 36
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class _Process(NamedTuple):
    pid: int
    started: int
    """In ticks since the system was started: a later process may get the same id."""
    parent: int
    is_zombie: bool
    ticks: int
    """Of its own, without its children."""


def used_s(work: Callable[[], object], *, daemons: Collection[int] = ()) -> float:
    """Processor seconds of the processes that the work starts, until the last of them has ended.

    `daemons` are processes that run already and work as well: what they use meanwhile is added.  Raises TimeoutError
    when a process does not end.
    """
    assert ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    present = {(process.pid, process.started): process.ticks for process in _descendants()}
    ignored = {key for key in present if key[0] not in daemons}
    last: dict[tuple[int, int], int] = {}
    is_over = threading.Event()

    def search() -> list[_Process]:
        found = [process for process in _descendants() if (process.pid, process.started) not in ignored]
        last.update({(process.pid, process.started): process.ticks for process in found})
        return [process for process in found if (process.pid, process.started) not in present]

    def read_again() -> None:
        for pid, started in list(last):
            process = _read(Path(f"/proc/{pid}"))
            if process is not None and process.started == started:
                last[pid, started] = process.ticks

    def watch() -> None:
        for count in itertools.count():
            if is_over.wait(PERIOD_S):
                return
            if count % SEARCH_PERIODS:
                read_again()
            else:
                search()

    thread = threading.Thread(target=watch, name="processor time")
    thread.start()
    try:
        work()
    finally:
        is_over.set()
        thread.join()
    deadline = time.monotonic() + END_TIMEOUT_S
    while running := [process for process in search() if not _has_ended(process)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes do not end: {running}")
        time.sleep(PERIOD_S)
    return sum(ticks - present.get(key, 0) for key, ticks in last.items()) / _TICKS_PER_S


def _has_ended(process: _Process) -> bool:
    """Whether it is a zombie; an orphan that this process has adopted is reaped."""
    if process.is_zombie and process.parent == os.getpid():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
    return process.is_zombie


def _descendants() -> Iterator[_Process]:
    """The processes below this one."""
    children: dict[int, list[_Process]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (process := _read(entry)) is not None:
            children.setdefault(process.parent, []).append(process)
    parents = [os.getpid()]
    while parents:
        found = children.get(parents.pop(), [])
        parents += [process.pid for process in found]
        yield from found


def _read(entry: Path) -> _Process | None:
    """None if it has ended."""
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return _Process(
        pid=int(entry.name),
        started=int(fields[19]),
        parent=int(fields[1]),
        is_zombie=fields[0] == "Z",
        ticks=int(fields[11]) + int(fields[12]),
    )

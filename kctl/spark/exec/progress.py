"""How far a running task is: told through a small file in the export folder, which all executors share.

Spark's accumulators tell only about tasks that have ended, and a task of a large file runs for minutes.  The files are
for display: nothing depends on them, they are never synced, and those of dead tasks are removed like other temporary
files.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

INTERVAL_S = 0.5
"""A task writes its file at most this often."""


class TaskProgress(NamedTuple):
    """What a task has done so far."""

    offsets: int = 0
    records: int = 0
    bytes_in: int = 0


Report = Callable[[TaskProgress], None]


@contextmanager
def progress_file(
    directory: Path, path: str, *, clock: Callable[[], float] = time.monotonic, interval_s: float = INTERVAL_S
) -> Iterator[Report]:
    """Reports of the task that writes `path`, as a file in `directory` while the context lasts.

    A folder that cannot be written to is no reason to fail here: then nobody sees the progress.
    """
    name = hashlib.sha256(path.encode()).hexdigest()[:16]
    file = directory / f".{name}.tmp"
    try:
        directory.mkdir(exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644)
    except OSError:
        yield lambda progress: None
        return
    next_s = clock()

    def report(progress: TaskProgress) -> None:
        nonlocal next_s
        if clock() < next_s:
            return
        next_s = clock() + interval_s
        # One write of a fixed size: a reader finds the old numbers or the new ones.
        os.pwrite(descriptor, b"%020d %020d %020d" % progress, 0)

    try:
        yield report
    finally:
        os.close(descriptor)
        file.unlink(missing_ok=True)


def running_tasks(directory: Path) -> TaskProgress:
    """The sum over the tasks that are at work now."""
    total = TaskProgress()
    try:
        names = os.listdir(directory)
    except OSError:
        return total
    for name in names:
        try:
            numbers = [int(word) for word in (directory / name).read_bytes().split()]
            total = TaskProgress(*(a + b for a, b in zip(total, numbers, strict=True)))
        except (OSError, ValueError):
            continue  # the task has just begun or ended
    return total

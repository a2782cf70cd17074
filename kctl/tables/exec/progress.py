"""Progress of running tasks, through small files in the export folder, which all executors share.

Spark's accumulators are updated only when tasks end, and the task of a large file runs for minutes.  The files are used
for display only; they are never synced, and those of failed tasks are deleted like other temporary files.
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
"""Minimum interval between two writes of a task."""


class TaskProgress(NamedTuple):
    """Counters of a running task."""

    offsets: int = 0
    records: int = 0
    bytes_in: int = 0


NOTHING = TaskProgress()
Report = Callable[[TaskProgress], None]


@contextmanager
def progress_file(
    directory: Path, path: str, *, clock: Callable[[], float] = time.monotonic, interval_s: float = INTERVAL_S
) -> Iterator[Report]:
    """Write the progress of the task for `path` to a file in `directory` during the context.

    Write errors are ignored; the progress is not displayed then.
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
        # One write of fixed size, so that a reader sees either the old or the new numbers.
        os.pwrite(descriptor, b"%020d %020d %020d" % progress, 0)

    try:
        yield report
    finally:
        os.close(descriptor)
        file.unlink(missing_ok=True)


def running_tasks(directory: Path) -> TaskProgress:
    """Return the sum of the counters of all running tasks."""
    total = TaskProgress()
    try:
        names = os.listdir(directory)
    except OSError:
        return total
    for name in names:
        try:
            numbers = [int(field) for field in (directory / name).read_bytes().split()]
            total = TaskProgress(*(a + b for a, b in zip(total, numbers, strict=True)))
        except (OSError, ValueError):
            continue  # the task has just started or ended
    return total

"""Ends what tests have started when the tests have ended, also if they were killed.

Every process inherits an environment variable with the names of the runs that it belongs to.  A watcher beside each run
reads from a pipe that only the run holds open.  At its end the watcher kills the processes of the run that still exist,
in whatever session or process group they are.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "KCTL_TEST_RUNS"
PROCESSES = Path("/proc")
MAX_SCANS = 100
"""A process may start another one while the processes are read, so that they are read until none is found."""


def end_with_this_process() -> None:
    """Processes that this one starts from now on are killed when it ends; no effect on systems without /proc."""
    if not (PROCESSES / "self" / "environ").exists():
        return
    run = uuid.uuid4().hex
    reading, writing = os.pipe()
    watcher = subprocess.Popen(
        [sys.executable, "-S", __file__, run],
        stdin=reading,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(reading)
    os.environ[VARIABLE] = f"{os.environ.get(VARIABLE, '')} {run}".strip()

    def end() -> None:
        os.close(writing)
        watcher.wait()

    atexit.register(end)


def processes_of(run: str) -> Iterator[int]:
    """The ids of the processes that have inherited the name of the run."""
    for process in PROCESSES.iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended, or belongs to another user
                for variable in (process / "environ").read_bytes().split(b"\0"):
                    name, _, value = variable.partition(b"=")
                    if name == VARIABLE.encode() and run.encode() in value.split():
                        yield int(process.name)


def main(run: str) -> None:
    """Waits for the end of the run, then kills its processes."""
    sys.stdin.buffer.read()
    for _ in range(MAX_SCANS):
        left = list(processes_of(run))
        if not left:
            return
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])

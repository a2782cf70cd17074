"""Runs a command line of kctl and counts the calls in its main thread; writes the counts at each SIGUSR2.

    python -m benchmarks.harness.counted_calls FILE python -m kctl broker start ...

FILE gets a JSON object from the qualified name of a function, of Python or built in, to the calls since the start.
Counts do not depend on the speed of the machine or on its other load.
"""

from __future__ import annotations

import collections
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from kctl.cli import main

TIMEOUT_S = 60


class Calls(NamedTuple):
    """Calls by the qualified names of functions, such as `FetchHandler.handle`."""

    python: Counter[str]
    builtin: Counter[str]


class CallCounter:
    """The profile function."""

    def __init__(self) -> None:
        self._python: collections.defaultdict[CodeType, int] = collections.defaultdict(int)
        self._builtin: collections.defaultdict[str, int] = collections.defaultdict(int)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._python[frame.f_code] += 1
        elif event == "c_call":
            self._builtin[argument.__qualname__] += 1

    def write(self, path: Path) -> None:
        """Writes the counts so far, in one step."""
        sys.setprofile(None)  # A garbage collection calls functions, which must not be added during the iteration.
        python: Counter[str] = Counter()
        for code, count in self._python.items():
            python[code.co_qualname] += count
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps([python, self._builtin]))
        unfinished.rename(path)
        sys.setprofile(self)


def calls_of(pid: int, path: Path) -> Calls:
    """The counts of a process that runs this module with that file."""
    path.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR2)
    end_s = time.monotonic() + TIMEOUT_S
    while not path.exists():
        if time.monotonic() > end_s:
            raise SystemExit(f"process {pid} has not written {path}")
        time.sleep(0.01)
    python, builtin = json.loads(path.read_text())
    return Calls(Counter(python), Counter(builtin))


if __name__ == "__main__":
    counter = CallCounter()
    signal.signal(signal.SIGUSR2, lambda _number, _frame: counter.write(Path(sys.argv[1])))
    sys.setprofile(counter)
    sys.exit(main(sys.argv[sys.argv.index("kctl") + 1 :]))

"""What tests have started ends with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import leftovers

ROOT = Path(__file__).parents[3]
RUN = """
import subprocess, sys
from tests.peers import leftovers

leftovers.end_with_this_process()
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("started", flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(not (leftovers.PROCESSES / "self" / "environ").exists(), reason="/proc is missing")


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM, None])
def test_servers_in_other_sessions_end_with_the_tests(ended_by: signal.Signals | None) -> None:
    """The pipe of the output ends when the last process that inherited it has ended."""
    with subprocess.Popen(
        [sys.executable, "-c", RUN], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "started\n"
        if ended_by is not None:
            run.send_signal(ended_by)
        run.communicate(timeout=120)


def test_processes_of_other_runs_stay() -> None:
    environment = os.environ | {leftovers.VARIABLE: "this-run-and-more other-run"}
    with subprocess.Popen(["sleep", "600"], env=environment) as process:
        assert list(leftovers.processes_of("this-run")) == []
        assert list(leftovers.processes_of("other-run")) == [process.pid]
        process.kill()

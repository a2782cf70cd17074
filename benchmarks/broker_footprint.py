"""Measures the time from the command to the first response of our broker, and its memory while it is idle.

    python -m benchmarks.broker_footprint [--runs 7]

Start-up is the time from starting the process to its first response to ApiVersions, on an empty data folder and on one
that it has used before.  Memory is resident memory two seconds later.  Limits: Python itself starts in 15 to 20 ms and
holds 10 MB; asyncio costs 60 ms and 10 MB more.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject
from tests.peers import probe

TIMEOUT_S = 30
SETTLED_AFTER_S = 2


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=7)
    runs = options.parse_args().runs
    first_s, again_s, cpu_s, resident_mb = [], [], [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="kctl-bench-") as folder:
            first_s.append(measure(Path(folder))[0])
            took_s, used_s, memory_mb = measure(Path(folder))
            again_s.append(took_s)
            cpu_s.append(used_s)
            resident_mb.append(memory_mb)
    figures = [
        Figure("start, empty data folder", "s to ApiVersions", first_s, "< 1"),
        Figure("start, used data folder", "s to ApiVersions", again_s, "< 1"),
        Figure("start, used data folder", "CPU s to ApiVersions", cpu_s),
        Figure("idle resident memory", "MB", resident_mb, "< 80"),
    ]
    report("broker_footprint", figures, runs=runs)


def measure(folder: Path) -> tuple[float, float, float]:
    """Starts the broker, sends requests until it responds, waits while it is idle, stops it.

    Returns the seconds to the first response, the processor seconds used until then, and the MB at rest.
    """
    bootstrap = f"127.0.0.1:{probe.free_port()}"
    port = bootstrap.partition(":")[2]
    started = time.perf_counter()
    broker = subprocess.Popen(
        [sys.executable, "-m", "kctl", "broker", "start", "--data-dir", folder / "data", "--port", port, "--quiet"],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    try:
        probe.wait_until(
            lambda: probe.responds_to_api_versions(bootstrap), what="the broker", timeout_s=TIMEOUT_S, interval_s=0.005
        )
        took_s = time.perf_counter() - started
        subject = Subject(bootstrap, broker.pid)
        used_s = subject.cpu_s()
        time.sleep(SETTLED_AFTER_S)
        return took_s, used_s, subject.resident_mb()
    finally:
        broker.terminate()
        broker.wait(TIMEOUT_S)


if __name__ == "__main__":
    main()

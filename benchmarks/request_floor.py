"""Measures what a small request costs a server that does nothing with it: the floor below which no broker can be.

    python -m benchmarks.request_floor [--runs 5] [--requests 100000] [--connections 40] [--in-flight 1]

The requests and the client are those of `./dev bench --beside apache --rows single`.  Each server receives a request,
writes its bytes to a file in one call and sends a response of the same length as a broker's:

- one in C with epoll, whose time is that of the kernel,
- one in Python with epoll and without asyncio,
- one in Python as a protocol of asyncio's event loop, which is what the broker is,
- the broker.

They are measured in turns, with the processor time in user mode and in the kernel.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.beside.sides import PROPERTIES
from benchmarks.harness import echo_server, small_requests
from benchmarks.harness.broker import kctl_broker
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import TICKS_PER_S, pin

TOPIC = "abcd"


@contextlib.contextmanager
def program(command: list[str]) -> Iterator[tuple[str, int]]:
    """Run a server that prints its port; return its address and its process."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}", process.pid
        finally:
            process.kill()


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[tuple[str, int]]:
    """Run a broker that has the topic."""
    with kctl_broker(folder / "data", properties={**PROPERTIES, "auto.create.topics.enable": "true"}) as started:
        create = [sys.executable, "-m", "kctl", "topics", "create", TOPIC, "--bootstrap-server", started.bootstrap]
        subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
        yield started.bootstrap, started.pid


def servers(folder: Path) -> dict[str, contextlib.AbstractContextManager[tuple[str, int]]]:
    """Return the servers by what they are; without a C compiler that in C is missing."""
    python = [sys.executable, echo_server.__file__]
    result: dict[str, contextlib.AbstractContextManager[tuple[str, int]]] = {}
    if compiler := shutil.which("cc"):
        compiled = folder / "echo"
        source = Path(echo_server.__file__).with_name("echo_server.c")
        subprocess.run([compiler, "-O2", "-o", str(compiled), str(source)], check=True)
        result["C, epoll"] = program([str(compiled), str(folder / "c.log")])
    result["Python, epoll"] = program([*python, "epoll", str(folder / "epoll.log")])
    result["Python, asyncio"] = program([*python, "asyncio", str(folder / "asyncio.log")])
    result["broker"] = broker(folder)
    return result


def user_and_system_s(pid: int) -> tuple[float, float]:
    """Return the processor time of a process in user mode and in the kernel."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(after_name[11]) / TICKS_PER_S, int(after_name[12]) / TICKS_PER_S


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=5, help="runs of each measurement; medians are reported")
    options.add_argument("--requests", type=int, default=100_000, help="requests in each run")
    options.add_argument("--connections", type=int, default=40)
    options.add_argument("--in-flight", type=int, default=1, help="requests in flight on each connection")
    given = options.parse_args()
    samples: dict[str, list[tuple[float, float]]] = {}
    frame = small_requests.produce_frame(TOPIC, acks=1)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-bench-")))
        running = {name: stack.enter_context(server) for name, server in servers(folder).items()}
        pin(*(pid for _, pid in running.values()))
        for run in range(given.runs + 1):
            for name in list(running) if run % 2 else reversed(running):
                address, pid = running[name]
                before = user_and_system_s(pid)
                small_requests.send(
                    address, frame, count=given.requests, connections=given.connections, in_flight=given.in_flight
                )
                user_s, system_s = (now - then for now, then in zip(user_and_system_s(pid), before, strict=True))
                if run:
                    samples.setdefault(name, []).append((user_s, system_s))
    scale = 1e6 / given.requests
    figures = []
    for name in running:
        figures.append(Figure(f"{name}, user mode", "us of CPU", [user_s * scale for user_s, _ in samples[name]]))
        figures.append(Figure(f"{name}, kernel", "us of CPU", [system_s * scale for _, system_s in samples[name]]))
        figures.append(Figure(name, "us of CPU", [sum(times) * scale for times in samples[name]]))
    report("request_floor", figures, runs=given.runs, requests=given.requests)


if __name__ == "__main__":
    main()

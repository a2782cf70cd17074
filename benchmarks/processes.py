"""Measures what several broker processes of one service serve: `kctl broker start --processes N`.

    python -m benchmarks.processes [--runs 5] [--requests 200000] [--in-flight 64] [--processes 1,2,4,8]

Each process leads one topic, to which one client sends Produce requests of one message, encoded once, so that a client
costs little.  While there are as many processors as processes, each process has one of them and its client another one;
what both get is the first figure.  The second one holds for any number of processors: how often the requests of one
process fit into N processors, if each process has one and needs for a request what it needed here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from benchmarks.harness import small_requests
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject
from kctl.admin import AdminClient, AdminConfig, NewTopic
from tests.peers.probe import free_ports, wait_until

START_TIMEOUT_S = 120
CONNECTIONS = 4


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=5, help="runs of each measurement; medians are reported")
    options.add_argument("--requests", type=int, default=200_000, help="requests to each process in a run")
    options.add_argument("--in-flight", type=int, default=64, help="requests in flight of each client")
    options.add_argument("--processes", default="1,2,4,8", help="numbers of processes")
    given = options.parse_args()
    counts = [int(count) for count in given.processes.split(",")]
    rates: dict[int, list[float]] = {}
    costs: dict[int, list[float]] = {}
    for run in range(given.runs):
        for count in counts if run % 2 else counts[::-1]:  # In turns: other work on the machine changes the times.
            with service(count) as (subject, addresses):
                load(subject, addresses, given.requests // 10, given.in_flight)
                took_s, cpu_s = load(subject, addresses, given.requests, given.in_flight)
            costs.setdefault(count, []).append(cpu_s / (given.requests * count) * 1e6)
            if count <= len(os.sched_getaffinity(0)):
                rates.setdefault(count, []).append(given.requests * count / took_s)
    first = counts[0]
    rated = [count for count in counts if count in rates]
    figures = [Figure(f"{count} processes", "requests/s", rates[count]) for count in rated]
    figures += [Figure(f"{count} processes", "us of CPU per request", costs[count]) for count in counts]
    figures += [
        Figure(f"{count} processes beside {first}", "times the requests", divided(rates[count], rates[first]))
        for count in rated[1:]
    ]
    figures += [
        Figure(
            f"{count} processes on {count} processors",
            "times the requests",
            [count / first * ratio for ratio in divided(costs[first], costs[count])],
        )
        for count in counts[1:]
    ]
    report("processes", figures, runs=given.runs, requests=given.requests, in_flight=given.in_flight)


def divided(samples: list[float], others: list[float]) -> list[float]:
    return [sample / other for sample, other in zip(samples, others, strict=True)]


@contextmanager
def service(count: int) -> Iterator[tuple[Subject, list[str]]]:
    """Run so many processes, with a topic of each; yield them and their addresses."""
    with tempfile.TemporaryDirectory(prefix="kctl-bench-") as folder:
        port = free_ports(count)[0]
        words = ["broker", "start", "--data-dir", f"{folder}/data", "--port", str(port), "--log-format", "text"]
        words += ["--processes", str(count), "--ready-file", f"{folder}/ready"]
        with open(f"{folder}/log", "wb") as log:
            process = subprocess.Popen([sys.executable, "-m", "kctl", *words], stdout=log, stderr=log)
        try:
            wait_until(Path(folder, "ready").exists, what="the service", timeout_s=START_TIMEOUT_S)
            addresses = [f"127.0.0.1:{port + number}" for number in range(count)]
            with AdminClient(AdminConfig(bootstrap_servers=addresses[0])) as admin:
                admin.create_topics(
                    [NewTopic(topic_of(number), assignment=((number,),)) for number in range(count)]
                ).require()
            pin_brokers(Path(folder, "data"), count)
            yield Subject(addresses[0], process.pid), addresses
        finally:
            process.terminate()
            process.wait(START_TIMEOUT_S)


def topic_of(number: int) -> str:
    return f"p{number:03}"


def pin_brokers(data_dir: Path, count: int) -> None:
    """Give each process a processor, in turns."""
    processors = sorted(os.sched_getaffinity(0))
    for number in range(count):
        pid = json.loads((data_dir / f"process-{number}" / "broker.json").read_text())["pid"]
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {processors[number % len(processors)]})


def load(subject: Subject, addresses: list[str], requests: int, in_flight: int) -> tuple[float, float]:
    """Send so many requests to each process at the same time; return the seconds, and those of processors."""
    with ProcessPoolExecutor(len(addresses), mp_context=get_context("spawn")) as pool:
        list(pool.map(int, range(len(addresses))))  # All are started.
        used_s, began = subject.cpu_s(), time.perf_counter()
        sent = [pool.submit(send, address, number, requests, in_flight) for number, address in enumerate(addresses)]
        for one in sent:
            one.result()
        return time.perf_counter() - began, subject.cpu_s() - used_s


def send(address: str, number: int, requests: int, in_flight: int) -> None:
    """Send the requests of one client, on another processor than that of its broker."""
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[(number + 1) % len(processors)]})
    frame = small_requests.produce_frame(topic_of(number), acks=1)
    small_requests.send(address, frame, count=requests, connections=CONNECTIONS, in_flight=in_flight)


if __name__ == "__main__":
    main()

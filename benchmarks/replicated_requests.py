"""Measures what a produce request of one message costs a leader and its two followers with acks=all.

    python -m benchmarks.replicated_requests [--runs 5] [--messages 5000] [--in-flight 5] [--beside FOLDER]
        [--functions 20]

Three brokers, one connection, and by default five requests in flight.  Processor time
and requests a second come from one cluster; the calls of Python functions and the fetches come from another one, whose
brokers count their calls and are slower for it.  With `--beside` both are measured for another checkout of kctl too, in
turns, because other load on the machine changes the times.  `--functions` prints the functions that are called most.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.beside.measuring import topic
from benchmarks.beside.rows import REPLICATED_IN_FLIGHT
from benchmarks.beside.sides import KCTL, PROPERTIES, REPLICATED, Side
from benchmarks.harness import counted_calls, small_requests
from benchmarks.harness.broker import kctl_broker
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject
from tests.peers.embedded_zookeeper import embedded_zookeeper

ROOT = Path(__file__).parent.parent
WARM_UP = 500
FETCH, PLAIN_FETCH = "FetchHandler.handle", "PlainFetchHandler.handle"
"""The latter gets most requests, and leaves some to the former; of followers older checkouts have only that one."""
GOALS = {"requests": ">= 2,500", "leader": "<= 200", "follower": "<= 100"}


class Cluster:
    """Three brokers of one checkout; broker 0 leads."""

    def __init__(self, brokers: tuple[Subject, ...], folder: Path, in_flight: int) -> None:
        self.side = Side(KCTL, brokers, folder, 0.0)
        self._in_flight = in_flight
        self._topics = 0

    def produce(self, messages: int) -> dict[str, float]:
        """Requests a second, and processor time in us per message of the leader and of a follower."""
        with self._frame() as frame:
            before_s = self._cpu_s()
            took_s = self._send(frame, messages)
            leader_s, *follower_s = (after - before for after, before in zip(self._cpu_s(), before_s, strict=True))
        return {
            "requests": messages / took_s,
            "leader": leader_s / messages * 1e6,
            "follower": statistics.mean(follower_s) / messages * 1e6,
        }

    def calls(self, messages: int) -> list[counted_calls.Calls]:
        """The calls of each broker while it replicated these messages, if it counts them."""
        with self._frame() as frame:
            before = self._calls()
            self._send(frame, messages)
            return [
                counted_calls.Calls(after.python - first.python, after.builtin - first.builtin)
                for after, first in zip(self._calls(), before, strict=True)
            ]

    @contextlib.contextmanager
    def _frame(self) -> Iterator[bytes]:
        """A request for a new topic that is replicated already."""
        self._topics += 1
        with topic(self.side, f"{self._topics:04}", replicas=(0, 1, 2)) as name:
            frame = small_requests.produce_frame(name, acks=-1)
            self._send(frame, WARM_UP)
            yield frame

    def _send(self, frame: bytes, messages: int) -> float:
        return small_requests.send(self.side.bootstrap, frame, count=messages, connections=1, in_flight=self._in_flight)

    def _cpu_s(self) -> list[float]:
        return [broker.cpu_s() for broker in self.side.brokers]

    def _calls(self) -> list[counted_calls.Calls]:
        return [
            counted_calls.calls_of(broker.pid, self.side.logs / f"calls-{number}.json")
            for number, broker in enumerate(self.side.brokers)
        ]


@contextlib.contextmanager
def cluster(checkout: Path, in_flight: int, *, is_counted: bool = False) -> Iterator[Cluster]:
    """A running cluster of the kctl in that folder."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-bench-")))
        zookeeper = stack.enter_context(embedded_zookeeper(folder / "zookeeper")).connect
        brokers: list[Subject] = []
        for number in range(3):
            run_by = ["env", f"--chdir={checkout}", f"PYTHONPATH={checkout}"]
            if is_counted:
                run_by += [sys.executable, counted_calls.__file__, str(folder / f"calls-{number}.json")]
            broker = stack.enter_context(
                kctl_broker(
                    folder / f"{number}",
                    zookeeper=zookeeper,
                    properties={**PROPERTIES, **REPLICATED, "broker.id": f"{number}"},
                    run_by=run_by,
                )
            )
            brokers.append(Subject(broker.bootstrap, broker.pid))
        yield Cluster(tuple(brokers), folder, in_flight)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=5, help="runs of each measurement; medians are reported")
    options.add_argument("--messages", type=int, default=5_000, help="messages in each run")
    options.add_argument("--in-flight", type=int, default=REPLICATED_IN_FLIGHT, help="requests on the connection")
    options.add_argument("--beside", type=Path, metavar="FOLDER", help="measure this checkout too")
    options.add_argument("--functions", type=int, default=0, metavar="N", help="print the N most called functions")
    options.add_argument("--counts-only", action="store_true", help="count calls, but take no times")
    given = options.parse_args()
    checkouts = {"": ROOT, **({"beside: ": given.beside.resolve()} if given.beside else {})}
    figures: list[Figure] = []
    if not given.counts_only:
        figures += times(checkouts, given)
    for prefix, checkout in checkouts.items():
        with cluster(checkout, given.in_flight, is_counted=True) as counted:
            calls = counted.calls(given.messages)
        figures += counts(prefix, calls, given.messages)
        for role, call in zip(("leader", "follower"), calls, strict=False):
            print_functions(f"{prefix}{role}", call, given.messages, given.functions)
    report("replicated_requests", figures, runs=given.runs, messages=given.messages, in_flight=given.in_flight)


def times(checkouts: dict[str, Path], given: argparse.Namespace) -> list[Figure]:
    """Processor time and throughput of each checkout."""
    samples: dict[tuple[str, str], list[float]] = {}
    with contextlib.ExitStack() as stack:
        clusters = {
            prefix: stack.enter_context(cluster(checkout, given.in_flight)) for prefix, checkout in checkouts.items()
        }
        for run in range(given.runs):
            for prefix in list(clusters) if run % 2 else reversed(clusters):
                for name, value in clusters[prefix].produce(given.messages).items():
                    samples.setdefault((prefix, name), []).append(value)
    return [
        Figure(f"{prefix}{name}", "/s" if name == "requests" else "us of CPU", values, GOALS[name])
        for (prefix, name), values in sorted(samples.items())
    ]


def counts(prefix: str, calls: list[counted_calls.Calls], messages: int) -> list[Figure]:
    """Fetches of one follower, and calls of functions in leader and follower, per message."""
    leader, *followers = calls
    fetches = (leader.python[PLAIN_FETCH] or leader.python[FETCH]) / len(followers)
    return [
        Figure(f"{prefix}fetches of a follower", "per message", [fetches / messages]),
        Figure(f"{prefix}leader, Python calls", "per message", [leader.python.total() / messages]),
        Figure(f"{prefix}leader, built-in calls", "per message", [leader.builtin.total() / messages]),
        Figure(
            f"{prefix}follower, Python calls",
            "per message",
            [statistics.mean(follower.python.total() for follower in followers) / messages],
        ),
        Figure(
            f"{prefix}follower, built-in calls",
            "per message",
            [statistics.mean(follower.builtin.total() for follower in followers) / messages],
        ),
    ]


def print_functions(title: str, calls: counted_calls.Calls, messages: int, number: int) -> None:
    """The functions with the most calls."""
    for kind, counter in calls._asdict().items():
        if number:
            print(f"{title}, {kind}", file=sys.stderr)
        for name, count in counter.most_common(number):
            print(f"  {count / messages:8.2f} {name}", file=sys.stderr)


if __name__ == "__main__":
    main()

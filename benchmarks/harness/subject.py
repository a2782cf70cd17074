"""The broker that is measured: ours by default, Apache Kafka or one that already runs, and what it costs."""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.apache import JVM_FLAGS
from benchmarks.harness.broker import kctl_broker
from tests.peers.apache_kafka import apache_kafka_process

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Subject:
    """A serving broker on this machine."""

    bootstrap: str
    pid: int

    def cpu_s(self) -> float:
        """Processor seconds it has used since its start, in user and kernel mode, with all threads and processes.

        Processes that it has started count while they run, and after their end.
        """
        return sum(_cpu_s(pid) for pid in self._pids())

    def resident_mb(self) -> float:
        """Resident memory now, in units of 10^6 bytes, with the processes that it has started."""
        return sum(_resident_mb(pid) for pid in self._pids())

    def compiler_cpu_s(self) -> float:
        """Processor seconds of the threads of a JVM that compile; 0 for other programs."""
        total_s = 0.0
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # It has ended meanwhile.
                if (thread / "comm").read_text().startswith(("C1 Comp", "C2 Comp")):
                    total_s += _cpu_s(f"{self.pid}/task/{thread.name}")
        return total_s

    def _pids(self) -> list[int]:
        """The broker and the processes that it has started."""
        pids = [self.pid]
        for pid in pids:
            with contextlib.suppress(OSError):  # A thread or a process has ended meanwhile.
                for task in Path(f"/proc/{pid}/task").iterdir():
                    pids += map(int, (task / "children").read_text().split())
        return pids


def _cpu_s(pid: int | str) -> float:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, after_name[11:15])) / TICKS_PER_S  # User and system, own and of children that have ended.


def _resident_mb(pid: int) -> float:
    try:
        kib = Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[:1]
    except OSError:
        return 0.0
    return int(kib[0]) * 1024 / 1e6 if kib else 0.0


def parser(description: str | None, *, runs: int) -> argparse.ArgumentParser:
    """Options that every benchmark of a broker has."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=runs, help="runs of each measurement; medians are reported")
    options.add_argument("--bootstrap-server", metavar="HOST:PORT", help="measure this broker; needs --pid")
    options.add_argument("--pid", type=int, help="its process, for processor time and memory")
    options.add_argument("--apache", metavar="VERSION", help="start Apache Kafka of this version instead of ours")
    options.add_argument("--data-dir", type=Path, help="where our broker keeps its data; default: a temporary folder")
    options.add_argument("--no-pin", action="store_true", help="do not give broker and client a processor each")
    return options


@contextlib.contextmanager
def subject(options: argparse.Namespace) -> Iterator[Subject]:
    """The broker that was named, or one that is freshly started; alone on the first processor unless disabled."""
    with contextlib.ExitStack() as stack:
        if options.bootstrap_server:
            if options.pid is None:
                raise SystemExit("--bootstrap-server needs --pid")
            broker = Subject(options.bootstrap_server, options.pid)
        elif options.apache:
            folder = options.data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-bench-")))
            theirs = apache_kafka_process(options.apache, folder / "broker", jvm_flags=JVM_FLAGS)
            bootstrap, process = stack.enter_context(theirs)
            broker = Subject(bootstrap, process.pid)
        else:
            folder = options.data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-bench-")))
            handle = stack.enter_context(kctl_broker(folder / "broker"))
            broker = Subject(handle.bootstrap, handle.pid)
        if not options.no_pin:
            pin(broker.pid)
        yield broker


def pin(*broker_pids: int) -> None:
    """The first processor for the brokers, the others for this process and its children; nothing if there is one."""
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        return
    for broker_pid in broker_pids:
        for thread in Path(f"/proc/{broker_pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), processors[:1])
    os.sched_setaffinity(0, processors[1:])  # and with it the client, which this process starts


@contextlib.contextmanager
def unpinned(broker_pid: int) -> Iterator[None]:
    """Meanwhile this process, and what it starts, may use the processors of the broker too."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, own | os.sched_getaffinity(broker_pid))
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)

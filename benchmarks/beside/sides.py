"""The brokers that are measured beside each other: one of kctl and one of each version of Apache Kafka, or three."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.apache import JVM_FLAGS
from benchmarks.harness.broker import kctl_broker
from benchmarks.harness.subject import Subject
from tests.peers import apache_kafka, apache_zookeeper
from tests.peers.embedded_zookeeper import embedded_zookeeper

KCTL = "kctl"
GROWING_HEAP = " without -Xms"
PROPERTIES = {"log.cleaner.backoff.ms": "100", "auto.create.topics.enable": "false"}
REPLICATED = {"offsets.topic.replication.factor": "3", "auto.leader.rebalance.enable": "false"}


@dataclass(frozen=True, slots=True)
class Side:
    """Running brokers of one program; broker 0 comes first."""

    name: str
    brokers: tuple[Subject, ...]
    logs: Path
    """The log directory of broker 0."""
    start_s: float
    """From the start of the process of broker 0 until it had a controller, without ZooKeeper."""

    @property
    def bootstrap(self) -> str:
        """The address of broker 0, which leads the partitions."""
        return self.brokers[0].bootstrap

    def cpu_s(self) -> float:
        """Processor time of all brokers."""
        return sum(broker.cpu_s() for broker in self.brokers)

    def compiler_cpu_s(self) -> float:
        """Processor time of all brokers for the compilation of code while they run."""
        return sum(broker.compiler_cpu_s() for broker in self.brokers)


def version_of(side: str) -> str:
    """The version of Apache Kafka in the name of a side."""
    return side.removeprefix("Apache ").removesuffix(GROWING_HEAP)


def jvm_flags(side: str) -> list[str]:
    """Those of Kafka's start script; a side whose name says so has no -Xms, so that its heap grows as it needs."""
    return [flag for flag in JVM_FLAGS if not (side.endswith(GROWING_HEAP) and flag.startswith("-Xms"))]


@contextlib.contextmanager
def one_broker(name: str, folder: Path) -> Iterator[Side]:
    """A side with a single broker."""
    with contextlib.ExitStack() as stack:
        if name == KCTL:
            started = time.perf_counter()
            ours = stack.enter_context(kctl_broker(folder / "data", properties=PROPERTIES))
            taken_s = time.perf_counter() - started
            yield Side(name, (Subject(ours.bootstrap, ours.pid),), ours.logs_dir, taken_s)
            return
        zookeeper = _apache_zookeeper(stack, name, folder)
        started = time.perf_counter()
        bootstrap, process = stack.enter_context(
            apache_kafka.apache_kafka_process(
                version_of(name), folder / "data", zookeeper=zookeeper, properties=PROPERTIES, jvm_flags=jvm_flags(name)
            )
        )
        taken_s = time.perf_counter() - started
        yield Side(name, (Subject(bootstrap, process.pid),), folder / "data" / "logs", taken_s)


@contextlib.contextmanager
def three_brokers(name: str, folder: Path) -> Iterator[Side]:
    """A side with brokers 0, 1 and 2, for versions with ZooKeeper."""
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        zookeeper = (
            stack.enter_context(embedded_zookeeper(folder / "zookeeper")).connect
            if name == KCTL
            else _apache_zookeeper(stack, name, folder)
        )
        pool = stack.enter_context(ThreadPoolExecutor(3))
        entered: list[contextlib.AbstractContextManager[object]] = []
        stack.callback(lambda: list(pool.map(lambda broker: broker.__exit__(None, None, None), entered)))

        def start(number: int) -> Subject:
            properties = {**PROPERTIES, **REPLICATED, "broker.id": str(number)}
            data = folder / f"broker-{number}"
            if name == KCTL:
                ours = kctl_broker(data, zookeeper=zookeeper, properties=properties)
                handle = ours.__enter__()
                entered.append(ours)
                return Subject(handle.bootstrap, handle.pid)
            theirs = apache_kafka.apache_kafka_process(
                version_of(name), data, zookeeper=zookeeper, properties=properties, jvm_flags=jvm_flags(name)
            )
            bootstrap, process = theirs.__enter__()
            entered.append(theirs)
            return Subject(bootstrap, process.pid)

        brokers = tuple(pool.map(start, range(3)))
        yield Side(name, brokers, folder / "broker-0" / "logs", 0.0)


def has_zookeeper(name: str) -> bool:
    """Whether the side is kctl or a version of Apache Kafka with ZooKeeper."""
    return name == KCTL or int(version_of(name).partition(".")[0]) <= apache_kafka.LAST_MAJOR_WITH_ZOOKEEPER


def _apache_zookeeper(stack: contextlib.ExitStack, name: str, folder: Path) -> str | None:
    if not has_zookeeper(name):
        return None
    return stack.enter_context(apache_zookeeper.apache_zookeeper(folder / "zookeeper"))

"""Measures the cost of replicas, and whether a follower keeps up with its leader.

    python -m benchmarks.replication [--runs 3] [--messages 400000]

Three brokers and the client share the machine.  The same 1 KB messages go to a topic of one replica with acks=1 and to
one of three with acks=all, in turns; the ratio is that of the two medians.  Then two replicas take with acks=1 what the
client sends, first 200 MB/s and then all that it can, and the follower is looked at: how far it is behind when
the last message is acknowledged, and how fast it has copied everything.  In the end the follower is held while the
leader takes as much again, and then let go: how fast does it catch up with a leader that has nothing else to do?

With fewer processors than processes the figures say what is shared, not what is needed: the processor seconds per GB of
leader and follower do not depend on that.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.harness import librdkafka
from benchmarks.harness.broker import kctl_broker
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.kctl_broker import KctlBroker
from tests.peers.probe import wait_until

MESSAGE_BYTES = 1024
PER_SECOND = 200_000_000 // MESSAGE_BYTES
TIMEOUT_S = 300


class Cluster:
    """Brokers 0, 1 and 2."""

    def __init__(self, brokers: list[KctlBroker]) -> None:
        self.brokers = brokers
        self.bootstrap = ",".join(broker.bootstrap for broker in brokers)
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})

    @contextlib.contextmanager
    def topic(self, name: str, *replicas: int) -> Iterator[str]:
        """A topic of one partition, which the first of the replicas leads; it is deleted again."""
        self._admin.create_topics([NewTopic(name, 1, replica_assignment=[list(replicas)])])[name].result(TIMEOUT_S)
        yield name
        self._admin.delete_topics([name])[name].result(TIMEOUT_S)

    def size(self, topic: str, broker: int) -> int:
        """Bytes of the topic that the broker has."""
        folder = self.brokers[broker].logs_dir / f"{topic}-0"
        return sum(path.stat().st_size for path in folder.glob("*.log"))

    def cpu_s(self, broker: int) -> float:
        return Subject(self.bootstrap, self.brokers[broker].pid).cpu_s()


@contextlib.contextmanager
def three_brokers() -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-bench-")))
        connect = stack.enter_context(embedded_zookeeper(folder / "zookeeper")).connect
        brokers = [
            stack.enter_context(
                kctl_broker(folder / f"{number}", zookeeper=connect, properties={"broker.id": f"{number}"})
            )
            for number in range(3)
        ]
        yield Cluster(brokers)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3, help="runs of each measurement; medians are reported")
    options.add_argument("--messages", type=int, default=400_000, help="messages of 1 KB in each run")
    chosen = options.parse_args()
    alone: list[float] = []
    replicated: list[float] = []
    followed: dict[str, list[float]] = {}
    with three_brokers() as cluster:
        for run in range(chosen.runs):
            alone.append(produce(cluster, f"alone-{run}", (0,), acks=1, count=chosen.messages))
            replicated.append(produce(cluster, f"replicated-{run}", (0, 1, 2), acks=-1, count=chosen.messages))
            measured = {
                **follow(cluster, f"paced-{run}", count=chosen.messages, per_second=PER_SECOND, prefix="paced: "),
                **follow(cluster, f"followed-{run}", count=chosen.messages),
                "catching up": catch_up(cluster, f"held-{run}", count=chosen.messages),
            }
            for name, value in measured.items():
                followed.setdefault(name, []).append(value)
    ratio = statistics.median(replicated) / statistics.median(alone)
    figures = [
        Figure("acks=1, one replica", "MB/s", alone),
        Figure("acks=all, three replicas", "MB/s", replicated),
        Figure("acks=all by acks=1", "times", [ratio]),
        *(
            Figure(name, UNITS[name.removeprefix("paced: ")], values, GOALS.get(name, ""))
            for name, values in followed.items()
        ),
    ]
    report(
        "replication", figures, client=librdkafka.client_name(), runs=chosen.runs, megabytes=megabytes(chosen.messages)
    )


UNITS = {
    "leader takes": "MB/s",
    "follower copies": "MB/s",
    "follower behind at the end": "MB",
    "leader's processor": "s/GB",
    "follower's processor": "s/GB",
    "catching up": "MB/s",
}
GOALS = {"paced: follower copies": "as much as the leader takes, 200 MB/s"}


def megabytes(count: int) -> int:
    return count * MESSAGE_BYTES // 1_000_000


def produce(cluster: Cluster, topic: str, replicas: tuple[int, ...], *, acks: int, count: int) -> float:
    """MB/s."""
    with cluster.topic(topic, *replicas):
        took_s = librdkafka.produce(cluster.bootstrap, topic, count=count, size=MESSAGE_BYTES, acks=acks)
    return count * MESSAGE_BYTES / 1e6 / took_s


def follow(
    cluster: Cluster, topic: str, *, count: int, per_second: int | None = None, prefix: str = ""
) -> dict[str, float]:
    """Broker 1 follows broker 0 while the client sends as fast as it can or may."""
    with cluster.topic(topic, 0, 1):
        cpu_before_s = [cluster.cpu_s(broker) for broker in (0, 1)]
        took_s = librdkafka.produce(cluster.bootstrap, topic, count=count, size=MESSAGE_BYTES, per_second=per_second)
        acknowledged = time.perf_counter()
        held = cluster.size(topic, 0)
        behind = held - cluster.size(topic, 1)
        wait_until(lambda: cluster.size(topic, 1) >= held, what="the follower has all", timeout_s=TIMEOUT_S)
        # The client's start and end are no time of the follower's.
        copied_s = took_s + (time.perf_counter() - acknowledged if behind else 0.0)
        cpu_s = [cluster.cpu_s(broker) - before for broker, before in zip((0, 1), cpu_before_s, strict=True)]
    gigabytes = count * MESSAGE_BYTES / 1e9
    figures = {
        "leader takes": gigabytes * 1000 / took_s,
        "follower copies": gigabytes * 1000 / copied_s,
        "follower behind at the end": behind / 1e6,
        "leader's processor": cpu_s[0] / gigabytes,
        "follower's processor": cpu_s[1] / gigabytes,
    }
    return {prefix + name: value for name, value in figures.items()}


def catch_up(cluster: Cluster, topic: str, *, count: int) -> float:
    """MB/s of broker 1, which was held while broker 0 took everything."""
    follower = cluster.brokers[1].pid
    with cluster.topic(topic, 0, 1):
        os.kill(follower, signal.SIGSTOP)
        try:
            librdkafka.produce(cluster.brokers[0].bootstrap, topic, count=count, size=MESSAGE_BYTES)
            held = cluster.size(topic, 0)
            missing = held - cluster.size(topic, 1)
        finally:
            os.kill(follower, signal.SIGCONT)
        started = time.perf_counter()
        wait_until(lambda: cluster.size(topic, 1) >= held, what="the follower has all", timeout_s=TIMEOUT_S)
        return missing / 1e6 / (time.perf_counter() - started)


if __name__ == "__main__":
    main()

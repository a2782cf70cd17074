"""Kills members of groups of four clients at random while records are written, and checks what was read.

    python -m tests.faults.mixed_groups [--seeds 10] [--assignor NAME] [--java]

The assignor "consumer" is the consumer protocol (KIP-848) on a broker of Apache Kafka 4, in a group that also has a
member of the classic protocol; the others run on a broker of kctl.

All records are read, and those that are read twice are no more than members have read without a commit: ten for each
member that was killed and for each rebalance, which can come between reading and the commit.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from kctl.client import Producer, ProducerConfig
from kctl.testing.brokers.broker_process import BrokerProcess
from tests.faults.group_member import CONSUMER_PROTOCOL, RECORDS_MAX, SESSION_MS
from tests.integration.jvm.members import Host
from tests.peers import probe
from tests.peers.apache_kafka import NEWEST_BROKER, TOOLS_FOR_NEWEST, apache_kafka

PARTITIONS = 6
COUNT = 300
"""Records that are written before each kill."""
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
CLIENTS = {
    "range": ("kctl", "confluent", "aiokafka"),
    "roundrobin": ("kctl", "confluent", "aiokafka"),
    "sticky": ("kctl", "kctl", "aiokafka"),
    "cooperative-sticky": ("kctl", "kctl", "confluent"),
    CONSUMER_PROTOCOL: ("kctl", "confluent", "kctl-classic"),
}
"""The clients that have each assignor; Java has all of them."""
JAVA = {
    "range": "Range",
    "roundrobin": "RoundRobin",
    "sticky": "Sticky",
    "cooperative-sticky": "CooperativeSticky",
    CONSUMER_PROTOCOL: "Consumer",
}
TIMEOUT_S = 120


class Group:
    """The members of one group, and all that they have read."""

    def __init__(self, bootstrap: str, topic: str, assignor: str, folder: Path, chance: random.Random) -> None:
        """The group has the name of the topic."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._assignor = assignor
        self._folder = folder
        self._chance = chance
        self._members: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._java: Host | None = None
        self.joins = 0

    def join(self, client: str) -> None:
        self.joins += 1
        words = [sys.executable, "-m", "tests.faults.group_member", client, self._bootstrap, *[self._topic] * 2]
        log = self._folder / f"{self.joins}.read"
        with log.open("wb") as output, log.with_suffix(".errors").open("wb") as errors:
            process = subprocess.Popen([*words, self._assignor], stdout=output, stderr=errors)
        self._members.append((client, process))

    def join_java(self) -> None:
        self.joins += 1
        log = self._folder / "java.log"
        self._java = Host(TOOLS_FOR_NEWEST, self._bootstrap, self._topic, log, session_timeout_ms=SESSION_MS)
        self._java.join(JAVA[self._assignor], f"java-{self.joins}", group=self._topic)

    def replace_one(self) -> None:
        """Kills a member at random; another one of the same client comes."""
        index = self._chance.randrange(len(self._members) + (self._java is not None))
        if index == len(self._members) and self._java is not None:
            self._java.kill()
            self.join_java()
            return
        client, process = self._members.pop(index)
        process.kill()
        process.wait()
        self.join(client)

    def close(self) -> None:
        for _, process in self._members:
            process.kill()
            process.wait()
        if self._java is not None:
            self._java.kill()

    def read(self) -> Counter[tuple[int, int]]:
        """How often each record was read.  Raises AssertionError if a member has read offsets that do not ascend."""
        found: Counter[tuple[int, int]] = Counter()
        for log in sorted(self._folder.glob("*.read")):
            for line in log.read_text().split("\n")[:-1]:
                partition, offset = map(int, line.split())
                found[partition, offset] += 1
        if self._java is not None:
            for event in self._java.events():
                if event.kind == "read":
                    partition, first, last = event.numbers
                    found.update((partition, offset) for offset in range(first, last + 1))
        return found


def play(
    assignor: str,
    seed: int,
    folder: Path,
    *,
    kills: int = 3,
    has_java: bool = False,
    bootstrap: str | None = None,
    clients: Sequence[str] = (),
) -> str:
    """One run, on a broker of its own unless `bootstrap` names one; returns what was read, in words.

    `clients` are others than the usual ones.
    """
    with contextlib.ExitStack() as running:
        if bootstrap is None and assignor == CONSUMER_PROTOCOL:
            bootstrap = running.enter_context(apache_kafka(NEWEST_BROKER, folder / "broker"))
        elif bootstrap is None:
            broker = BrokerProcess(folder / "broker", PROPERTIES)
            broker.start()
            running.callback(broker.stop)
            bootstrap = broker.bootstrap_servers
        names = clients or CLIENTS[assignor]
        return _play(bootstrap, assignor, seed, folder, kills=kills, has_java=has_java, clients=names)


def _play(
    bootstrap: str, assignor: str, seed: int, folder: Path, *, kills: int, has_java: bool, clients: Sequence[str]
) -> str:
    chance = random.Random(f"{seed} {assignor}")
    topic = f"readers-{assignor}-{seed}-{uuid.uuid4().hex[:8]}"
    group = Group(bootstrap, topic, assignor, folder, chance)
    written: set[tuple[int, int]] = set()
    try:
        admin = AdminClient({"bootstrap.servers": bootstrap, "broker.address.family": "v4"})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
        with Producer(ProducerConfig(bootstrap_servers=bootstrap)) as producer:
            for number in range(kills + 1):
                sent = [producer.send(topic, "x", partition=index % PARTITIONS) for index in range(COUNT)]
                producer.flush()
                written.update((future.result(0).partition, future.result(0).offset) for future in sent)
                if number == 0:
                    for client in clients:
                        group.join(client)
                    if has_java:
                        group.join_java()
                else:
                    group.replace_one()
                enough = chance.randrange(COUNT // 2, COUNT) + number * COUNT
                probe.wait_until(
                    lambda count=enough: len(group.read()) >= count,  # type: ignore[misc]
                    what=f"{enough} records are read",
                    timeout_s=TIMEOUT_S,
                )
        probe.wait_until(lambda: set(group.read()) == written, what="all records are read", timeout_s=TIMEOUT_S)
        read = group.read()
        doubled = sum(read.values()) - len(read)
        assert doubled <= RECORDS_MAX * (kills + 2 * group.joins) * len(clients), f"{doubled} read again"
        return f"{assignor} seed={seed}: {len(read)} of {len(written)} read, {doubled} again, {kills} members killed"
    finally:
        group.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--assignor", choices=CLIENTS)
    options.add_argument("--java", action="store_true")
    chosen = options.parse_args()
    for seed in range(chosen.seeds):
        for assignor in [chosen.assignor] if chosen.assignor else CLIENTS:
            with tempfile.TemporaryDirectory() as folder:
                sys.stdout.write(f"{play(assignor, seed, Path(folder), has_java=chosen.java)}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()

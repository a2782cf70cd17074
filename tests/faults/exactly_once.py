"""Kills workers that read a topic and write another one in transactions, and checks that each record was written once.

    python -m tests.faults.exactly_once [--protocol consumer] [--count 7200] [--kills 20] [--seed 0]

The workers are a group of three.  Each one that is killed is replaced by one with its transactional id, which aborts
the transaction that was open.  Records of a partition are written to the partition of the same number: there they must
be whole and in their order.  The classic protocol is played on a broker of kctl, the consumer protocol (KIP-848) on
Apache Kafka 4.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any, get_args

from kctl.admin import AdminClient, AdminConfig, NewTopic
from kctl.client import (
    CommitFailed,
    Consumer,
    ConsumerConfig,
    ConsumerRecord,
    Producer,
    ProducerConfig,
    TopicPartition,
)
from kctl.client.consuming.membership.member import GroupProtocol
from kctl.testing.brokers.broker_process import BrokerProcess
from tests.faults.mixed_groups import PROPERTIES
from tests.peers import probe
from tests.peers.apache_kafka import NEWEST_BROKER, apache_kafka

PARTITIONS = 6
WORKERS = 3
RECORDS_MAX = 20
"""In one transaction."""
TIMEOUT_S = 180


def work(bootstrap: str, source: str, target: str, instance: str, protocol: str) -> None:
    """The worker of examples/clients/exactly_once.py, with small transactions."""
    settings: dict[str, Any] = {"group_protocol": protocol}
    if protocol == "classic":
        settings |= {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 500}
    reading = ConsumerConfig(
        bootstrap_servers=bootstrap,
        group_id=target,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_poll_records=RECORDS_MAX,
        **settings,
    )
    writing = ProducerConfig(bootstrap_servers=bootstrap, transactional_id=f"{target}-{instance}")
    with Producer(writing) as producer, Consumer(reading) as consumer:
        consumer.subscribe([source])
        while True:
            records = consumer.poll(500)
            if not records:
                continue
            try:
                with producer.transaction():
                    for record in records:
                        producer.send(target, record.value, partition=record.partition)
                    offsets = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
                    producer.send_offsets(consumer.group_metadata(), offsets)
            except CommitFailed:
                seek_back(consumer, records)


def seek_back(consumer: Consumer[Any, Any], records: list[ConsumerRecord[Any, Any]]) -> None:
    """Read the records of an aborted transaction again, of the partitions that are left."""
    first = {TopicPartition(record.topic, record.partition): record.offset for record in reversed(records)}
    for tp in consumer.assignment & first.keys():
        consumer.seek(tp, first[tp])


class Workers:
    """The processes of the group."""

    def __init__(self, words: list[str], protocol: str, folder: Path, chance: random.Random) -> None:
        self._words = words
        self._protocol = protocol
        self._folder = folder
        self._chance = chance
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._started = 0

    def start(self, instance: int) -> None:
        self._started += 1
        words = [sys.executable, "-m", "tests.faults.exactly_once", "work", *self._words]
        with (self._folder / f"worker-{self._started}.log").open("wb") as log:
            command = [*words, str(instance), self._protocol]
            self._processes[instance] = subprocess.Popen(command, stdout=log, stderr=log)

    def replace_one(self) -> None:
        """Kills a worker at random; another one with its transactional id comes."""
        instance = self._chance.randrange(WORKERS)
        self._end(self._processes.pop(instance))
        self.start(instance)

    def check(self) -> None:
        """Raises AssertionError if a worker has ended by itself."""
        for instance, process in self._processes.items():
            text = "\n".join(log.read_text() for log in sorted(self._folder.glob("worker-*.log")))
            assert process.poll() is None, f"worker {instance}: {text}"

    def close(self) -> None:
        for process in self._processes.values():
            self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()


class Written:
    """The committed records of a topic, by partition, as they are read so far."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        config = ConsumerConfig(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        )
        self.by_partition: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self._consumer = Consumer(config)
        self._consumer.__enter__()
        self._consumer.assign([TopicPartition(topic, number) for number in self.by_partition])

    @property
    def count(self) -> int:
        return sum(map(len, self.by_partition.values()))

    def read(self) -> int:
        """Read what has been written meanwhile; return the number of all."""
        for record in self._consumer.poll(100):
            self.by_partition[record.partition].append(int(record.value))
        return self.count

    def close(self) -> None:
        self._consumer.close()


def play(
    protocol: GroupProtocol, seed: int, folder: Path, *, count: int, kills: int, bootstrap: str | None = None
) -> str:
    """One run, on a broker of its own unless `bootstrap` names one; returns what was written, in words."""
    with contextlib.ExitStack() as running:
        if bootstrap is None and protocol == "consumer":
            bootstrap = running.enter_context(apache_kafka(NEWEST_BROKER, folder / "broker"))
        elif bootstrap is None:
            broker = BrokerProcess(folder / "broker", PROPERTIES)
            broker.start()
            running.callback(broker.stop)
            bootstrap = broker.bootstrap_servers
        source = f"source-{uuid.uuid4().hex[:8]}"
        target = f"target-{source}"
        with AdminClient(AdminConfig(bootstrap_servers=bootstrap)) as admin:
            topics = [NewTopic(name, partitions=PARTITIONS) for name in (source, target)]
            admin.create_topics(topics).require()
        workers = Workers([bootstrap, source, target], protocol, folder, random.Random(seed))
        running.callback(workers.close)
        written = Written(bootstrap, target)
        running.callback(written.close)
        for instance in range(WORKERS):
            workers.start(instance)
        with Producer(ProducerConfig(bootstrap_servers=bootstrap)) as producer:
            for number in range(kills + 1):
                share = range(count * number // (kills + 1), count * (number + 1) // (kills + 1))
                for value in share:
                    producer.send(source, str(value), partition=value % PARTITIONS)
                producer.flush()

                def has_enough(least: int = share.start + len(share) // 2) -> bool:
                    workers.check()
                    return written.read() >= least

                probe.wait_until(has_enough, what="half of the records are written", timeout_s=TIMEOUT_S)
                if number < kills:
                    workers.replace_one()
        probe.wait_until(lambda: written.read() >= count, what="all records are written", timeout_s=TIMEOUT_S)
        workers.close()
        written.read()
        for partition, values in written.by_partition.items():
            assert values == list(range(partition, count, PARTITIONS)), f"partition {partition}"
        return f"{protocol} seed={seed}: {written.count} of {count} written once, {kills} workers killed"


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        work(*sys.argv[2:])
        return
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--protocol", choices=get_args(GroupProtocol), default="consumer")
    options.add_argument("--count", type=int, default=7_200)
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = play(chosen.protocol, chosen.seed, Path(folder), count=chosen.count, kills=chosen.kills)
        sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()

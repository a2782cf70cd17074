"""Chained TransactionalMessageCopier of Apache Kafka copy a topic exactly once despite kills."""

from __future__ import annotations

import itertools
import json
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.transactions.conftest import PROPERTIES
from tests.integration.transactions.writing import TIMEOUT_S, producer, read, transact
from tests.peers import apache_kafka, probe
from tests.peers.apache_kafka import OLDEST_JUDGE, TOOLS_FOR_NEWEST, java_command
from tests.peers.kctl_broker import KctlBroker
from tests.peers.process import Process
from tests.peers.three_brokers import forked_cluster

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(800)]

COUNT = 1_000
VALUES = [b"%05d" % number for number in range(COUNT)]
PORTION = 150
"""Number of records for which a copier is started: it may stop at the end of its input, and each start
takes a second.
"""
ROUNDS = 6
COPY_TIMEOUT_S = 250


class Copier:
    """Reads one topic, writes another, and commits its offsets in the same transactions."""

    def __init__(self, brokers: Brokers, version: str, source: str, target: str, log: Path) -> None:
        options = {
            "broker-list": brokers.bootstrap,
            "input-topic": source,
            "input-partition": "0",
            "output-topic": target,
            "consumer-group": f"copies-{source}",
            "transactional-id": f"copies-{source}",
            "transaction-size": "20",
            "transaction-timeout": "5000",
            "max-messages": str(COUNT),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        words += ["--enable-random-aborts", "--group-mode", "--use-group-metadata"]
        self._command = java_command(version, "org.apache.kafka.tools.TransactionalMessageCopier", words)
        self._brokers = brokers
        self._is_old = version == OLDEST_JUDGE
        self._log = log
        self._seen = 0
        """The end of its input when it was started last."""
        self._written = 0
        """The end of its output when that was read last."""
        self._process: Process | None = None
        self.target = target
        self.source = source
        self.is_done = False

    @property
    def is_at_work(self) -> bool:
        return self._process is not None and self._process.is_running

    def tend(self, *, is_source_complete: bool) -> None:
        """Starts it if it has records to copy; restarts it if it has failed."""
        if is_source_complete and not self.is_done and self._has_all():
            self.is_done = True
            self.kill()
        if self.is_done or self.is_at_work:
            return
        has_failed = self._process is not None and self._process.stop() != 0
        end = self._brokers.end_of(self.source)
        if is_source_complete or has_failed or end >= self._seen + PORTION:
            self._seen = end
            self._process = Process(f"copier of {self.source}", self._command, log=self._log)

    def _has_all(self) -> bool:
        end = self._brokers.end_of(self.target)
        if end == self._written:
            return False
        self._written = end
        return end >= COUNT and len(read(self._brokers.bootstrap, self.target)) >= COUNT

    def restart(self, chance: random.Random) -> None:
        """Kills it by kill -9 or SIGTERM while it copies; `tend` restarts it."""
        assert self._process is not None
        # New clients stay in their group for 45 s after a kill, so they leave it.
        self._process.stop(chance.choice([signal.SIGKILL, signal.SIGTERM]) if self._is_old else signal.SIGTERM)

    def kill(self) -> None:
        if self._process is not None:
            self._process.stop(signal.SIGKILL)


class Brokers:
    """Three brokers, one of which may be killed and started again."""

    def __init__(self, brokers: Sequence[KctlBroker]) -> None:
        self._brokers = brokers
        self.bootstrap = ",".join(broker.bootstrap for broker in brokers)
        common: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap,
            "broker.address.family": "v4",
            "log_level": 0,
        }
        self._admin = AdminClient(common)
        self._consumer = Consumer({**common, "group.id": "ends"})

    def create_topic(self, topic: str) -> None:
        self._admin.create_topics([NewTopic(topic, 1, len(self._brokers))])[topic].result(TIMEOUT_S)

    def end_of(self, topic: str) -> int:
        """The log end offset, once the partition has a leader."""
        ends: list[int] = []

        def holds() -> bool:
            try:
                ends.append(self._consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)[1])
            except KafkaException:
                with suppress(KafkaException):
                    self._consumer.list_topics(topic, TIMEOUT_S)
            return bool(ends)

        probe.wait_until(holds, what=f"the end of {topic}", timeout_s=COPY_TIMEOUT_S, interval_s=0.2)
        return ends[0]

    def close(self) -> None:
        self._consumer.close()

    def kill_one(self, chance: random.Random) -> None:
        """kill -9, and a restart."""
        broker = chance.choice(self._brokers)
        broker.kill9()
        broker.start()


@pytest.mark.parametrize(
    ("count", "served_release"),
    [(2, None), *(pytest.param(5, release, marks=pytest.mark.matrix) for release in (None, "4.3"))],
)
def test_a_chain_copies_exactly_once_while_copiers_and_brokers_are_killed(
    count: int, served_release: str | None, tmp_path: Path
) -> None:
    """4.3 is with transaction.version 2: the newest copiers rely on brokers to add partitions (KIP-890)."""
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    chance = random.Random(5)
    topics = [f"chain-{number}" for number in range(count + 1)]
    properties = PROPERTIES if served_release is None else PROPERTIES | {"served.release": served_release}
    with forked_cluster(tmp_path, lambda _: properties) as started, closing(Brokers(started)) as brokers:
        for topic in topics:
            brokers.create_topic(topic)
        transact(producer(brokers.bootstrap, topics[0]), topics[0], VALUES)
        versions = itertools.cycle([OLDEST_JUDGE, TOOLS_FOR_NEWEST])
        copiers = [
            Copier(brokers, version, source, target, tmp_path / f"{source}.log")
            for version, (source, target) in zip(versions, itertools.pairwise(topics), strict=False)
        ]
        try:
            interrupted = 0
            for number in range(ROUNDS):
                _wait_for_more(brokers, copiers)
                at_work = [copier for copier in copiers if copier.is_at_work]
                if number % 3 == 1:
                    brokers.kill_one(chance)
                elif at_work:
                    chance.choice(at_work).restart(chance)
                    interrupted += 1
            _wait_for(lambda: all(copier.is_done for copier in copiers), copiers)
        except TimeoutError as error:
            error.add_note(_logs(tmp_path))
            raise
        finally:
            for copier in copiers:
                copier.kill()
        assert interrupted >= ROUNDS // 3, "the copiers were running when they were killed"
        for topic in topics[1:]:
            assert read(brokers.bootstrap, topic) == VALUES, "each once, none lost"


def _wait_for_more(brokers: Brokers, copiers: list[Copier]) -> None:
    """Waits until more transactions were written, unless all records are copied."""
    goal = sum(brokers.end_of(copier.target) for copier in copiers) + PORTION

    def holds() -> bool:
        return sum(brokers.end_of(copier.target) for copier in copiers) >= goal or copiers[-1].is_done

    _wait_for(holds, copiers)


def _wait_for(claim: Callable[[], bool], copiers: list[Copier]) -> None:
    def holds() -> bool:
        is_source_complete = True
        for copier in copiers:
            copier.tend(is_source_complete=is_source_complete)
            is_source_complete = copier.is_done
        return claim()

    probe.wait_until(holds, what="a copy", timeout_s=COPY_TIMEOUT_S, interval_s=0.3)


def _logs(folder: Path) -> str:
    return json.dumps({file.name: file.read_text(errors="replace")[-2_000:] for file in folder.glob("*.log")}, indent=1)

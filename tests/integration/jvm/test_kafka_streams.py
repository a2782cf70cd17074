"""An application of Kafka Streams 4.3.1 with group.protocol=streams and exactly_once_v2, whose instances are killed."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from kctl.client import AsyncConsumer, AsyncProducer, ConsumerConfig, ProducerConfig
from tests.integration.clients.confluent import Confluent
from tests.peers.apache_kafka import streams_command
from tests.peers.kctl_broker import kctl_broker
from tests.peers.probe import wait_until
from tests.peers.process import Process

pytestmark = [pytest.mark.jvm, pytest.mark.matrix, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("StreamsApplication.java")
APPLICATION = "words"
PARTITIONS = 4
LINES = 200
PROPERTIES = {
    "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
    "group.streams.heartbeat.interval.ms": "200",
    "group.streams.session.timeout.ms": "4000",
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.num.standby.replicas": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
}
TIMEOUT_S = 120


class Application:
    """The instances of the application."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self.instances: list[Process] = []
        self._started = 0

    def start(self) -> None:
        self._started += 1
        name = f"instance-{self._started}"
        arguments = [self._bootstrap, APPLICATION, "lines", "counts", "2", str(self._folder / name)]
        log = self._folder / f"{name}.log"
        self.instances.append(Process(name, streams_command(PROGRAM, arguments), log=log))

    def kill(self) -> None:
        self.instances.pop(0).stop(signal.SIGKILL)

    def wait_until_running(self) -> None:
        def are_running() -> bool:
            return all(instance.log_text.rstrip().endswith("RUNNING") for instance in self.instances)

        wait_until(are_running, what="the application", timeout_s=TIMEOUT_S)

    def stop(self) -> None:
        for instance in self.instances:
            instance.stop()


async def write(bootstrap: str, chance: random.Random) -> Counter[str]:
    """Writes lines, and returns how often each word is in them."""
    words: Counter[str] = Counter()
    async with AsyncProducer(ProducerConfig(bootstrap_servers=bootstrap)) as producer:
        for number in range(LINES):
            line = [f"word-{chance.randrange(30)}" for _ in range(5)]
            words.update(line)
            await producer.send("lines", " ".join(line).encode(), key=b"%d" % number)
    return words


async def read_counts(bootstrap: str, expected: int) -> dict[str, list[int]]:
    """The committed counts of each word in order."""
    counts: defaultdict[str, list[int]] = defaultdict(list)
    config = ConsumerConfig(
        bootstrap_servers=bootstrap, group_id="check", isolation_level="read_committed", auto_offset_reset="earliest"
    )
    async with AsyncConsumer(config) as consumer, asyncio.timeout(TIMEOUT_S):
        await consumer.subscribe(["counts"])
        while sum(map(len, counts.values())) < expected:
            for record in await consumer.poll(timeout_ms=1_000):
                counts[(record.key or b"").decode()].append(int.from_bytes(record.value or b"", "big"))
    return counts


def expected_counts(parts: Sequence[Counter[str]]) -> dict[str, list[int]]:
    total: Counter[str] = sum(parts, Counter())
    return {word: list(range(1, count + 1)) for word, count in total.items()}


def test_each_word_is_counted_once_though_instances_and_the_broker_are_killed(tmp_path: Path) -> None:
    chance = random.Random(7)
    with kctl_broker(tmp_path / "data", properties=PROPERTIES) as broker:
        client = Confluent(broker.bootstrap)
        for topic in ("lines", "counts"):
            client.create_topic(topic, PARTITIONS)
        application = Application(broker.bootstrap, tmp_path)
        try:
            application.start()
            application.start()
            application.wait_until_running()
            parts = [asyncio.run(write(broker.bootstrap, chance))]
            application.kill()
            parts.append(asyncio.run(write(broker.bootstrap, chance)))
            application.start()
            application.wait_until_running()
            broker.kill9()
            broker.start()
            parts.append(asyncio.run(write(broker.bootstrap, chance)))
            application.kill()
            application.start()
            parts.append(asyncio.run(write(broker.bootstrap, chance)))
            expected = expected_counts(parts)
            counts = asyncio.run(read_counts(broker.bootstrap, sum(map(len, expected.values()))))
        finally:
            application.stop()
    assert counts == expected

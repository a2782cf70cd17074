"""kctl's broker on partitions that Apache Kafka stored in message formats 0 and 1: clients of all versions
read them.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from tests.integration.clients.confluent import Confluent
from tests.integration.clients.family import TIMEOUT_S
from tests.integration.clients.kafka_python import in_thread, returned
from tests.peers import probe
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import KctlBroker, kctl_broker
from tests.rows import for_rows

pytestmark = pytest.mark.clients

GOLDEN = Path(__file__).parents[2] / "golden" / "storage" / "old-formats"
EXPECTED: dict[str, list[list[Any]]] = json.loads((GOLDEN / "expected.json").read_text())
SMALL_SEGMENTS = {"log.segment.bytes": "4096", "log.index.interval.bytes": "512", "log.retention.ms": "-1"}


@contextlib.contextmanager
def broker_on_kafkas_files(folder: Path, topics: Collection[str], *, was_clean: bool = True) -> Iterator[KctlBroker]:
    """Started after a clean shutdown, or with a full recovery; all partitions have leaders."""
    with kctl_broker(folder / "data", properties=SMALL_SEGMENTS) as broker:
        for topic in topics:
            Confluent(broker.bootstrap).create_topic(topic, 1)
        broker.stop()
        for topic in topics:
            log = broker.logs_dir / f"{topic}-0"
            for path in log.glob("0*"):
                path.unlink()
            for path in (GOLDEN / f"{topic}-0").glob("0*"):
                shutil.copy(path, log)
        if not was_clean:
            (broker.logs_dir / ".kafka_cleanshutdown").unlink()
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})

        def all_have_leaders() -> bool:
            found = admin.list_topics(timeout=TIMEOUT_S).topics
            return all(topic in found and found[topic].partitions[0].leader >= 0 for topic in topics)

        probe.wait_until(all_have_leaders, what="leaders of all partitions", timeout_s=TIMEOUT_S)
        yield broker


@pytest.fixture(scope="module", params=[True, False], ids=["clean", "unclean"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KctlBroker]:
    with broker_on_kafkas_files(tmp_path_factory.mktemp("old"), EXPECTED, was_clean=request.param) as broker:
        yield broker


topics = for_rows("topic", sorted(EXPECTED))


def fits(got: list[list[Any]], topic: str, *, with_times: bool = True) -> bool:
    columns = slice(0, 4)
    expected = [row[columns] if with_times else [row[0], *row[2:]] for row in EXPECTED[topic]]
    return got == expected


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


@topics
@for_rows("api_version", [None, (0, 10, 1), (0, 10), (0, 9)])
def test_kafka_python_reads_old_files_in_every_format(
    broker: KctlBroker, topic: str, api_version: tuple[int, ...] | None
) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        api_version=api_version,
        enable_auto_commit=False,
        consumer_timeout_ms=round(TIMEOUT_S * 1000),
    )
    partition = KafkaPythonPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)

    def read() -> list[list[Any]]:
        got: list[list[Any]] = []
        for record in consumer:
            time = -1 if record.timestamp is None else record.timestamp
            got.append([record.offset, time, text(record.key), text(record.value)])
            if len(got) == len(EXPECTED[topic]):
                break
        consumer.close()
        return got

    got = returned(in_thread(read))
    if api_version == (0, 9):
        assert {row[1] for row in got} == {-1}, "magic 0 has no times"
        assert fits([[row[0], *row[2:]] for row in got], topic, with_times=False)
    else:
        assert fits(got, topic)


@topics
def test_librdkafka_reads_old_files(broker: KctlBroker, topic: str) -> None:
    consumer = Consumer({**Confluent(broker.bootstrap).common, "group.id": "old-files", "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[list[Any]] = []
    while len(got) < len(EXPECTED[topic]):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        kind, time = message.timestamp()
        got.append([message.offset(), time if kind else -1, text(message.key()), text(message.value())])
    consumer.close()
    assert fits(got, topic)


@topics
def test_kctl_consumer_reads_old_files(broker: KctlBroker, topic: str) -> None:
    finished = run_kctl("consume", topic, "--bootstrap-server", broker.bootstrap, "--format", "jsonl")
    assert finished.returncode == 0, finished.stderr
    rows = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [[row["offset"], row["key"], row["value"]] for row in rows] == [[r[0], *r[2:]] for r in EXPECTED[topic]]


@topics
def test_timestamps_are_looked_up_in_old_files(broker: KctlBroker, topic: str) -> None:
    consumer = Consumer({**Confluent(broker.bootstrap).common, "group.id": "old-files"})
    rows = EXPECTED[topic]
    times = sorted({row[1] for row in rows if row[1] >= 0})
    for time in (0, *times[:: max(len(times) // 5, 1)], 2_000_000_000_000):
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, time)], TIMEOUT_S)
        first = next((row[0] for row in rows if row[1] >= time), None)
        assert found.offset == (-1 if first is None else first)
    consumer.close()


def test_new_records_follow_old_formats_and_survive_a_kill(tmp_path: Path) -> None:
    rows = EXPECTED["grown"]
    with broker_on_kafkas_files(tmp_path, ["grown"]) as broker:
        Confluent(broker.bootstrap).produce("grown", [(b"new", b"record")], "lz4")
        broker.kill9()
        broker.start()
        entries = Confluent(broker.bootstrap).consume("grown", len(rows) + 1)
        assert [entry.offset for entry in entries] == list(range(len(rows) + 1))
        assert (entries[-1].key, entries[-1].value) == (b"new", b"record")

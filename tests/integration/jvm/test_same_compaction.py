"""kctl's and Apache Kafka's log cleaners leave the same records of the same files.

Each broker starts on a copy of a log directory with histories by seed: keys that are written again and again,
tombstones, all codecs, idempotent and transactional producers with several epochs.  Then both clean them in the same
passes.  2.8 has the rules that we have, so batch for batch must be the same.  Since 3.1 a batch waits for a time of its
own instead of that of its segment: its readers must get the same records.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.compression import Codec
from kctl.records.header import CONTROL_BIT
from kctl.storage.names import CLEANER_CHECKPOINT
from kctl.storage.segments.transaction_index import AbortedTransaction, parse_transaction_index
from tests.integration.jvm.history import HOUR_MS, LAGS_MS, SEGMENT_BYTES, write_history
from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, OLDEST_JUDGE, apache_kafka
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.kctl_broker import kctl_broker
from tests.peers.probe import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(400)]

SEEDS = range(1, 7)
TIMEOUT_S = 60
AT_ONCE, LATE = "at-once", "late"
RETENTION_MS = {AT_ONCE: 0, LATE: 5 * HOUR_MS}
"""The retention of tombstones in each topic: in the second one until the pass after the next."""
CODECS = {AT_ONCE: tuple(Codec), LATE: (Codec.NONE,)}
"""Tombstones go by the time of their segment, and which segments become one depends on how small codecs make them."""
PROPERTIES = {
    "log.cleanup.policy": "compact",
    "log.segment.bytes": str(SEGMENT_BYTES),
    "log.cleaner.min.cleanable.ratio": "0",
    "log.cleaner.min.compaction.lag.ms": str(100 * HOUR_MS),  # No cleaning until a pass starts.
    "log.cleaner.backoff.ms": "100",
}

Seen = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Cleaned:
    """The contents of the log directory of a broker, for each partition."""

    readers: dict[tuple[str, int, str], Seen]
    """The records that a reader gets, by topic, partition and isolation level."""
    batches: dict[tuple[str, int], Seen]
    """Header and records of each batch in the files.

    Without the base timestamp, which Apache Kafka sets to that of the first remaining record.
    """
    aborted: dict[tuple[str, int], list[AbortedTransaction]]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[list[int]]]]:
    """A log directory, and the offset up to which each pass cleans each partition of the topics in it."""
    folder = tmp_path_factory.mktemp("history")
    now_ms = int(time.time() * 1000)
    return folder, write_history(folder, CODECS, SEEDS, now_ms)


@pytest.fixture(scope="module")
def ours(history: tuple[Path, dict[str, list[list[int]]]], tmp_path_factory: pytest.TempPathFactory) -> Cleaned:
    folder, ends = history
    data = tmp_path_factory.mktemp("ours") / "data"
    shutil.copytree(folder, data / "logs")
    with kctl_broker(data, properties=PROPERTIES) as broker:
        return _clean(broker.bootstrap, data / "logs", ends)


def test_compacted_batches_equal_those_of_apache_kafka(
    history: tuple[Path, dict[str, list[list[int]]]], ours: Cleaned, tmp_path: Path
) -> None:
    theirs = _cleaned_by_apache_kafka(OLDEST_JUDGE, history, tmp_path)

    for partition, batches in theirs.batches.items():
        assert ours.batches[partition] == batches, partition
    assert ours.aborted == theirs.aborted
    assert ours.readers == theirs.readers
    _check_input_coverage(theirs)


@pytest.mark.matrix
def test_compacted_records_equal_those_of_newer_apache_kafka(
    history: tuple[Path, dict[str, list[list[int]]]], ours: Cleaned, tmp_path: Path
) -> None:
    theirs = _cleaned_by_apache_kafka(LAST_WITH_ZOOKEEPER, history, tmp_path)
    for (topic, partition, isolation), seen in theirs.readers.items():
        if topic == AT_ONCE:
            assert ours.readers[topic, partition, isolation] == seen, (partition, isolation)


def _cleaned_by_apache_kafka(version: str, history: tuple[Path, dict[str, list[list[int]]]], tmp_path: Path) -> Cleaned:
    folder, ends = history
    shutil.copytree(folder, tmp_path / "logs")
    with (
        embedded_zookeeper(tmp_path / "zookeeper") as zookeeper,
        apache_kafka(version, tmp_path, zookeeper=zookeeper.connect, properties=PROPERTIES) as bootstrap,
    ):
        return _clean(bootstrap, tmp_path / "logs", ends)


def _clean(bootstrap: str, logs_dir: Path, ends: dict[str, list[list[int]]]) -> Cleaned:
    admin = AdminClient({"bootstrap.servers": bootstrap, "broker.address.family": "v4"})
    for created in admin.create_topics([NewTopic(topic, len(SEEDS), 1) for topic in ends]).values():
        created.result(TIMEOUT_S)
    for number, lag_ms in enumerate(LAGS_MS):
        resources = [
            _changed(topic, {"min.compaction.lag.ms": lag_ms, "delete.retention.ms": RETENTION_MS[topic]})
            for topic in ends
        ]
        for altered in admin.incremental_alter_configs(resources).values():
            altered.result(TIMEOUT_S)
        expected = {
            f"{topic} {partition} {offsets[number]}"
            for topic, partitions in ends.items()
            for partition, offsets in enumerate(partitions)
        }
        wait_until(
            lambda: expected <= _lines(logs_dir / CLEANER_CHECKPOINT),  # noqa: B023 - called here
            what=f"the end of pass {number}",
            timeout_s=TIMEOUT_S,
        )
    partitions = [(topic, partition) for topic in ends for partition in range(len(SEEDS))]
    return Cleaned(
        readers={
            (topic, partition, isolation): seen
            for isolation in ("read_uncommitted", "read_committed")
            for (topic, partition), seen in _read(bootstrap, isolation, partitions).items()
        },
        batches={partition: list(_batches(logs_dir / f"{partition[0]}-{partition[1]}")) for partition in partitions},
        aborted={partition: _aborted(logs_dir / f"{partition[0]}-{partition[1]}") for partition in partitions},
    )


def _changed(topic: str, values: Mapping[str, int]) -> ConfigResource:
    entries = [
        ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET) for name, value in values.items()
    ]
    return ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)


def _lines(path: Path) -> set[str]:
    return set(path.read_text().splitlines()) if path.exists() else set()


def _batches(folder: Path) -> Iterator[tuple[object, ...]]:
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for header in iterate_batches(data):
            yield (
                header.base_offset,
                header.last_offset,
                header.attributes,
                header.leader_epoch,
                header.max_timestamp,
                (header.producer_id, header.producer_epoch, header.base_sequence),
                # A marker that it keeps for its producer alone is emptied by Apache Kafka, which cannot tell the epoch
                # from it any more when it builds the producers' state anew; we leave it whole.
                [] if header.is_control else list(iterate_records(data, header)),
            )


def _aborted(folder: Path) -> list[AbortedTransaction]:
    return [
        transaction
        for path in sorted(folder.glob("*.txnindex"))
        for transaction in parse_transaction_index(path.read_bytes(), str(path))
    ]


def _read(bootstrap: str, isolation: str, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], Seen]:
    """The records that a reader gets of each partition from its start to its end."""
    seen: dict[tuple[str, int], Seen] = {partition: [] for partition in partitions}
    ended: set[tuple[str, int]] = set()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "broker.address.family": "v4",
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    try:
        consumer.list_topics(timeout=TIMEOUT_S)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in partitions])
        deadline = time.monotonic() + TIMEOUT_S
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"no end of {seen.keys() - ended} in sight"
            for message in consumer.consume(1000, 0.1):
                _note(message, seen, ended)
    finally:
        consumer.close()
    return seen


def _note(message: Message, seen: dict[tuple[str, int], Seen], ended: set[tuple[str, int]]) -> None:
    topic, number, error = message.topic(), message.partition(), message.error()
    assert topic is not None
    assert number is not None
    partition = (topic, number)
    if error is None:
        entry = (message.offset(), message.key(), message.value(), message.timestamp(), message.headers())
        seen[partition].append(entry)
    elif error.code() == KafkaError._PARTITION_EOF:
        ended.add(partition)
    else:
        raise KafkaException(error)


def _check_input_coverage(cleaned: Cleaned) -> None:
    """The input contained every kind of batch and record, so that the comparison is meaningful."""
    everything = [batch for batches in cleaned.batches.values() for batch in batches]
    assert any(not batch[-1] and not batch[2] & CONTROL_BIT for batch in everything), (
        "no batch is left for its producer alone"
    )
    assert any(cleaned.aborted.values()), "no aborted transaction is left"
    uncommitted, committed = (
        sum(len(seen) for (_, _, reader), seen in cleaned.readers.items() if reader == isolation)
        for isolation in ("read_uncommitted", "read_committed")
    )
    assert committed < uncommitted
    at_once, late = (
        sum(len(seen) for (reader, _, _), seen in cleaned.readers.items() if reader == topic)
        for topic in (AT_ONCE, LATE)
    )
    assert at_once < late, "tombstones went as early as they could in both topics"

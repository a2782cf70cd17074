"""Writes tests/golden/storage/old-formats: partitions of Apache Kafka 2.8.2 with old message formats.

    python -m tests.golden.generate_old_formats

The broker writes with message.format.version 0.9.0 (magic 0) or 0.10.0 (magic 1), topic by topic, and shut down
cleanly.  The topic `grown` was written in all three formats one after the other, as it is on brokers that were upgraded
over the years.  `expected.json` beside the partitions is what kafka-python read from that broker.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

from tests.peers.apache_kafka import OLDEST_JUDGE, apache_kafka

TARGET = Path(__file__).parent / "storage" / "old-formats"
FORMATS = {"0.9.0": 0, "0.10.0": 1, "2.8": 2}
CODECS = ("uncompressed", "gzip", "snappy", "lz4")
FIRST_TIMESTAMP = 1_600_000_000_000
SMALL_SEGMENTS = {"log.segment.bytes": "4096", "log.index.interval.bytes": "512", "log.retention.ms": "-1"}
BATCHES, BATCH_SIZE = 8, 6
KEPT = {".log", ".index", ".timeindex", ".snapshot"}


def topics() -> dict[str, dict[str, str]]:
    """The configuration of every topic."""
    plain = {
        f"magic{magic}-{codec}": {"message.format.version": version, "compression.type": codec}
        for version, magic in FORMATS.items()
        if magic < 2
        for codec in CODECS
    }
    appended = {"message.format.version": "0.10.0", "message.timestamp.type": "LogAppendTime"}
    return {
        **plain,
        "appended-uncompressed": appended,
        "appended-gzip": {**appended, "compression.type": "gzip"},
        "grown": {"message.format.version": "0.9.0", "compression.type": "producer"},
    }


def fill(bootstrap: str, topic: str, start: int, *, codec: str | None = None) -> int:
    """Some batches of records numbered from `start` on; returns the next number."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=codec, linger_ms=1000, enable_idempotence=False
    )
    number = start
    for _ in range(BATCHES):
        for _ in range(BATCH_SIZE):
            producer.send(
                topic,
                key=b"key %d" % (number % 7) if number % 6 else None,
                value=None if number % 6 == 1 else b"value %d " % number * 8,
                timestamp_ms=FIRST_TIMESTAMP + number * 1000,
                partition=0,
            )
            number += 1
        producer.flush()
    producer.close()
    return number


def read(bootstrap: str, topic: str) -> list[list[Any]]:
    """[offset, timestamp, key, value] of every record."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=10_000, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning()
    end = consumer.end_offsets([partition])[partition]
    found: list[list[Any]] = []
    for record in consumer:
        texts = [None if part is None else part.decode() for part in (record.key, record.value)]
        found.append([record.offset, -1 if record.timestamp is None else record.timestamp, *texts])
        if record.offset == end - 1:
            break
    consumer.close()
    return found


def main() -> None:
    shutil.rmtree(TARGET, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        with apache_kafka(OLDEST_JUDGE, Path(folder), properties=SMALL_SEGMENTS) as bootstrap:
            admin = KafkaAdminClient(bootstrap_servers=bootstrap)
            admin.create_topics([NewTopic(name, 1, 1, topic_configs=config) for name, config in topics().items()])
            for name in topics():
                if name != "grown":
                    fill(bootstrap, name, 0)
            number = 0
            for version in FORMATS:
                resource = ConfigResource(ConfigResourceType.TOPIC, "grown", {"message.format.version": version})
                admin.alter_configs([resource])
                for codec in (None, "lz4"):
                    number = fill(bootstrap, "grown", number, codec=codec)
            admin.close()
            expected = {name: read(bootstrap, name) for name in topics()}
        for name in topics():
            kept = TARGET / f"{name}-0"
            kept.mkdir(parents=True)
            for file in sorted((Path(folder) / "logs" / f"{name}-0").iterdir()):
                if file.suffix in KEPT or file.name in {"leader-epoch-checkpoint", "partition.metadata"}:
                    shutil.copy(file, kept)
        (TARGET / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()

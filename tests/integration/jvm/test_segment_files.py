"""Apache Kafka's DumpLogSegments reads the files that kctl's broker wrote, and reports no errors.

The same records are written through Apache Kafka's broker, to compare with the tool's output on its files.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.integration.clients.confluent import Confluent
from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, OLDEST_JUDGE, run_java_tool
from tests.peers.kctl_broker import KctlBroker

pytestmark = pytest.mark.jvm

DUMP = "kafka.tools.DumpLogSegments"
COUNT = 400
RECORD = re.compile(r"^\| offset: (\d+) ")
BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) ")
COMPLAINTS = re.compile(
    r"Mismatches in|Found timestamp mismatch|Found out of order|Index offset|isvalid: false|not found"
)

versions = pytest.mark.parametrize("version", [OLDEST_JUDGE, LAST_WITH_ZOOKEEPER])


@versions
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_kafkas_tool_finds_every_record_in_our_segments(broker: KctlBroker, version: str, codec: str) -> None:
    folder = _partition(broker.bootstrap, broker.logs_dir, codec)
    segments = sorted(folder.glob("*.log"))
    assert len(segments) > 1, "the log was meant to be rolled"
    output = _dump(version, segments, "--deep-iteration")
    assert [int(match[1]) for match in map(RECORD.match, output) if match] == list(range(COUNT))
    batches = [[int(number) for number in match.groups()] for match in map(BATCH.match, output) if match]
    assert sum(count for _, _, count in batches) == COUNT
    assert all(last - first + 1 == count for first, last, count in batches)


@versions
def test_kafkas_tool_accepts_our_indexes(broker: KctlBroker, version: str) -> None:
    indexes = _indexes_of_rolled_segments(_partition(broker.bootstrap, broker.logs_dir, "none"))
    assert any(path.stat().st_size for path in indexes)
    for checks in (["--index-sanity-check"], ["--verify-index-only"]):
        _dump(version, indexes, *checks)


@versions
def test_kafkas_tool_reads_the_offsets_our_coordinator_wrote(broker: KctlBroker, version: str) -> None:
    group = f"dumped-by-{version}"
    _partition(broker.bootstrap, broker.logs_dir, "none")
    _read_and_commit(broker.bootstrap, "dumped-none", group)
    logs = [path for path in sorted(broker.logs_dir.glob("__consumer_offsets-*/*.log")) if path.stat().st_size]
    output = "\n".join(_dump(version, logs, "--offsets-decoder"))
    assert group in output
    assert re.search(rf"{re.escape(group)}.*dumped-none", output)


@versions
def test_kafkas_tool_reports_the_same_for_files_written_by_kafka(
    apache_kafka_logs: tuple[str, Path], version: str
) -> None:
    bootstrap, logs_dir = apache_kafka_logs
    folder = _partition(bootstrap, logs_dir, "none")
    output = _dump(version, sorted(folder.glob("*.log")), "--deep-iteration")
    assert [int(match[1]) for match in map(RECORD.match, output) if match] == list(range(COUNT))
    _dump(version, _indexes_of_rolled_segments(folder), "--index-sanity-check")


def _partition(bootstrap: str, logs_dir: Path, codec: str) -> Path:
    """The folder of a partition with COUNT records in several batches and segments; written once per broker."""
    topic = f"dumped-{codec}"
    folder = logs_dir / f"{topic}-0"
    if not folder.exists():
        Confluent(bootstrap).create_topic(topic, 1)
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "batch.num.messages": 10,
                "linger.ms": 5,
                "enable.idempotence": True,
            }
        )
        for number in range(COUNT):
            # Values that do not compress, so that the segments fill up under every codec.
            producer.produce(topic, bytes((number * 7 + byte * byte * 31) % 251 for byte in range(200)), f"{number}")
        assert producer.flush(30) == 0
    return folder


def _indexes_of_rolled_segments(folder: Path) -> list[Path]:
    # The index files of the active segment are larger than their contents while a broker runs: Kafka preallocates them.
    return [path for ending in ("index", "timeindex") for path in sorted(folder.glob(f"*.{ending}"))[:-1]]


def _read_and_commit(bootstrap: str, topic: str, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert len(consumer.consume(COUNT, 30)) == COUNT
    consumer.commit(asynchronous=False)
    consumer.close()


def _dump(version: str, files: list[Path], *options: str) -> list[str]:
    finished = run_java_tool(version, DUMP, ["--files", ",".join(map(str, files)), *options])
    assert finished.returncode == 0, finished.stdout + finished.stderr
    complaint = COMPLAINTS.search(finished.stdout + finished.stderr)
    assert complaint is None, finished.stdout[complaint.start() - 200 :][:600]
    return finished.stdout.splitlines()

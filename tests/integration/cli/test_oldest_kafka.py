"""The oldest Kafka that commands support, Apache Kafka 0.11: each command works or names the required version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.cli.conftest import Kctl, command_line
from tests.peers import apache_kafka
from tests.rows import for_rows

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def kctl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kctl]:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("kafka-0.11")
    with apache_kafka.apache_kafka(apache_kafka.OLDEST_BROKER, folder / "broker") as bootstrap:
        run = command_line({"KCTL_BOOTSTRAP_SERVER": bootstrap, "XDG_STATE_HOME": str(folder / "state")})
        assert run("topics create orders --partitions 3").status == 0
        assert run("produce orders --partition 1", b"one\ntwo\n").status == 0
        yield run


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("topics list", [["orders", "3", "1"]]),
        ("cluster health", []),
        ("consume orders", [["1", "0", "one"], ["1", "1", "two"]]),
        ("consume orders --group readers -n 1", [["1", "0", "one"]]),
        ("topics offsets orders --partition 1", [["orders", "1", "2"]]),
        ("groups reset-offsets billing --topic orders:1 --to-latest --yes", [["billing", "orders", "2"]]),
        ("groups describe billing", [["billing", "orders", "1", "2", "0"]]),
        ("configs describe broker 0 --property broker.id", [["broker", "0", "broker.id", "STATIC_BROKER_CONFIG"]]),
        ("topics alter orders --set retention.ms=3600000", [["orders", "properties altered"]]),
        ("configs describe topic orders --property retention.ms", [["3600000", "DYNAMIC_TOPIC_CONFIG"]]),
        ("configs alter topic orders --append cleanup.policy=compact", [["delete,compact", "altered"]]),
    ],
)  # fmt: skip
def test_command_works_with_the_oldest_kafka(kctl: Kctl, line: str, expected: list[list[str]]) -> None:
    ran = kctl(line)
    assert (ran.status, ran.err) == (0, "")
    assert len([row for row in ran.rows if row[0] != "__consumer_offsets"]) == len(expected)
    for row, cells in zip(ran.rows, expected, strict=False):
        assert set(cells) <= set(row)


@for_rows("line, complaint", [
        ("topics alter orders --partitions 5", "does not support CreatePartitions, which needs Kafka 1.0 or newer"),
        ("groups delete nobody --yes", "does not support DeleteGroups, which needs Kafka 1.1 or newer"),
        ("groups list --state Empty", "does not list the states of groups (before Kafka 2.6)"),
        ("configs alter broker 0 --set log.cleaner.threads=2", "cannot alter single properties (before Kafka 2.3)"),
        ("topics delete orders --yes", "delete.topic.enable is false, the default before Kafka 1.0"),
        ("cluster log-dirs", "does not support DescribeLogDirs, which needs Kafka 1.0 or newer"),
        ("reassign list", "does not support ListPartitionReassignments, which needs Kafka 2.4 or newer"),
        ("reassign execute orders:0=0", "does not support ListPartitionReassignments, which needs Kafka 2.4 or newer"),
        ("elect --preferred", "does not support ElectLeaders, which needs Kafka 2.2 or newer"),
        ("transactions list", "does not support ListTransactions, which needs Kafka 3.0 or newer"),
        ("transactions describe x", "does not support DescribeTransactions, which needs Kafka 3.0 or newer"),
        ("transactions find-hanging", "does not support DescribeProducers, which needs Kafka 2.8 or newer"),
        ("transactions describe-producers orders", "does not support DescribeProducers, which needs Kafka 2.8"),
    ])  # fmt: skip
def test_command_names_the_kafka_version_it_needs(kctl: Kctl, line: str, complaint: str) -> None:
    ran = kctl(line)
    assert ran.status == 1
    codes = ("UNSUPPORTED_VERSION", "TOPIC_DELETION_DISABLED")
    lines = [text for text in (ran.out + ran.err).splitlines() if any(code in text for code in codes)]
    assert len(lines) == 1
    assert complaint in lines[0]

"""Group and transaction commands on kctl and Apache Kafka brokers, compared with Kafka's tools."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka import KafkaProducer
from kafka.errors import KafkaError

from tests.integration.cli.conftest import BROKERS, KAFKA_4, Kctl, ThreeBrokers
from tests.integration.cli.group_readers import TIMEOUT_S
from tests.integration.cli.hanging import leave_hanging
from tests.peers import apache_kafka, probe
from tests.peers.markers import wait_for_markers

TOOLS = "org.apache.kafka.tools.consumer"
GROUP_COMMANDS = (
    (apache_kafka.OLDEST_JUDGE, "kafka.admin.ConsumerGroupCommand", "kafka-2.8"),
    (apache_kafka.LAST_WITH_ZOOKEEPER, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "kafka-3"),
    (apache_kafka.TOOLS_FOR_NEWEST, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "kafka-4"),
)
OLD_CONSOLE_CONSUMER = (apache_kafka.OLDEST_JUDGE, "kafka.tools.ConsoleConsumer", "kafka-2.8")
NEW_CONSOLE_CONSUMER = (apache_kafka.TOOLS_FOR_NEWEST, f"{TOOLS}.ConsoleConsumer", "kafka-4")
CONSOLE_CONSUMERS = (
    ("kctl", *OLD_CONSOLE_CONSUMER),
    pytest.param(apache_kafka.OLDEST_JUDGE, *NEW_CONSOLE_CONSUMER, marks=pytest.mark.matrix),
    (apache_kafka.LAST_WITH_ZOOKEEPER, *NEW_CONSOLE_CONSUMER),
)
"""For the records of each broker."""
FORMATTERS = {
    ("offsets", "kafka-2.8"): "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter",
    ("group-metadata", "kafka-2.8"): "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter",
    ("transactions", "kafka-2.8"): "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter",
    ("offsets", "kafka-4"): f"{TOOLS}.OffsetsMessageFormatter",
    ("group-metadata", "kafka-4"): f"{TOOLS}.GroupMetadataMessageFormatter",
    ("transactions", "kafka-4"): f"{TOOLS}.TransactionLogMessageFormatter",
}
"""By kctl's name and Kafka's version."""

BROKERS_THAT_TELL_TRANSACTIONS = [BROKERS[0], BROKERS[2]]


@pytest.fixture
def read(topic: str, kctl: Kctl) -> str:
    """A topic with ten records each in partitions 0 and 1, and a group of the same name at offsets 4 and 9."""
    for partition in (0, 1):
        kctl(f"produce {topic} --partition {partition}", stdin=b"x\n" * 10)
    assert kctl(f"groups reset-offsets {topic} --topic {topic}:0 --to-offset 4 --yes").status == 0
    assert kctl(f"groups reset-offsets {topic} --topic {topic}:1 --to-offset 9 --yes").status == 0
    return topic


def committed(kctl: Kctl, group: str) -> list[tuple[str, str]]:
    """(partition, offset)."""
    return [(row[2], row[3]) for row in kctl(f"groups describe {group}").rows]


@pytest.mark.parametrize("bootstrap", [*BROKERS, KAFKA_4], indirect=True)
def test_a_reset_is_undone_from_its_backup_and_from_the_history(kctl: Kctl, read: str) -> None:
    unknown = kctl("groups history nobody")
    assert (unknown.status, "group 'nobody' does not exist" in unknown.err) == (1, True)
    before = kctl(f"groups history {read} --format json").document
    assert sorted((row["partition"], row["offset"]) for row in before) == [(0, 4), (1, 9)]
    first_time_ms = max(row["time_ms"] for row in before)
    assert kctl(f"groups reset-offsets {read} --topic {read} --to-earliest --yes").status == 0
    assert committed(kctl, read)[:2] == [("0", "0"), ("1", "0")]
    assert kctl(f"groups restore {read} --yes").status == 0
    assert committed(kctl, read)[:2] == [("0", "4"), ("1", "9")]
    assert kctl(f"groups delete {read} --yes --no-backup").status == 0
    changes = kctl(f"groups history {read} --format json").document
    deleted = {row["partition"] for row in changes if row["change"] == "deleted"}
    assert deleted == {0, 1, 2}
    restored = kctl(f"groups restore {read} --at {first_time_ms} --yes")
    assert [row[2:5] for row in restored.rows] == [["0", "-", "4"], ["1", "-", "9"]], restored.err
    assert committed(kctl, read) == [("0", "4"), ("1", "9")]


@pytest.mark.parametrize("bootstrap", [*BROKERS, KAFKA_4], indirect=True)
def test_records_are_deleted(kctl: Kctl, read: str) -> None:
    ran = kctl(f"records delete {read}:0,1 --before-offset 6 --yes --format json")
    assert [(row["offsets"], row["low_watermark"], row["error"]) for row in ran.document] == [(6, 6, None)] * 2
    earliest = kctl(f"topics offsets {read} --time earliest --partition 0,1")
    assert [row[2] for row in earliest.rows] == ["6", "6"]


@pytest.mark.parametrize("bootstrap", [*BROKERS, KAFKA_4], indirect=True)
def test_offsets_are_reset_and_restored(kctl: Kctl, read: str, tmp_path: Path) -> None:
    assert committed(kctl, read) == [("0", "4"), ("1", "9")]
    saved = kctl(f"groups reset-offsets {read} --all-topics --to-current --dry-run --export")
    assert saved.out.count("\n") == 2
    moved = kctl(f"groups reset-offsets {read} --topic {read} --shift-by=-5 --dry-run")
    assert [row[3:6] for row in moved.rows[:2]] == [["4", "0", "-4"], ["9", "4", "-5"]]
    assert (moved.status, moved.rows[2][-2]) == (1, "INVALID_REQUEST")
    for scenario, expected in (
        ("--to-earliest", "0"),
        ("--to-latest", "10"),
        ("--to-offset 99", "10"),
        ("--by-duration PT1H", "0"),
        ("--to-datetime 2100-01-01T00:00:00.000", "10"),
    ):
        assert kctl(f"groups reset-offsets {read} --topic {read}:0 {scenario} --yes").status == 0
        assert committed(kctl, read)[0] == ("0", expected), scenario
    file = tmp_path / "saved.csv"
    file.write_text(saved.out)
    assert kctl(f"groups reset-offsets {read} --from-file {file} --yes").status == 0
    assert committed(kctl, read) == [("0", "4"), ("1", "9")]


@pytest.mark.parametrize("bootstrap", [*BROKERS, KAFKA_4], indirect=True)
def test_active_group_keeps_its_offsets(kctl: Kctl, read: str, bootstrap: str) -> None:
    with consuming(read, bootstrap):
        ran = kctl(f"groups reset-offsets {read} --topic {read} --to-earliest --yes")
        assert (ran.status, ran.out) == (5, "")
        assert "is active (Stable) with reader" in ran.err
        (row,) = kctl(f"groups members {read}").rows
        assert row[5:7] == ["3", f"{read}(0,1,2)"]
        assert read in [row[0] for row in kctl("groups list --state Stable").rows]
        refused = kctl(f"groups delete-offsets {read} --topic {read}:0 --yes")
        assert (refused.status, refused.rows[0][-2]) == (1, "GROUP_SUBSCRIBED_TO_TOPIC")
    assert kctl(f"groups delete-offsets {read} --topic {read}:0 --yes").status == 0
    assert committed(kctl, read) == [("1", "9")]


@contextlib.contextmanager
def consuming(topic: str, bootstrap: str) -> Iterator[None]:
    """A member that reads but commits nothing."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "client.id": "reader", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])

    def has_partitions() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    try:
        probe.wait_until(has_partitions, what=f"the member of {topic} has partitions", timeout_s=TIMEOUT_S)
        yield
    finally:
        consumer.close()


@pytest.mark.jvm
@pytest.mark.parametrize(("version", "main_class", "compat"), GROUP_COMMANDS)
def test_kafkas_tool_prints_the_same(
    kctl: Kctl, read: str, bootstrap: str, tmp_path: Path, version: str, main_class: str, compat: str
) -> None:
    """The table and both files; each tool accepts the other's file."""
    front = ["--bootstrap-server", bootstrap, "--group", read, "--reset-offsets"]
    scope = ["--topic", f"{read}:0", "--to-earliest"]

    def kafka(*commands: list[str | Path]) -> list[str]:
        ran = apache_kafka.run_java_tools(version, [[main_class, *front, *words] for words in commands])
        assert all("Error" not in out for out, _ in ran), ran
        return [out for out, _ in ran]

    line = f"groups reset-offsets {read} --topic {read}:0 --to-earliest --compat {compat}"
    ours = [kctl(line).out, kctl(f"{line} --export").out]
    assert ours == kafka([*scope, "--dry-run"], [*scope, "--dry-run", "--export"])
    file = tmp_path / "offsets.csv"
    file.write_text(ours[1])
    kafka(["--from-file", file, "--execute"])
    assert committed(kctl, read)[0] == ("0", "0")
    assert kctl(f"groups reset-offsets {read} --from-file {file} --yes").status == 0


@pytest.mark.parametrize("bootstrap", BROKERS_THAT_TELL_TRANSACTIONS, indirect=True)
def test_transactions_are_listed_and_described(kctl: Kctl, topic: str, bootstrap: str) -> None:
    """The APIs exist since Kafka 3.0."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic, transaction_timeout_ms=600_000)
    producer.init_transactions()
    producer.begin_transaction()
    start = producer.send(topic, b"x", partition=0).get(timeout=TIMEOUT_S).offset
    assert [topic, "Ongoing"] in [[row[0], row[3]] for row in kctl("transactions list --state Ongoing").rows]
    (item,) = kctl(f"transactions describe {topic} --format json").document
    assert (item["state"], item["partitions"]) == ("Ongoing", [{"topic": topic, "partitions": [0]}])
    (row,) = kctl(f"transactions describe-producers {topic} --open").rows
    assert row[:2] + row[7:] == [topic, "0", str(start), "-", "-"]
    assert kctl(f"transactions find-hanging --topic {topic} --idle 1ms").status == 0
    assert kctl(f"transactions abort {topic}:0 --start-offset {start} --yes").status == 5
    producer.commit_transaction()
    producer.close()
    wait_for_markers(bootstrap, topic)
    assert kctl(f"consume {topic}").rows[0][4] == "x"
    assert kctl("transactions describe nobody").rows[0][-2] == "TRANSACTIONAL_ID_NOT_FOUND"


@pytest.mark.parametrize("bootstrap", BROKERS_THAT_TELL_TRANSACTIONS, indirect=True)
def test_an_open_transaction_is_terminated_and_its_producer_fenced(kctl: Kctl, topic: str, bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic, transaction_timeout_ms=500_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"not committed", partition=0).get(timeout=TIMEOUT_S)
    kctl(f"produce {topic} --partition 0", stdin=b"behind it\n")
    assert [row[6] for row in kctl(f"transactions terminate {topic}").rows] == ["would be terminated"]
    assert kctl(f"consume {topic}").rows == []
    rows = kctl(f"transactions terminate {topic} --yes nobody").rows
    assert [(row[1], row[6], row[7]) for row in sorted(rows, key=lambda row: row[0] == "nobody")] == [
        ("Ongoing", "terminated", "-"),
        ("-", "-", "TRANSACTIONAL_ID_NOT_FOUND"),
    ]
    assert [row[4] for row in kctl(f"consume {topic}").rows] == ["behind it"]  # The markers are written by now.
    (item,) = kctl(f"transactions describe {topic} --format json").document
    assert (item["timeout_ms"], item["partitions"]) == (500_000, [])
    assert [kctl(f"transactions terminate {topic} {more} --yes").status for more in ("", "--fence")] == [5, 0]
    assert "nobody" not in [row[0] for row in kctl("transactions list").rows]
    with pytest.raises(KafkaError):
        producer.commit_transaction()
    producer.close(timeout=1)


@pytest.mark.parametrize("bootstrap", BROKERS_THAT_TELL_TRANSACTIONS, indirect=True)
def test_hanging_transaction_is_found_and_ended(kctl: Kctl, topic: str, bootstrap: str) -> None:
    producer_id = leave_hanging(bootstrap, topic, 1)
    kctl(f"produce {topic} --partition 1", stdin=b"behind it\n")
    assert kctl(f"consume {topic}").rows == []
    found = kctl(f"transactions find-hanging --topic {topic} --idle 1ms")
    assert (found.status, [row[1:3] + row[5:6] for row in found.rows]) == (3, [["1", str(producer_id), "0"]])
    assert kctl(f"transactions abort {topic}:1 --start-offset 0 --yes").rows[0][6] == "aborted"
    assert [row[4] for row in kctl(f"consume {topic}").rows] == ["behind it"]
    assert kctl(f"transactions find-hanging --topic {topic} --idle 1ms").status == 0


@pytest.mark.parametrize("three_brokers", BROKERS_THAT_TELL_TRANSACTIONS, indirect=True)
def test_hanging_transactions_are_found_and_ended_whichever_broker_leads(
    operate: Kctl, three_brokers: ThreeBrokers
) -> None:
    """One on each broker: each leader returns its own producers, and writes the marker that its followers copy."""
    assert operate("topics create hangs --replica-assignment 0:1:2,1:2:0,2:0:1").status == 0
    hanging = {}
    for partition in range(3):
        hanging[partition] = leave_hanging(three_brokers.bootstrap, "hangs", partition)
        assert operate(f"produce hangs --partition {partition}", stdin=b"behind %d\n" % partition).status == 0
    assert operate("consume hangs").rows == []
    found = operate("transactions find-hanging --idle 1ms")
    assert found.status == 3
    assert sorted(row[:3] for row in found.rows) == [
        ["hangs", str(number), str(hanging[number])] for number in range(3)
    ]
    for partition in range(3):
        assert operate(f"transactions abort hangs:{partition} --start-offset 0 --yes").rows[0][6] == "aborted"
        assert len(operate("transactions find-hanging --idle 1ms").rows) == 2 - partition
    assert sorted(row[4] for row in operate("consume hangs").rows) == ["behind 0", "behind 1", "behind 2"]
    assert operate("transactions find-hanging --idle 1ms").status == 0


@pytest.mark.jvm
@pytest.mark.parametrize(("bootstrap", "version", "main_class", "compat"), CONSOLE_CONSUMERS, indirect=["bootstrap"])
def test_formatters_print_the_same_as_kafkas(
    kctl: Kctl, read: str, bootstrap: str, version: str, main_class: str, compat: str
) -> None:
    """Byte for byte, for the partitions that contain a group with members, tombstones and a transaction."""
    with consuming(read, bootstrap):
        kctl(f"groups delete-offsets {read} --all-topics --yes")
    kctl(f"groups delete-offsets {read} --topic {read}:1 --yes")
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=read) as producer:
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for partition in range(3):
                producer.send(read, b"x", partition=partition)
            producer.flush()  # what is not sent yet would be dropped by an abort, and the abort with it
            end()
    claim = lambda: records_about(kctl, read, "transactions")[-1]["value"]["state"] == "CompleteAbort"  # noqa: E731
    probe.wait_until(claim, what="the last record of both transactions", timeout_s=TIMEOUT_S)
    for formatter in ("offsets", "group-metadata", "transactions"):
        internal = internal_topic(formatter)
        where = f"--partition {records_about(kctl, read, formatter)[0]['partition']}"
        options = f"{where} --isolation-level read_uncommitted"
        count = len(kctl(f"consume {internal} {options} --format jsonl").out.splitlines())
        args = ["--bootstrap-server", bootstrap, "--topic", internal, *where.split(), "--offset", "earliest"]
        args += ["--formatter", FORMATTERS[formatter, compat]]
        theirs = console_consumer(version, main_class, args, count)
        ours = kctl(f"consume {internal} --formatter {formatter} {options} --compat {compat}")
        assert ours.out == theirs.stdout, theirs.stderr
        assert read in ours.out


def internal_topic(formatter: str) -> str:
    return "__transaction_state" if formatter == "transactions" else "__consumer_offsets"


def records_about(kctl: Kctl, name: str, formatter: str) -> list[dict[str, Any]]:
    """The records of an internal topic about the group or transactional id."""
    lines = kctl(f"consume {internal_topic(formatter)} --formatter {formatter}").out.splitlines()
    return [reported for reported in map(json.loads, lines) if name in reported["key"].values()]


def console_consumer(version: str, main_class: str, args: list[str], count: int) -> subprocess.CompletedProcess[str]:
    """Kafka's console consumer, until it has read so many records."""
    patience = ["--max-messages", str(count), "--timeout-ms", "50000"]
    return apache_kafka.run_java_tool(version, main_class, [*args, *patience])

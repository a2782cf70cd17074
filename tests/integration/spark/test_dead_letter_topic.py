"""Dead letters in a topic: each once, however a run ends, for all kinds of tables."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kctl.cli import main
from tests.integration.spark.killed_command import run_killed
from tests.integration.spark.peer import TIMEOUT_S, Topic, export, read_rows
from tests.peers.probe import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeTopic = Callable[[str, int], Topic]
LOCAL = pytest.mark.parametrize("engine", ["local"], indirect=True)
LENIENT = ("--value", "json", "--target-file-size", "2k")

MOMENTS = ["before all", "before 0", "after 0", "before 1", "after 1"]
BEFORE = 30
"""Records that are exported before the option is used, without their headers."""


def produce(topic: Topic, count: int) -> None:
    """Every third record is bad; it has the number as its header."""
    first = len(topic.rows)
    topic.produce(
        {
            "key": b"k%d" % n,
            "value": b"bad %d" % n if n % 3 == 0 else b'{"n": %d}' % n,
            "partition": n % topic.partitions,
            "headers": [("n", b"%d" % n)],
            "timestamp": 1_700_000_000_000 + n,
        }
        for n in range(first, first + count)
    )


def letters(topic: Topic) -> list[tuple[int, bytes, bytes, dict[str, bytes]]]:
    """Partition, key, value and headers of the committed records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": topic.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic.name, number, 0) for number in range(topic.partitions)])
    found = []
    ended: set[int] = set()

    def poll() -> bool:
        for message in consumer.consume(1_000, timeout=0.5):
            if message.error():
                ended.add(message.partition() or 0)
            else:
                ended.discard(message.partition() or 0)
                pairs: list[Any] = list(message.headers() or ())
                headers: dict[str, bytes] = dict(pairs)
                found.append((message.partition() or 0, message.key() or b"", message.value() or b"", headers))
        return len(ended) == topic.partitions

    wait_until(poll, what=f"the end of {topic.name}", timeout_s=TIMEOUT_S)
    consumer.close()
    return found


def assert_each_once(source: Topic, bad: Topic) -> None:
    expected = [row for row in source.rows if (row[3] or b"").startswith(b"bad")]
    found = letters(bad)
    assert Counter(value for _, _, value, _ in found) == Counter(row[3] for row in expected)
    by_value = {row[3]: row for row in expected}
    for partition, key, value, headers in found:
        row = by_value[value]
        assert (partition, key) == (row[0] % bad.partitions, row[2])
        number = value.removeprefix(b"bad ")
        assert headers.get("n") == (number if int(number) >= BEFORE else None)
        assert headers["kctl.dead-letter.topic"] == source.name.encode()
        assert headers["kctl.dead-letter.partition"] == b"%d" % row[0]
        assert headers["kctl.dead-letter.offset"] == b"%d" % row[1]
        assert b"JSON" in headers["kctl.dead-letter.reason"]
    for source_partition in range(source.partitions):
        offsets = [
            int(headers["kctl.dead-letter.offset"])
            for _, _, _, headers in found
            if headers["kctl.dead-letter.partition"] == b"%d" % source_partition
        ]
        assert offsets == sorted(offsets)


@LOCAL
@pytest.mark.parametrize(
    ("bootstrap", "table"),
    [
        ("kctl", "parquet"),
        pytest.param("kctl", "iceberg", marks=pytest.mark.matrix),
        pytest.param("apache", "delta", marks=pytest.mark.matrix),
    ],
    indirect=["bootstrap"],
)
def test_each_dead_letter_is_in_the_topic_once(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path, table: str
) -> None:
    source = make_topic(bootstrap, 3)
    bad = Topic(bootstrap, f"{source.name}-bad", 2, "local")
    produce(source, BEFORE)
    export(source, tmp_path, "--table", table, *LENIENT)
    options = ["--table", table, *LENIENT, "--dead-letter-topic", bad.name]
    one_file = ("--target-file-size", "1m")  # its task needs no other process
    moments = ["before all", "after 0", "before 1"] if table == "parquet" else MOMENTS
    for moment in moments:
        produce(source, 60)
        words = ["export", source.name, "--to", str(tmp_path), "--bootstrap-server", bootstrap, *options]
        done = run_killed(moment, *words, *one_file)
        assert done.returncode == -signal.SIGKILL, (moment, done.stderr)
    # What the last run left is written although nothing is new.
    assert export(source, tmp_path, *options)["records"] == 0
    assert_each_once(source, bad)
    produce(source, 30)
    export(source, tmp_path, *options)
    export(source, tmp_path, *options)
    assert_each_once(source, bad)
    assert len(list((tmp_path / "_kctl" / "dead_letters" / bad.name / source.name).iterdir())) == 1
    assert sum(1 for _ in (tmp_path / "_dead_letters").rglob("*.parquet")) > 1
    assert main(["tables", "verify", source.name, str(tmp_path), "--bootstrap-server", bootstrap]) == 0


@LOCAL
def test_letters_of_a_topic_that_was_created_again_are_written_from_its_beginning(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source = make_topic(kctl_bootstrap, 1)
    bad = Topic(kctl_bootstrap, f"{source.name}-bad", 1, "local")
    options = ("--dead-letter-topic", bad.name, "--on-data-loss", "warn", *LENIENT)
    produce(source, 9)
    export(source, tmp_path, *options)
    source.delete()
    source.create()
    produce(source, 6)
    export(source, tmp_path, *options)
    assert [value for _, _, value, _ in letters(bad)] == [b"bad 0", b"bad 3", b"bad 6", b"bad 0", b"bad 3"]


@LOCAL
def test_a_topic_that_cannot_get_letters_is_refused_before_anything_is_written(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = make_topic(kctl_bootstrap, 1)
    produce(source, 3)
    words = ["export", source.name, "--to", str(tmp_path / "lake"), "--bootstrap-server", kctl_bootstrap]
    for options, status, complaint in (
        ((*LENIENT, "--dead-letter-topic", "absent"), 1, "--dead-letter-topic: topic absent does not exist"),
        ((*LENIENT, "--dead-letter-topic", source.name), 2, f"{source.name} is one of the exported topics"),
        (
            ("--value", "json", "--on-bad-record", "fail", "--dead-letter-topic", "x"),
            2,
            "is an option of --on-bad-record dead-letter",
        ),
    ):
        assert main([*words, *options]) == status
        assert complaint in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()
    assert main([*words, *LENIENT]) == 0
    assert len(read_rows(tmp_path / "lake" / source.name, topics=[source.name])) == 2

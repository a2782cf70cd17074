"""`kctl cluster verify` on three brokers, ours and Apache Kafka's, of which one holds a damaged replica."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Kctl, ThreeBrokers
from tests.integration.cli.group_readers import TIMEOUT_S
from tests.peers import probe
from tests.peers.forked_kctl import program

RECORDS = 30
ON_OUR_THREE = pytest.mark.parametrize("three_brokers", ["kctl"], indirect=True)


def written(operate: Kctl, topic: str, *, options: str = "") -> None:
    """One partition on three brokers with a batch per record, which all followers show to readers."""
    assert operate(f"topics create {topic} --replica-assignment 1:0:2 {options}").status == 0
    for first in range(0, RECORDS, 10):
        lines = b"".join(b"key-%d:value-%d\n" % (number % 10, number) for number in range(first, first + 10))
        assert operate(f"produce {topic} --key-separator :", stdin=lines).status == 0
    claim = lambda: verified(operate, topic)["to_offset"] == RECORDS  # noqa: E731
    probe.wait_until(claim, what="three replicas", timeout_s=TIMEOUT_S)


def verified(operate: Kctl, topic: str) -> dict[str, object]:
    (row,) = operate(f"cluster verify --topic {topic} --format json").document
    return dict(row)


def log_of(three_brokers: ThreeBrokers, broker: int, topic: str) -> Path:
    (log,) = three_brokers.folder.glob(f"broker-{broker}/**/{topic}-0/{0:020}.log")
    return log


def change_a_byte(log: Path, text: bytes) -> None:
    """In place, as a disk does that returns other bits than were written."""
    with log.open("r+b") as file:
        file.seek(log.read_bytes().index(text))
        file.write(bytes([text[0] ^ 1]))


def test_damaged_replica_is_found(operate: Kctl, three_brokers: ThreeBrokers) -> None:
    written(operate, "compared")
    row = verified(operate, "compared")
    size = log_of(three_brokers, 1, "compared").stat().st_size
    assert row | {"difference": None, "error": None} == row
    assert (row["replicas"], row["from_offset"], row["bytes"], row["max_lag"]) == ([1, 0, 2], 0, size, 0)
    assert (row["status"], row["held"]) == ("identical", [])
    change_a_byte(log_of(three_brokers, 2, "compared"), b"value-17")
    ran = operate("cluster verify --topic compared --format jsonl")  # ends at the difference
    assert ran.status == 3
    row = verified(operate, "compared")
    assert (row["status"], row["to_offset"], row["offset"]) == ("different", 10, 10)
    assert row["difference"] == "wrong checksum of the batch on replica 2"
    held = row["held"]
    assert isinstance(held, list)
    assert [
        (replica["replica"], replica["base_offset"], replica["last_offset"], replica["is_damaged"]) for replica in held
    ] == [
        (0, 10, 19, False),
        (1, 10, 19, False),
        (2, 10, 19, True),
    ]
    assert len({replica["checksum"] for replica in held}) == 1
    assert [replica["computed_checksum"] == replica["checksum"] for replica in held] == [True, True, False]


def test_damaged_replica_of_a_compacted_topic_is_found(operate: Kctl, three_brokers: ThreeBrokers) -> None:
    written(operate, "compacted", options="--config cleanup.policy=compact")
    assert verified(operate, "compacted")["status"] == "identical"
    change_a_byte(log_of(three_brokers, 0, "compacted"), b"value-29")
    row = verified(operate, "compacted")
    assert (row["offset"], row["difference"]) == (20, "wrong checksum of the batch on replica 0")


@ON_OUR_THREE
def test_records_after_a_pass_are_compared_in_the_next(operate: Kctl, three_brokers: ThreeBrokers) -> None:
    written(operate, "followed")
    line = f"cluster verify --topic followed --interval 100ms --bootstrap-server {three_brokers.bootstrap}"
    command = [*program(), *line.split(), "--format", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first = json.loads(running.stdout.readline())
        assert operate("produce followed", stdin=b"more\n" * 10).status == 0
        rows = (json.loads(line) for line in running.stdout)
        row = next(row for row in rows if row["to_offset"] == RECORDS + 10)
        running.send_signal(signal.SIGINT)
        assert running.wait(TIMEOUT_S) == 130
    assert (first["to_offset"], row["status"], row["from_offset"]) == (RECORDS, "identical", 0)
    assert row["bytes"] == log_of(three_brokers, 0, "followed").stat().st_size


@ON_OUR_THREE
def test_unknown_topics_and_formats_are_refused(operate: Kctl) -> None:
    ran = operate("cluster verify --topic nosuch")
    assert (ran.status, "nosuch" in ran.err) == (1, True)
    assert operate("cluster verify --interval 1s --format json").status == 2
    assert operate("cluster verify --interval 0s").status == 2

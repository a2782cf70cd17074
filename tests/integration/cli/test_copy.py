"""`kctl copy` on any broker: a part of a topic is found and replayed, and an interrupted copy repeats no record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.cli.conftest import ON_OURS, Kctl, command_line
from tests.integration.cli.group_readers import ROOT, TIMEOUT_S
from tests.peers import apache_kafka, probe
from tests.peers.forked_kctl import program
from tests.peers.markers import wait_for_markers
from tests.peers.ran import Ran

RECORDS = 3_000
TEN_O_CLOCK_MS = 1_795_255_200_000
STOP_TIMEOUT_S = 60
GROUP_OFFSET = 5
"""Of a group in each partition, before any record of the run that continues."""


def lines_of(numbers: range) -> bytes:
    """Records of customers c0 to c9, one per second from ten o'clock, with headers and a value of 100 bytes or more."""
    return b"".join(
        json.dumps(
            {
                "key": f"c{number % 10}",
                "value": json.dumps({"id": number, "status": "failed" if number % 3 == 0 else "done", "pad": "x" * 60}),
                "headers": [{"key": "trace", "value": str(number)}, {"key": "trace", "value": None}],
                "timestamp_ms": TEN_O_CLOCK_MS + number * 1_000,
            }
        ).encode()
        + b"\n"
        for number in numbers
    )


def records_of(kctl: Kctl, topic: str) -> list[tuple[object, ...]]:
    """Partition, time, key, value and headers, in the order of the partitions."""
    lines = kctl(f"consume {topic} --format jsonl").out.splitlines()
    names = ("partition", "timestamp_ms", "key", "value", "headers")
    return sorted((tuple(json.loads(line)[name] for name in names) for line in lines), key=repr)


def test_a_key_is_found_in_five_minutes_and_replayed_in_transactions(kctl: Kctl, topic: str, bootstrap: str) -> None:
    replay = f"{topic}-replay"
    assert kctl(f"topics create {replay} --partitions 2 --set retention.ms=-1").status == 0
    assert kctl(f"produce {topic} --input jsonl", stdin=lines_of(range(RECORDS))).status == 0
    begin, end = TEN_O_CLOCK_MS + 60_000, TEN_O_CLOCK_MS + 360_000
    selection = f"--from @{begin} --until @{end} --key c7 --record-header trace"
    expected = [number for number in range(60, 360) if number % 10 == 7]
    found = kctl(f"consume {topic} {selection} --format jsonl --expect {len(expected)}")
    assert found.status == 0, found.err
    assert [json.loads(json.loads(line)["value"])["id"] for line in found.out.splitlines()] == expected

    options = f"{selection} --partitions hash --resume-group {replay} --transactional-id {replay}"
    for copied in (len(expected), 0):  # the second run has nothing left to copy
        ran = kctl(f"copy {topic} {replay} {options} --format json")
        assert (ran.status, sum(row["copied"] for row in ran.document)) == (0, copied), ran.err
        wait_for_markers(bootstrap, replay)
    replayed = kctl(f"consume {replay} --format jsonl --isolation-level read_committed").out.splitlines()
    fields = ("timestamp_ms", "key", "value", "headers")
    originals = found.out.splitlines()
    assert [[json.loads(line)[name] for name in fields] for line in replayed] == [
        [json.loads(line)[name] for name in fields] for line in originals
    ]


@ON_OURS
def test_an_interrupted_copy_is_continued_exactly_once(kctl: Kctl, topic: str, bootstrap: str) -> None:
    target = f"{topic}-copy"
    assert kctl(f"topics create {target} --partitions 3 --set retention.ms=-1").status == 0
    assert kctl(f"produce {topic} --input jsonl", stdin=lines_of(range(RECORDS))).status == 0
    group = f"{topic}-readers"
    assert kctl(f"groups reset-offsets {group} --topic {topic} --to-offset {GROUP_OFFSET} --yes").status == 0
    words = ["copy", topic, target, "--resume-group", target, "--transactional-id", target, "--groups", group]
    command = [*program(), *words, "--rate", "40k"]
    environment = os.environ | {"KCTL_BOOTSTRAP_SERVER": bootstrap}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=environment) as slow:
        probe.wait_until(lambda: bool(records_of(kctl, target)), what="committed records", timeout_s=TIMEOUT_S)
        slow.send_signal(signal.SIGINT)
        _, messages = slow.communicate(timeout=STOP_TIMEOUT_S)
    assert (slow.returncode, b"interrupted" in messages) == (130, True), messages
    wait_for_markers(bootstrap, target)
    assert 0 < len(records_of(kctl, target)) < RECORDS
    resumed = kctl(" ".join(words))
    assert resumed.status == 0, resumed.out
    wait_for_markers(bootstrap, target)
    assert records_of(kctl, target) == records_of(kctl, topic)
    committed = {offset["partition"]: offset["offset"] for offset in offsets_of(kctl, group, target)}
    unread = [
        len(kctl(f"consume {target} --partition {number} --from {offset} --format jsonl").out.splitlines())
        for number, offset in committed.items()
    ]
    assert sum(unread) == RECORDS - len(committed) * GROUP_OFFSET


def offsets_of(kctl: Kctl, group: str, topic: str) -> list[dict[str, Any]]:
    """The committed offsets of a group in a topic."""
    (exported,) = kctl(f"groups export {group}").document["groups"]
    return [offset for offset in exported["offsets"] if offset["topic"] == topic]


def topic_rows(ran: Ran) -> dict[str, tuple[str, int]]:
    """Status and number of verified records by the last part of the topic's name."""
    return {row["topic"].rsplit("-", 1)[1]: (row["status"], row["verified"]) for row in ran.document}


@ON_OURS
@pytest.mark.jvm
def test_topics_are_copied_to_kafka_4_and_continued_after_kill_9(
    kctl: Kctl, topic: str, bootstrap: str, broker_of: Callable[[str], str]
) -> None:
    """With creation, configuration and offsets; each record once."""
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    target = broker_of(apache_kafka.NEWEST_BROKER)
    at_target = command_line({"KCTL_BOOTSTRAP_SERVER": target})
    count, group = RECORDS // 5, f"{topic}-readers"
    for name in ("one", "two"):
        created = kctl(
            f"topics create {topic}-{name} --partitions 2 --set retention.ms=-1 --set max.message.bytes=99999"
        )
        assert created.status == 0
        assert kctl(f"produce {topic}-{name} --input jsonl", stdin=lines_of(range(count))).status == 0
    reset = f"groups reset-offsets {group} --topic {topic}-one --to-offset {GROUP_OFFSET} --yes"
    assert kctl(reset).status == 0
    words = ["copy", f"{topic}-*", "--to-cluster", target, "--transactional-id", topic, "--groups", group]
    environment = os.environ | {"KCTL_BOOTSTRAP_SERVER": bootstrap}
    command = [*program(), *words, "--rate", "20k"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=environment) as slow:
        first = f"consume {topic}-one --max-messages 1 --format jsonl"
        probe.wait_until(lambda: bool(at_target(first).out), what="committed records", timeout_s=TIMEOUT_S)
        slow.kill()
        slow.communicate(timeout=STOP_TIMEOUT_S)
    resumed = kctl(" ".join([*words, "--format", "json"]))
    assert resumed.status == 0, resumed
    assert topic_rows(resumed) == {"one": ("verified", count), "two": ("verified", count)}
    assert sum(row["copied"] for row in resumed.document) < 2 * count
    for name in ("one", "two"):
        assert records_of(at_target, f"{topic}-{name}") == records_of(kctl, f"{topic}-{name}")
    assert "99999" in at_target(f"configs describe topic {topic}-two max.message.bytes --format json").out
    unread = [
        len(
            at_target(
                f"consume {topic}-one --partition {row['partition']} --from {row['offset']} --format jsonl"
            ).out.splitlines()
        )
        for row in offsets_of(at_target, group, f"{topic}-one")
    ]
    assert sum(unread) == count - 2 * GROUP_OFFSET

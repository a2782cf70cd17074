"""`kctl consume --group` shares partitions with any client, and what it showed is committed, on any broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer

from tests.integration.cli.conftest import ON_OURS, ROOT, TIMEOUT_S, Kctl
from tests.peers import probe

STOP_TIMEOUT_S = 60


class Reader:
    """`kctl consume --group` in the background; what it shows goes to a file."""

    def __init__(self, bootstrap: str, topic: str, out: Path, *, config: Path | None = None) -> None:
        self.out = out
        self.err = out.with_suffix(".err")
        command = [sys.executable, "-m", "kctl", "consume", topic, "--group", topic, "--follow", "--format", "jsonl"]
        command += ["--command-config", str(config)] if config else []
        with out.open("wb") as stdout, self.err.open("wb") as stderr:
            self.process = subprocess.Popen(
                command, stdout=stdout, stderr=stderr, cwd=ROOT, env=os.environ | {"KCTL_BOOTSTRAP_SERVER": bootstrap}
            )

    @property
    def values(self) -> list[str]:
        """Of the whole lines so far."""
        lines = self.out.read_bytes().rpartition(b"\n")[0].splitlines()
        return [json.loads(line)["value"] for line in lines]

    def end(self, number: signal.Signals) -> int:
        """Its exit status after this signal."""
        self.process.send_signal(number)
        return self.process.wait(STOP_TIMEOUT_S)


@pytest.fixture
def readers(kctl: Kctl, topic: str) -> Iterator[list[Reader]]:
    """Whatever still runs at the end is killed.

    The group that loses a member so has to notice: other tests compare what is told of all groups, and their log.
    """
    started: list[Reader] = []
    yield started
    running = [reader for reader in started if reader.process.poll() is None]
    for reader in running:
        reader.end(signal.SIGKILL)
    if running:
        claim = lambda: [topic, "Empty"] in [row[:2] for row in kctl("groups list").rows]  # noqa: E731
        probe.wait_until(claim, what="a group without members", timeout_s=TIMEOUT_S)


def fill(kctl: Kctl, topic: str, values: range) -> list[str]:
    """The values, spread over all three partitions."""
    lines = "".join(f"{value}:{value}\n" for value in values)
    assert kctl(f"produce {topic} --key-separator :", stdin=lines.encode()).status == 0
    return [str(value) for value in values]


def partitions_of_members(kctl: Kctl, group: str) -> list[int]:
    """How many partitions each member has; none while there is no such group."""
    return sorted(int(row[5]) for row in kctl(f"groups members {group}").rows if row[5] != "-")


def lag(kctl: Kctl, group: str) -> int:
    return sum(int(row[5]) for row in kctl(f"groups describe {group}").rows if row[5] != "-")


def await_values(what: list[str], *readers: Reader) -> None:
    def claim() -> bool:
        return set(what) <= {value for reader in readers for value in reader.values}

    probe.wait_until(claim, what=f"{len(what)} records shown", timeout_s=TIMEOUT_S)


def test_reading_goes_on_where_the_group_stopped(kctl: Kctl, topic: str) -> None:
    fill(kctl, topic, range(9))
    assert kctl(f"consume {topic} --group {topic} --from end").out == ""
    values = fill(kctl, topic, range(9, 69))
    first = kctl(f"consume {topic} --group {topic} -n 7 --format jsonl")
    assert (first.status, first.err) == (0, "")
    assert lag(kctl, topic) == 53
    rest = kctl(f"consume {topic} --group {topic} --format jsonl")
    shown = [json.loads(line)["value"] for line in (first.out + rest.out).splitlines()]
    assert sorted(shown, key=int) == values
    assert (lag(kctl, topic), kctl(f"consume {topic} --group {topic}").out) == (0, "")


def test_shares_with_another_client_and_takes_over_when_that_leaves(
    kctl: Kctl, bootstrap: str, topic: str, tmp_path: Path, readers: list[Reader]
) -> None:
    values = fill(kctl, topic, range(30))
    ours = Reader(bootstrap, topic, tmp_path / "ours")
    readers.append(ours)
    await_values(values, ours)
    other = KafkaConsumer(
        topic, group_id=topic, bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    seen: list[str] = []

    def poll_until(claim: str, values: list[str]) -> None:
        def is_done() -> bool:
            for records in other.poll(timeout_ms=100).values():
                seen.extend(record.value.decode() for record in records)
            return bool(other.assignment()) and set(values) <= {*ours.values, *seen}

        probe.wait_until(is_done, what=claim, timeout_s=TIMEOUT_S)

    poll_until("both read", values)
    assert seen == []
    more = fill(kctl, topic, range(30, 60))
    poll_until("all is shown by one of them", more)
    assert sorted(ours.values + seen, key=int) == values + more
    other.commit()
    other.close()
    last = fill(kctl, topic, range(60, 90))
    await_values(last, ours)
    assert ours.end(signal.SIGTERM) == 143
    assert lag(kctl, topic) == 0


@ON_OURS
def test_whoever_is_interrupted_commits_and_leaves_at_once(
    kctl: Kctl, bootstrap: str, topic: str, tmp_path: Path, readers: list[Reader]
) -> None:
    values = fill(kctl, topic, range(12))
    readers.append(Reader(bootstrap, topic, tmp_path / "reader"))
    await_values(values, *readers)
    assert readers[0].end(signal.SIGINT) == 130
    assert lag(kctl, topic) == 0
    assert f"{topic}\tEmpty" in kctl("groups list").out
    assert "Traceback" not in readers[0].err.read_text()


@ON_OURS
def test_nothing_is_lost_when_a_reader_is_killed(
    kctl: Kctl, bootstrap: str, topic: str, tmp_path: Path, readers: list[Reader]
) -> None:
    config = tmp_path / "reader.properties"
    config.write_text("session.timeout.ms=6000\nheartbeat.interval.ms=500\n")
    values = fill(kctl, topic, range(30))
    one, two = (Reader(bootstrap, topic, tmp_path / name, config=config) for name in ("one", "two"))
    readers += [one, two]
    probe.wait_until(lambda: partitions_of_members(kctl, topic) == [1, 2], what="both are members", timeout_s=TIMEOUT_S)
    await_values(values, one, two)
    assert one.end(signal.SIGKILL) == -signal.SIGKILL
    more = fill(kctl, topic, range(30, 60))
    await_values(more, two)
    assert two.end(signal.SIGTERM) == 143
    assert lag(kctl, topic) == 0


@ON_OURS
def test_static_id_belongs_to_who_came_last(
    kctl: Kctl, bootstrap: str, topic: str, tmp_path: Path, readers: list[Reader]
) -> None:
    config = tmp_path / "static.properties"
    config.write_text("group.instance.id=one\nsession.timeout.ms=6000\nheartbeat.interval.ms=500\n")
    values = fill(kctl, topic, range(9))
    readers.append(Reader(bootstrap, topic, tmp_path / "first", config=config))
    await_values(values, *readers)
    readers.append(Reader(bootstrap, topic, tmp_path / "second", config=config))
    assert readers[0].process.wait(STOP_TIMEOUT_S) == 1
    assert "FENCED_INSTANCE_ID" in readers[0].err.read_text()
    more = fill(kctl, topic, range(9, 18))
    await_values(more, *readers[1:])

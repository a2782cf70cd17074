"""`kctl consume --group` shares partitions with any client and commits the records it has printed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from confluent_kafka import Consumer

from tests.integration.cli.conftest import ON_OURS, Kctl
from tests.integration.cli.group_readers import (
    STOP_TIMEOUT_S,
    TIMEOUT_S,
    Reader,
    await_values,
    fill,
    lag,
    partitions_of_members,
)
from tests.peers import probe


def test_reading_resumes_at_the_committed_offsets(kctl: Kctl, topic: str) -> None:
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
    other = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 500,
        }
    )
    other.subscribe([topic])
    seen: list[str] = []

    def poll_until(claim: str, values: list[str]) -> None:
        def is_done() -> bool:
            for record in other.consume(100, 0.1):
                value = record.value()
                assert record.error() is None, record.error()
                assert value is not None
                seen.append(value.decode())
            return bool(other.assignment()) and set(values) <= {*ours.values, *seen}

        probe.wait_until(is_done, what=claim, timeout_s=TIMEOUT_S)

    poll_until("both read", values)
    assert seen == []
    more = fill(kctl, topic, range(30, 60))
    poll_until("all is shown by one of them", more)
    assert sorted(ours.values + seen, key=int) == values + more
    other.commit(asynchronous=False)
    other.close()
    last = fill(kctl, topic, range(60, 90))
    await_values(last, ours)
    assert ours.end(signal.SIGTERM) == 143
    assert lag(kctl, topic) == 0


def test_group_with_another_protocol_is_refused_with_a_remedy(kctl: Kctl, bootstrap: str, topic: str) -> None:
    fill(kctl, topic, range(9))
    other = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "partition.assignment.strategy": "roundrobin",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 500,
        }
    )
    other.subscribe([topic])
    probe.wait_until(lambda: other.poll(0.1) is not None, what="the other reads", timeout_s=TIMEOUT_S)
    refused = kctl(f"consume {topic} --group {topic}")
    assert (refused.status, refused.out) == (1, "")
    assert "INCONSISTENT_GROUP_PROTOCOL" in refused.err
    assert "the group uses roundrobin: add --assignor roundrobin" in refused.err
    other.close()
    assert kctl(f"consume {topic} --group {topic} --assignor sticky").status == 0


@ON_OURS
def test_interrupted_consumer_commits_and_leaves_at_once(
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
def test_no_record_is_lost_when_a_consumer_is_killed(
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
def test_static_instance_id_belongs_to_the_last_member_that_joined(
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


def test_a_group_reads_several_topics_and_those_that_match_a_pattern(kctl: Kctl, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "ab"]
    for name in names:
        assert kctl(f"topics create {name} --partitions 1").status == 0
        assert kctl(f"produce {name}", stdin=name.encode()).status == 0
    for group, words in ((f"{topic}-named", " ".join(names)), (f"{topic}-matched", f"{topic}-?")):
        for expected in (names, []):
            ran = kctl(f"consume {words} --group {group} --format jsonl")
            rows = [json.loads(line) for line in ran.out.splitlines()]
            assert (ran.status, sorted(row["topic"] for row in rows)) == (0, expected), ran.err
            assert all(row["value"] == row["topic"] for row in rows)
        (exported,) = kctl(f"groups export {group}").document["groups"]
        assert sorted((offset["topic"], offset["offset"]) for offset in exported["offsets"]) == [(n, 1) for n in names]

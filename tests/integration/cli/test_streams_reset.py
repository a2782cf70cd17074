"""`kctl groups reset-streams` does what Kafka's own tool does to an application with the same topics and offsets."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.cli.conftest import ON_OURS, Kctl
from tests.integration.cli.group_readers import TIMEOUT_S, Reader
from tests.integration.cli.test_kafka_tool_output import output
from tests.peers import apache_kafka, probe

BROKERS = ["kctl", pytest.param(apache_kafka.LAST_WITH_ZOOKEEPER, marks=pytest.mark.jvm)]
INTERNAL = ("counts-changelog", "words-repartition", "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000018-topic")


def application(kctl: Kctl, name: str) -> None:
    """Topics of an application that has read some of its records."""
    for topic in (f"{name}-in", f"{name}-through"):
        assert kctl(f"topics create {topic} --partitions 2").status == 0
        for partition in (0, 1):
            assert kctl(f"produce {topic} --partition {partition}", stdin=b"x\n" * 10).status == 0
    for topic in (*INTERNAL, "output"):
        assert kctl(f"topics create {name}-{topic} --partitions 1").status == 0
    scope = f"--topic {name}-in --topic {name}-through:0"
    assert kctl(f"groups reset-offsets {name} {scope} --to-offset 4 --yes --no-backup").status == 0


def state_of(kctl: Kctl, name: str) -> tuple[list[str], list[list[str]]]:
    """Topics and committed offsets, without the name of the application."""
    topics = [row[0].removeprefix(name) for row in kctl("topics list").rows if row[0].startswith(name)]
    offsets = [[row[1].removeprefix(name), *row[2:4]] for row in kctl(f"groups describe {name}").rows]
    return sorted(topics), sorted(offsets)


def wait_until_deleted(kctl: Kctl, name: str, topic: str) -> None:
    claim = lambda: f"{name}-{topic}" not in kctl("topics list").out  # noqa: E731
    probe.wait_until(claim, what="a deleted topic", timeout_s=TIMEOUT_S)


@pytest.mark.jvm
@pytest.mark.parametrize("bootstrap", BROKERS, indirect=True)
def test_reset_leaves_what_kafkas_tool_leaves(kctl: Kctl, bootstrap: str) -> None:
    ours, theirs = "streams-ours", "streams-theirs"
    for name in (ours, theirs):
        application(kctl, name)
    before = state_of(kctl, ours)
    line = f"groups reset-streams {ours} --input-topic {ours}-in --intermediate-topic {ours}-through"
    shown = kctl(line)
    assert (shown.status, "repeat with --yes" in shown.err) == (0, True)
    assert shown.rows == [
        ["reset offset", f"{ours}-in", "0", "4", "0", "would be reset", "-", "-"],
        ["reset offset", f"{ours}-in", "1", "4", "0", "would be reset", "-", "-"],
        ["seek to end", f"{ours}-through", "0", "4", "10", "would be reset", "-", "-"],
        ["seek to end", f"{ours}-through", "1", "-", "10", "would be reset", "-", "-"],
        *(
            ["delete topic", f"{ours}-{topic}", "-", "-", "-", "would be deleted", "-", "-"]
            for topic in sorted(INTERNAL)
        ),
    ]
    assert state_of(kctl, ours) == before
    done = kctl(f"{line} --yes")
    assert done.status == 0
    assert {row[5] for row in done.rows} == {"reset", "deleted"}
    arguments = [
        *("--bootstrap-servers", bootstrap, "--application-id", theirs, "--force"),
        *("--input-topics", f"{theirs}-in", "--intermediate-topics", f"{theirs}-through"),
    ]
    (printed,) = output(apache_kafka.LAST_WITH_ZOOKEEPER, [["org.apache.kafka.tools.StreamsResetter", *arguments]])
    assert "Done" in printed or "Deleting" in printed, printed
    for name in (ours, theirs):
        for topic in INTERNAL:
            wait_until_deleted(kctl, name, topic)
    topics, offsets = state_of(kctl, ours)
    assert (topics, offsets) == state_of(kctl, theirs)
    assert topics == ["-in", "-output", "-through"]
    assert offsets == [["-in", "0", "0"], ["-in", "1", "0"], ["-through", "0", "10"], ["-through", "1", "10"]]


@ON_OURS
def test_reset_to_another_offset_and_of_one_internal_topic(kctl: Kctl) -> None:
    name = "streams-partial"
    application(kctl, name)
    line = f"groups reset-streams {name} --input-topic {name}-in --shift-by -1 --internal-topic {name}-{INTERNAL[0]}"
    assert kctl(f"{line} --yes").status == 0
    wait_until_deleted(kctl, name, INTERNAL[0])
    topics, offsets = state_of(kctl, name)
    assert f"-{INTERNAL[1]}" in topics
    assert [row for row in offsets if row[0] == "-in"] == [["-in", "0", "3"], ["-in", "1", "3"]]


@ON_OURS
def test_nothing_is_done_if_a_topic_is_wrong(kctl: Kctl) -> None:
    name = "streams-wrong"
    application(kctl, name)
    before = state_of(kctl, name)
    for line, code in (
        (f"--input-topic {name}-nosuch", "UNKNOWN_TOPIC_OR_PARTITION"),
        (f"--input-topic {name}-in --internal-topic {name}-output", "INVALID_TOPIC_EXCEPTION"),
    ):
        ran = kctl(f"groups reset-streams {name} {line} --yes")
        assert (ran.status, code in {row[6] for row in ran.rows}) == (1, True)
    for line in (
        f"--input-topic {name}-in --intermediate-topic {name}-in",
        f"--input-topic {name}-in --to-latest --to-earliest",
        "--to-latest",
        f"--input-topic {name}-in --yes --dry-run",
    ):
        assert kctl(f"groups reset-streams {name} {line}").status == 2
    assert state_of(kctl, name) == before


@ON_OURS
def test_application_with_members_is_refused(
    kctl: Kctl, topic: str, bootstrap: str, readers: list[Reader], tmp_path: Path
) -> None:
    readers.append(Reader(bootstrap, topic, tmp_path / "out"))
    claim = lambda: [topic, "Stable"] in [row[:2] for row in kctl("groups list").rows]  # noqa: E731
    probe.wait_until(claim, what="a member", timeout_s=TIMEOUT_S)
    for how in ("", "--yes"):
        ran = kctl(f"groups reset-streams {topic} --input-topic {topic} {how}")
        assert (ran.status, "stop the members first" in ran.err) == (5, True)
    readers[0].end(signal.SIGINT)

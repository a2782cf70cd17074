"""`--compat` output for groups equals that of Kafka's own commands byte for byte."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from tests.integration.cli.conftest import Kctl
from tests.peers import apache_kafka
from tests.peers.probe import wait_until

pytestmark = pytest.mark.jvm

GROUP_COMMAND = {
    "kafka-2.8": (apache_kafka.OLDEST_JUDGE, "kafka.admin.ConsumerGroupCommand"),
    "kafka-3": (apache_kafka.LAST_WITH_ZOOKEEPER, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    "kafka-4": (apache_kafka.TOOLS_FOR_NEWEST, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
}
MEMBERS_TIMEOUT_S = 60
BROKERS = ["kctl", apache_kafka.LAST_WITH_ZOOKEEPER]
USUAL = {("kctl", "kafka-2.8"), (apache_kafka.LAST_WITH_ZOOKEEPER, "kafka-4")}
"""Brokers and tools that each run of the tests compares."""


@pytest.fixture
def groups(topic: str, kctl: Kctl, bootstrap: str) -> Iterator[list[str]]:
    """One group with members, one of them static; two with offsets of few and many partitions; one that
    does not exist.
    """
    other = f"{topic}-and-a-longer-name"
    assert kctl(f"topics create {other} --partitions 15").status == 0
    for partition in (0, 2):
        kctl(f"produce {topic} --partition {partition}", stdin=b"x\n" * 10)
    names = [f"{topic}-{kind}" for kind in ("active", "few", "many", "unknown")]
    active, few, many, _ = names
    for group, scope in (
        (active, f"--topic {topic}:0,1 --topic {other}:6"),
        (few, f"--topic {topic}:0,2 --topic {other}:0,2"),
        (many, f"--topic {topic} --topic {other}"),
    ):
        assert kctl(f"groups reset-offsets {group} {scope} --to-earliest --yes").status == 0
    common = {
        "bootstrap.servers": bootstrap,
        "broker.address.family": "v4",
        "group.id": active,
        "enable.auto.commit": False,
    }
    members = [
        Consumer({**common, "client.id": "the-first"}),
        Consumer({**common, "client.id": "second", "group.instance.id": "static", "session.timeout.ms": 60_000}),
    ]

    def holds() -> bool:
        for member in members:
            member.poll(0.1)
        owned = [member.assignment() for member in members]
        return all(owned) and sum(map(len, owned)) == 18

    for member in members:
        member.subscribe([topic, other])
    wait_until(holds, what="two members", timeout_s=MEMBERS_TIMEOUT_S)
    yield names
    for member in members:
        member.close()


@pytest.mark.parametrize(
    ("bootstrap", "compat"),
    [
        pytest.param(broker, compat, marks=() if (broker, compat) in USUAL else pytest.mark.matrix)
        for broker in BROKERS
        for compat in GROUP_COMMAND
    ],
    indirect=["bootstrap"],
)
def test_groups_are_printed_as_by_kafkas_tool(kctl: Kctl, groups: list[str], bootstrap: str, compat: str) -> None:
    version, tool = GROUP_COMMAND[compat]
    if compat == "kafka-4":
        groups = groups[:-1]  # Of one that does not exist, its tool prints nothing else: see the test below.
    named = [word for group in groups for word in ("--group", group)]
    ours: list[str] = []
    theirs: list[list[str]] = []

    def compare(line: str, *words: str) -> None:
        ours.append(kctl(f"groups {line} --compat {compat}").out)
        theirs.append([tool, "--bootstrap-server", bootstrap, *words])

    compare("list", "--list")
    compare("list --verbose", "--list", "--state")
    compare("list --state Stable", "--list", "--state", "Stable")
    if compat != "kafka-2.8":
        compare("list --type classic --type consumer", "--list", "--type")
    for show in ("offsets", "members", "state"):
        line = f"describe {' '.join(groups)} --show {show}"
        compare(line, "--describe", *named, f"--{show}")
        if show != "offsets" or compat != "kafka-2.8":
            compare(f"{line} --verbose", "--describe", *named, f"--{show}", "--verbose")
    for reported, expected in zip(ours, output(version, theirs), strict=True):
        assert reported == expected
    assert all("active" in reported for reported in ours)


@pytest.mark.parametrize("bootstrap", BROKERS, indirect=True)
def test_a_group_that_does_not_exist_is_described_as_by_kafkas_tool(kctl: Kctl, topic: str, bootstrap: str) -> None:
    version, tool = GROUP_COMMAND["kafka-4"]
    (theirs,) = output(version, [[tool, "--bootstrap-server", bootstrap, "--describe", "--group", topic]])
    assert kctl(f"groups describe {topic} --compat kafka-4").out == theirs


def output(version: str, commands: list[list[str]]) -> list[str]:
    """The output of each command."""
    return [out for out, _ in apache_kafka.run_java_tools(version, commands)]

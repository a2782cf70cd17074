"""`--compat` output for groups and transactions equals that of Kafka's own commands byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from tests.integration.cli.conftest import Kctl
from tests.integration.cli.hanging import leave_hanging
from tests.integration.transactions.writing import TIMEOUT_S, producer, transact
from tests.peers import apache_kafka
from tests.peers.probe import wait_until

pytestmark = pytest.mark.jvm

GROUP_COMMAND = {
    "kafka-2.8": (apache_kafka.OLDEST_JUDGE, "kafka.admin.ConsumerGroupCommand"),
    "kafka-3": (apache_kafka.LAST_WITH_ZOOKEEPER, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    "kafka-4": (apache_kafka.TOOLS_FOR_NEWEST, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
}
TRANSACTIONS_COMMAND = {
    "kafka-3": (apache_kafka.LAST_WITH_ZOOKEEPER, "org.apache.kafka.tools.TransactionsCommand"),
    "kafka-4": (apache_kafka.TOOLS_FOR_NEWEST, "org.apache.kafka.tools.TransactionsCommand"),
}
DURATIONS = {"describe": 7, "find-hanging": 7}
"""Columns that depend on the time."""
MEMBERS_TIMEOUT_S = 60
LONG_MS = 600_000
"""Long enough that no compared transaction times out."""
BROKERS = ["kctl", apache_kafka.LAST_WITH_ZOOKEEPER]


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
        assert kctl(f"groups reset-offsets {group} {scope} --to-earliest --execute").status == 0
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


@pytest.mark.parametrize("bootstrap", BROKERS, indirect=True)
@pytest.mark.parametrize("compat", GROUP_COMMAND)
def test_groups_are_printed_as_by_kafkas_tool(kctl: Kctl, groups: list[str], bootstrap: str, compat: str) -> None:
    version, tool = GROUP_COMMAND[compat]
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
@pytest.mark.parametrize("compat", TRANSACTIONS_COMMAND)
def test_transactions_are_printed_as_by_kafkas_tool(kctl: Kctl, topic: str, bootstrap: str, compat: str) -> None:
    version, tool = TRANSACTIONS_COMMAND[compat]
    other = f"{topic}-and-a-longer-name"
    assert kctl(f"topics create {other} --partitions 15").status == 0
    for partition in (0, 1, 2, 1):
        leave_hanging(bootstrap, topic, partition)
    open_ = producer(bootstrap, f"{topic}-open", timeout_ms=LONG_MS)
    open_.begin_transaction()
    for partition in range(15):
        open_.produce(other, b"x", partition=partition)
    assert open_.flush(TIMEOUT_S) == 0
    transact(producer(bootstrap, f"{topic}-done"), other, [b"x"])
    wait_until(lambda: is_settled(kctl), what="the end of what is decided", timeout_s=TIMEOUT_S)
    theirs: list[list[str]] = []
    ours: list[str] = []
    for partition in range(3):
        theirs.append(
            [
                tool,
                "--bootstrap-server",
                bootstrap,
                "describe-producers",
                "--topic",
                topic,
                "--partition",
                str(partition),
            ]
        )
        ours.append(kctl(f"producers describe {topic} --partition {partition} --compat {compat}").out)
    for words, line in (
        (["list"], "list"),
        (["describe", "--transactional-id", f"{topic}-open"], f"describe {topic}-open"),
        (["describe", "--transactional-id", f"{topic}-done"], f"describe {topic}-done"),
        (
            ["find-hanging", "--topic", topic, "--max-transaction-timeout", "0"],
            f"find-hanging --topic {topic} --idle 1ms",
        ),
        (["find-hanging", "--topic", other], f"find-hanging --topic {other}"),
    ):
        theirs.append([tool, "--bootstrap-server", bootstrap, *words])
        ours.append(kctl(f"transactions {line} --compat {compat}").out)
    for reported, expected, command in zip(ours, output(version, theirs), theirs, strict=True):
        column = DURATIONS.get(command[3])
        assert without(column, reported) == without(column, expected)
    assert ours[1].count("\n") == 3
    assert ours[6].count(topic) == 4
    open_.abort_transaction(TIMEOUT_S)


def is_settled(kctl: Kctl) -> bool:
    """Waits until no transaction is between the decision and its last marker."""
    return not any(row[3].startswith("Prepare") for row in kctl("transactions list").rows)


def without(column: int | None, table: str) -> str:
    """The table with question marks for the numbers of a column."""
    lines = [line.split("\t") for line in table.splitlines(keepends=True)]
    if column is None:
        return table
    for cells in lines[1:]:
        cells[column] = re.sub(r"\d+ *", lambda found: "?".ljust(len(found[0])), cells[column])
    return "".join("\t".join(cells) for cells in lines)


def output(version: str, commands: list[list[str]]) -> list[str]:
    """The output of each command."""
    return [out for out, _ in apache_kafka.run_java_tools(version, commands)]

"""`--compat` output for topics, configs and offsets equals that of Kafka's own tools."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import Kctl
from tests.integration.cli.test_kafka_tool_output import output
from tests.peers import apache_kafka

pytestmark = pytest.mark.jvm

TOOLS = "org.apache.kafka.tools"
VERSIONS = {
    "kafka-2.8": (apache_kafka.OLDEST_JUDGE, "kafka.admin", "kafka.tools.GetOffsetShell"),
    "kafka-3": (apache_kafka.LAST_WITH_ZOOKEEPER, TOOLS, f"{TOOLS}.GetOffsetShell"),
    "kafka-4": (apache_kafka.TOOLS_FOR_NEWEST, TOOLS, f"{TOOLS}.GetOffsetShell"),
}
BROKERS_AND_VERSIONS = [
    ("kctl", "kafka-2.8"),
    (apache_kafka.LAST_WITH_ZOOKEEPER, "kafka-3"),
    *(pytest.param("kctl", compat, marks=pytest.mark.matrix) for compat in ("kafka-3", "kafka-4")),
]
LATER_MS = "4102444800000"
"""A time after the last record."""
COUNT = 30
"""Enough topics and partitions that the tools print them in the order of their hashes."""


@pytest.mark.parametrize(("bootstrap", "compat"), BROKERS_AND_VERSIONS, indirect=["bootstrap"])
def test_compat_output_equals_that_of_kafkas_tools(kctl: Kctl, bootstrap: str, compat: str) -> None:
    prefix = f"compat-{compat.replace('.', '-')}-"
    names = [f"{prefix}{number}" for number in range(COUNT)]
    create_topics(kctl, names)
    assert kctl("configs alter broker 0 --set log.cleaner.threads=1").status == 0
    assert kctl("configs alter broker default --set log.retention.ms=99999999").status == 0
    lines = [*topic_lines(compat, prefix, names), *([] if compat == "kafka-4" else config_lines(names[0]))]
    made = f"{prefix}ma.de"
    create = [VERSIONS[compat][1] + ".TopicCommand", "--bootstrap-server", bootstrap, "--create", "--topic", made]
    printed = [kctl(f"{line} --compat {compat}").out for line, _ in lines]
    commands = [[tool, address_option(compat, tool), bootstrap, *words] for _, (tool, *words) in lines]
    *expected, created = output(VERSIONS[compat][0], [*commands, create])
    differing = [line for (line, _), ours, theirs in zip(lines, printed, expected, strict=True) if ours != theirs]
    assert differing == []
    assert kctl(f"topics create {made}-2 --compat {compat}").out == created.replace(made, f"{made}-2")
    assert kctl(f"topics delete {made} {made}-2 --yes").status == 0
    assert kctl("configs alter broker default --delete-config log.retention.ms").status == 0
    assert kctl("configs alter broker 0 --delete-config log.cleaner.threads").status == 0


def create_topics(kctl: Kctl, names: list[str]) -> None:
    """The first has properties, records and many partitions."""
    for name in names[1:]:
        assert kctl(f"topics create {name} --partitions 1").status == 0
    properties = ("retention.ms=86400000", "min.insync.replicas=1", "cleanup.policy=compact,delete", "flush.ms=77")
    configs = " ".join(f"--config {property_}" for property_ in properties)
    assert kctl(f"topics create {names[0]} --partitions 17 {configs}").status == 0
    for partition, count in ((0, 3), (16, 2)):
        assert kctl(f"produce {names[0]} --key k --partition {partition}", stdin=b"x\n" * count).status == 0


def topic_lines(compat: str, prefix: str, names: list[str]) -> list[tuple[str, list[str]]]:
    """Lines of kctl and the words of Kafka's tools."""
    _, package, offset_shell = VERSIONS[compat]
    topics = f"{package}.TopicCommand"
    every, first = " ".join(names), names[0]
    return [
        ("topics list", [topics, "--list"]),
        (f"topics describe {every}", [topics, "--describe", "--topic", f"{prefix}.*"]),
        (f"topics describe {first}", [topics, "--describe", "--topic", first]),
        (
            f"topics describe {every} --unavailable-partitions",
            [topics, "--describe", "--unavailable-partitions", "--topic", f"{prefix}.*"],
        ),
        (f"topics offsets {first}", [offset_shell, "--topic", first, "--time", "-1"]),
        (f"topics offsets {first} --time earliest", [offset_shell, "--topic", first, "--time", "-2"]),
        (f"topics offsets {first} --time @{LATER_MS}", [offset_shell, "--topic", first, "--time", LATER_MS]),
        (f"topics offsets {first} --partition 0,3", [offset_shell, "--topic", first, "--partitions", "0,3"]),
    ]


def config_lines(name: str) -> list[tuple[str, list[str]]]:
    """Command lines of kctl and words for kafka-configs, which is part of the broker in Kafka 4."""
    return [
        (f"configs describe {ours}", ["kafka.admin.ConfigCommand", "--describe", *theirs.split()])
        for ours, theirs in (
            (f"topic {name}", f"--entity-type topics --entity-name {name}"),
            (f"topic {name} --all", f"--entity-type topics --entity-name {name} --all"),
            ("broker 0", "--entity-type brokers --entity-name 0"),
            ("broker default", "--entity-type brokers --entity-default"),
            ("broker", "--entity-type brokers"),
        )
    ]


def address_option(compat: str, tool: str) -> str:
    return "--broker-list" if (compat, tool) == ("kafka-2.8", "kafka.tools.GetOffsetShell") else "--bootstrap-server"

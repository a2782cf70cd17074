"""The rules of kctl migrate check for properties are those of Apache Kafka's own classes, in every release."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kctl.migration.target.property_table import (
    PROPERTIES,
    Property,
    Scope,
    Type,
    is_removed,
    new_default,
    refusal_of,
)
from tests.peers import apache_kafka

pytestmark = pytest.mark.jvm

PROGRAM = Path(__file__).with_name("BrokerProperties.java")
NUMBERS = ("-131073", "-131072", "-3", "-2", "-1", "0", "1", "3", "4", "9", "10", "17", "18", "22", "23", "1048575")
MORE_NUMBERS = ("1048576", "8388607", "8388608", "2147483647", "2147483648", "9223372036854775808", "+7", "x", "1.5")
VALUES = {
    Type.BOOLEAN: ("true", "FALSE", "yes", ""),
    Type.DOUBLE: ("-0.1", "0", "0.5", "1", "1.1", "x"),
    Type.LIST: ("compact", "delete,compact", "delete,delete", "a", "a,b,a", ""),
    Type.STRING: ("gzip", "none", "producer", "CreateTime", "createtime", "SSL", "ssl", "2.8", ""),
}
CHANGES_NOT_CHECKED = {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
"""They are the same in all releases; a reassignment sets and removes them."""
NEITHER_SEEN_NOR_REFUSED = {
    # Of KRaft: no broker with ZooKeeper has them with an effect.
    *("controller.listener.names", "controller.quorum.append.linger.ms", "controller.quorum.election.backoff.max.ms"),
    *("controller.quorum.election.timeout.ms", "controller.quorum.fetch.timeout.ms", "node.id"),
    *("controller.quorum.request.timeout.ms", "controller.quorum.retry.backoff.ms", "group.share.enable"),
    *("group.share.max.groups", "metadata.log.segment.bytes", "metadata.log.segment.min.bytes"),
    # Wider than in 3.9, or a choice of a broker that has the consumer protocol, which needs KRaft.
    *("group.coordinator.append.linger.ms", "group.coordinator.rebalance.protocols", "group.share.max.size"),
    *("group.share.record.lock.duration.ms", "max.connections.per.ip"),
    # Any text is accepted; an empty list of audiences is the default.
    *("authorizer.class.name", "sasl.oauthbearer.expected.audience"),
}


def properties_of(
    version: str, questions: list[tuple[Scope, str, str]]
) -> tuple[dict[Scope, dict[str, list[str]]], list[str]]:
    """The type, default and validator of each property, and what the classes say about the values."""
    command = apache_kafka.broker_command(version, str(PROGRAM))
    text = "".join("\t".join(question) + "\n" for question in questions)
    ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=True)
    lines = ran.stdout.splitlines()
    defined: dict[Scope, dict[str, list[str]]] = {Scope.TOPIC: {}, Scope.BROKER: {}}
    for line in lines[: len(lines) - len(questions)]:
        scope, name, *cells = line.split("\t")
        defined[Scope(scope)][name] = cells
    return defined, lines[len(lines) - len(questions) :]


def values_of(row: Property) -> tuple[str, ...]:
    return VALUES.get(row.type, NUMBERS + MORE_NUMBERS)


@pytest.mark.parametrize(
    "version",
    [
        *(pytest.param(version, marks=pytest.mark.matrix) for version in ("4.0.1", "4.1.1", "4.2.0", "4.4.0")),
        apache_kafka.NEWEST_BROKER,
    ],
)
def test_target_refuses_forgets_and_changes_what_the_table_says(version: str) -> None:
    target = version.rpartition(".")[0]
    rows = [(scope, row) for scope, names in PROPERTIES.items() for row in names.values()]
    questions = [(scope, row, value) for scope, row in rows for value in values_of(row)]
    defined, answers = properties_of(version, [(scope, row.name, value) for scope, row, value in questions])
    for scope, row in rows:
        assert (row.name not in defined[scope]) is is_removed(row, target), row.name
        default = new_default(row, target)
        if default is not None:
            assert defined[scope][row.name][1] == default, row.name
    different = [
        (scope.value, row.name, value, answer)
        for (scope, row, value), answer in zip(questions, answers, strict=True)
        if answer != "unknown" and (refusal_of(row, value, target) is None) != (answer == "accepted")
    ]
    assert not different


SOURCES = ("0.11.0.3", "1.1.1", "2.0.1", "2.4.1", "2.8.2", "3.9.1")


@pytest.mark.matrix
def test_table_has_every_property_that_a_source_has_and_a_target_lacks_or_restricts() -> None:
    newest = properties_of(apache_kafka.NEWEST, [])[0]
    for version in SOURCES:
        for scope, names in properties_of(version, [])[0].items():
            lost = {name for name in names if name not in newest[scope]}
            changed = {name for name in names if name in newest[scope] and names[name][2] != newest[scope][name][2]}
            expected = (lost | changed) - NEITHER_SEEN_NOR_REFUSED - CHANGES_NOT_CHECKED
            if scope is Scope.TOPIC:
                expected = set(names) - CHANGES_NOT_CHECKED
            assert expected <= set(PROPERTIES[scope]), (version, expected - set(PROPERTIES[scope]))

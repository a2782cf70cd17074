"""Client properties and sasl.jaas.config are accepted and refused as by the classes of Apache Kafka's clients."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kctl.client.properties.table import PROPERTIES, Client, Use, check_properties
from kctl.errors import ConfigError
from kctl.security.jaas import JaasError, parse_jaas
from tests.golden.jaas_values import JAAS_VALUES
from tests.peers.apache_kafka import java_command

pytestmark = pytest.mark.jvm

PROGRAM = Path(__file__).with_name("Settings.java")
VERSIONS = ("2.8.2", "4.3.1")
VALUES = (
    *("", "x", "0", "1", "-1", "+7", "-2", "6", "9", "1.5", "0.5", "0x10", "1_000", "1k", "10s", "4999", "5000"),
    *("2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "true", "FALSE", "yes", "none", "all"),
    *("latest", "earliest", "Earliest", "by_duration:PT1H", "by_duration:P1DT2.5S", "by_duration:1h", "by_duration:PT"),
    *("by_duration:-PT1S", "by_duration:P", "by_duration:pt1m", "read_committed", "READ_COMMITTED", "gzip", "zstd"),
    *("plaintext", "SASL_SSL", "TLS", "INFO", "info", "use_all_dns_ips", "rebootstrap", "classic", "CONSUMER"),
    *("implicit", "BATCH_OPTIMIZED", "RS256", "1e-1", "0.25", "3600"),
)
OTHER_IN_2 = {"security.protocol", "group.instance.id", "compression.type", "auto.offset.reset"}
"""2.8.2 accepts some values until they are used, and has no by_duration."""


def answers(version: str, questions: Sequence[str]) -> list[str]:
    command = java_command(version, str(PROGRAM), [], log_level="ERROR")
    text = "".join(f"{question}\n" for question in questions)
    ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=True)
    return ran.stdout.splitlines()


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("version", VERSIONS)
def test_table_has_every_property_of_the_clients_and_validates_as_they_do(version: str) -> None:
    clients = [client for client in Client for name in PROPERTIES if client.value in PROPERTIES[name].clients]
    names = [name for client in Client for name in PROPERTIES if client.value in PROPERTIES[name].clients]
    questions = [(client, name, value) for client, name in zip(clients, names, strict=True) for value in VALUES]
    first, *found = answers(version, ["names", *(f"value {c.value} {n} {in_base64(v)}" for c, n, v in questions)])
    theirs = set(first.split())
    ours = {f"{client.value}:{name}" for client, name in zip(clients, names, strict=True)}
    assert not theirs - ours, theirs - ours
    different = []
    for (client, name, value), answer in zip(questions, found, strict=True):
        declared = PROPERTIES[name]
        if f"{client.value}:{name}" not in theirs or (version == "2.8.2" and name in OTHER_IN_2):
            continue
        # Kafka refuses classes that it cannot load; nothing is connected to without addresses.
        if name.endswith(".class") or (value == "" and (declared.use is Use.REFUSED or name == "bootstrap.servers")):
            continue
        try:
            check_properties({name: value}, client)
        except ConfigError as error:
            # What Kafka accepts may be refused with a remedy, because kctl does not implement it.
            is_remedy = declared.use is Use.REFUSED or "refused" in declared.text
            if answer == "accepted" and not is_remedy:
                different.append(f"{error}, but Kafka accepts it")
        else:
            if answer == "refused":
                different.append(f"{name}={value} is accepted, but Kafka refuses it")
    assert not different, "\n".join(map(str, different))


def test_table_has_no_property_that_neither_version_has() -> None:
    theirs = {word for version in VERSIONS for word in answers(version, ["names"])[0].split()}
    ours = {f"{client}:{name}" for name, declared in PROPERTIES.items() for client in declared.clients}
    # Of the versions between the two: removed in 4.0.
    assert ours - theirs == {f"{client}:auto.include.jmx.reporter" for client in "ACP"}


def test_login_modules_are_read_as_by_kafka() -> None:
    found = answers("4.3.1", [f"jaas {in_base64(text)}" for text, _ in JAAS_VALUES])
    different = []
    for (text, expected), answer in zip(JAAS_VALUES, found, strict=True):
        if answer != (described(text) if expected is not None else "refused") or (answer == "refused") != (
            expected is None
        ):
            different.append((text, answer, described(text)))
    assert not different, "\n".join(map(str, different))


def described(text: str) -> str:
    """What kctl reads, in the form of the answers."""
    try:
        module = parse_jaas(text)
    except JaasError:
        return "refused"

    def encoded(part: str) -> str:
        return in_base64(part).rstrip("=")

    options = "".join(f" {encoded(name)}={encoded(value)}" for name, value in sorted(module.options.items()))
    return encoded(module.class_name) + options

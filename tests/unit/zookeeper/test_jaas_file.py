"""JAAS files for SASL to ZooKeeper, which is not supported."""

from __future__ import annotations

from pathlib import Path

import pytest

from kctl.errors import ConfigError
from kctl.zookeeper.security import refuse_client_section

MODULE = 'org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="sesame";'
SERVER = 'KafkaServer {\n  org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";\n};\n'


def options(path: Path, more: str = "") -> dict[str, str]:
    return {"KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={path} {more}"}


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (f"Client {{ {MODULE} }};", ""),
        (f"{SERVER}Client{{\n{MODULE}\n}};", ""),
        (f"/* of ZooKeeper */ Client // here\n{{ {MODULE} }};", "-Dzookeeper.sasl.client=true"),
        (f"Zoo {{ {MODULE} }};", "-Dzookeeper.sasl.clientconfig=Zoo"),
    ],
)
def test_a_section_for_zookeeper_is_refused_with_the_alternatives(tmp_path: Path, text: str, more: str) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"does not support; use a certificate") as caught:
        refuse_client_section(options(path, more))
    assert str(path) in str(caught.value)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (SERVER, ""),
        (f"// Client {{ {MODULE} }};", ""),
        (f"KafkaClient {{ {MODULE} }};", ""),
        (f"Client {{ {MODULE} }};", "-Dzookeeper.sasl.client=false"),
        (f"Client {{ {MODULE} }};", "-Dzookeeper.sasl.clientconfig=Other"),
    ],
)
def test_other_sections_are_not_refused(tmp_path: Path, text: str, more: str) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(text)
    refuse_client_section(options(path, more))


@pytest.mark.parametrize("environment", [{}, {"KAFKA_OPTS": ""}, {"KAFKA_OPTS": "-Xmx1g -Dother=1"}])
def test_without_a_file_nothing_is_refused(environment: dict[str, str]) -> None:
    refuse_client_section(environment)


def test_a_file_that_cannot_be_read_and_malformed_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        refuse_client_section(options(tmp_path / "none"))
    with pytest.raises(ConfigError, match="KAFKA_OPTS"):
        refuse_client_section({"KAFKA_OPTS": "-Da='b"})

"""Files with secrets that every user of the machine can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kctl.commands.broker import zookeeper
from kctl.commands.frame.profiles.secrets import exposed_files
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl

PASSWORD = "sesame"
PRIVATE, PUBLIC = 0o640, 0o644


@for_rows(
    "name, is_secret",
    [
        ("sasl.jaas.config", True),
        ("listener.name.sasl_ssl.plain.sasl.jaas.config", True),
        ("ssl.keystore.password", True),
        ("ssl.keystore.key", True),
        ("zookeeper.ssl.keyStore.password", True),
        ("password.encoder.secret", True),
        ("delegation.token.master.key", True),
        ("password.encoder.iterations", False),
        ("ssl.truststore.location", False),
        ("num.partitions", False),
    ],
)
def test_only_files_with_secret_properties_are_checked(tmp_path: Path, name: str, is_secret: bool) -> None:
    path = written(tmp_path / "any.properties", PUBLIC)
    assert exposed_files(path, {name: "1"}) == ([path] if is_secret else [])
    assert exposed_files(path, {name: " "}) == []


def test_keystores_and_other_files_are_checked_too(tmp_path: Path) -> None:
    config, open_store, private_store, token = (
        written(tmp_path / name, mode)
        for name, mode in (("config", PRIVATE), ("open", PUBLIC), ("private", PRIVATE), ("token", PUBLIC))
    )
    properties = {
        "ssl.keystore.location": open_store,
        "zookeeper.ssl.keyStore.location": private_store,
        "listener.name.x.ssl.keystore.location": open_store,
        "ssl.key.password": PASSWORD,
    }
    assert exposed_files(config, properties, (token, str(tmp_path / "none"))) == [open_store, token]


def written(path: Path, mode: int, text: str = "") -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


COMMANDS = {
    "topics list --command-config {}": "security.protocol=PLAINTEXT\nsasl.jaas.config=x password='sesame';\n",
    "broker start --data-dir {}.data --config {}": "num.partitions=x\nssl.keystore.password=sesame\n",
    "broker zookeeper-stat / --zk-tls-config-file {}": (
        "zookeeper.ssl.client.enable=true\nzookeeper.ssl.keyStore.location=/none\nzookeeper.ssl.keyStore.password=sesame\n"
    ),
    "users list --zookeeper 127.0.0.1:1 --zk-tls-config-file {}": (
        "zookeeper.ssl.client.enable=true\nzookeeper.ssl.keyStore.location=/none\nzookeeper.ssl.keyStore.password=sesame\n"
    ),
}
"""Command lines that read a file with a secret, and its contents."""


@pytest.mark.parametrize("line", COMMANDS)
def test_every_option_that_names_a_file_with_secrets_warns_if_all_can_read_it(
    kctl: Kctl, cluster: FakeCluster, tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper, "CONNECT_TIMEOUT_MS", 1)  # no ZooKeeper is there
    path = tmp_path / "secrets.properties"
    for mode, warnings in ((PUBLIC, 1), (PRIVATE, 0)):
        written(path, mode, COMMANDS[line])
        ran = kctl(line.replace("{}", str(path)))
        assert ran.err.count("every user can read it; run: chmod 600") == warnings
        assert PASSWORD not in ran.out + ran.err


def test_a_file_that_cannot_be_read_is_a_usage_error(kctl: Kctl, cluster: FakeCluster, tmp_path: Path) -> None:
    for line in COMMANDS:
        ran = kctl(line.replace("{}", str(tmp_path / "none")))
        assert (ran.status, "cannot read" in ran.err) == (2, True)

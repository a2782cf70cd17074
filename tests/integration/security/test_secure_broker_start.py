"""`kctl broker start --secure`: TLS and SCRAM without a line of configuration."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from cryptography import x509

from kctl.config.dynamic import ConfigView
from kctl.config.properties import parse_properties
from kctl.errors import UsageError
from kctl.server.process.host import store_user
from kctl.server.process.secure_setup import prepare
from kctl.zookeeper.paths import config_entity
from kctl.zookeeper.session import ZooKeeperSession
from kctl.zookeeper.znodes import decode_config
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.forked_kctl import run_kctl
from tests.peers.probe import accepts


def kctl(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run_kctl(*words, stdin=stdin.encode())


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "data"
    yield folder
    kctl("broker", "stop", "--data-dir", str(folder))


def start(data_dir: Path, *words: str) -> Path:
    """Starts the broker; returns its client properties."""
    started = kctl("broker", "start", "--secure", "--detach", "--port", "0", "--data-dir", str(data_dir), *words)
    assert started.returncode == 0, started.stderr
    path = data_dir / "security" / "client.properties"
    assert str(path) in started.stderr
    password = (data_dir / "security" / "admin.password").read_text().strip()
    assert password not in started.stdout + started.stderr
    return path


def test_broker_serves_only_clients_with_its_files_and_keeps_the_files(data_dir: Path) -> None:
    config = start(data_dir)
    created = kctl("topics", "create", "orders", "--partitions", "1", "--command-config", str(config))
    assert created.returncode == 0, created.stderr
    produced = kctl("produce", "orders", "--command-config", str(config), stdin="one\n")
    assert produced.returncode == 0, produced.stderr

    properties = parse_properties(config.read_text())
    refused = kctl("topics", "list", "--bootstrap-server", properties["bootstrap.servers"], "--timeout", "20s")
    assert (refused.returncode in (1, 4), refused.stderr.count("\n")) == (True, 1)
    assert "security.protocol" in refused.stderr

    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in config.parent.iterdir()}
    assert set(files.values()) == {0o600}
    assert stat.S_IMODE(config.parent.stat().st_mode) == 0o700

    password = (config.parent / "admin.password").read_text()
    assert kctl("broker", "stop", "--data-dir", str(data_dir)).returncode == 0
    config = start(data_dir)
    assert (config.parent / "admin.password").read_text() == password
    java = config.with_name("client-pkcs12.properties")
    consumed = kctl("consume", "orders", "--command-config", str(java), "--format", "jsonl")
    assert [json.loads(line)["value"] for line in consumed.stdout.splitlines()] == ["one"], consumed.stderr

    properties = parse_properties(config.read_text())
    assert accepts(properties["bootstrap.servers"])
    other_client = AdminClient(
        {
            "bootstrap.servers": properties["bootstrap.servers"],
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": properties["sasl.mechanism"],
            "sasl.username": "admin",
            "sasl.password": password.strip(),
            "ssl.ca.location": properties["ssl.truststore.location"],
        }
    )
    assert "orders" in other_client.list_topics(timeout=60).topics


def names_in(folder: Path) -> set[str]:
    pem = (folder / "broker.pem").read_bytes()
    certificate = x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


def test_new_host_name_gets_a_certificate_of_the_same_authority(tmp_path: Path) -> None:
    folder = tmp_path / "security"
    prepare(folder)
    authority, broker = (folder / "ca.pem").read_bytes(), (folder / "broker.pem").read_bytes()
    prepare(folder)
    assert (folder / "broker.pem").read_bytes() == broker, "nothing has changed"
    prepare(folder, ["kafka.example.com"])
    assert (folder / "ca.pem").read_bytes() == authority
    assert names_in(folder) == {"localhost", "127.0.0.1", "::1", "kafka.example.com"}


def test_invalid_host_name_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a host name"):
        prepare(tmp_path / "security", ["two words"])
    assert not list(tmp_path.iterdir())


def test_brokers_of_a_secure_cluster_replicate_and_refuse_others(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    where = ("--data-dir", str(folder))
    try:
        started = kctl("cluster", "start", "--secure", "--brokers", "2", "--port", "0", *where)
        assert started.returncode == 0, started.stderr
        config = folder / "security" / "client.properties"
        assert str(config) in started.stderr
        password = (config.parent / "admin.password").read_text().strip()
        assert password not in started.stdout + started.stderr + (folder / "cluster.json").read_text()
        servers = parse_properties(config.read_text())["bootstrap.servers"].split(",")
        assert len(servers) == 2

        created = kctl("topics", "create", "orders", "--replica-assignment", "0:1", "--command-config", str(config))
        assert created.returncode == 0, created.stderr
        produced = kctl("produce", "orders", "--acks", "all", "--command-config", str(config), stdin="one\n")
        assert produced.returncode == 0, produced.stderr
        health = kctl("cluster", "health", "--wait", "60s", "--command-config", str(config))
        assert health.returncode == 0, health.stdout + health.stderr
        for server in servers:
            assert kctl("topics", "list", "--bootstrap-server", server, "--timeout", "10s").returncode in (1, 4)

        stopped = kctl("cluster", "stop", *where, "--format", "json")
        assert stopped.returncode == 0, stopped.stderr
        assert [document["state"] for document in json.loads(stopped.stdout)] == ["stopped"] * 3
        again = kctl("cluster", "start", *where)
        assert again.returncode == 0, again.stderr
        consumed = kctl("consume", "orders", "--command-config", str(config), "--format", "jsonl")
        assert [json.loads(line)["value"] for line in consumed.stdout.splitlines()] == ["one"], consumed.stderr
    finally:
        kctl("cluster", "stop", *where)


def test_a_cluster_without_security_is_not_secured_later(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"ports": [9092], "zookeeper": null}')
    refused = kctl("cluster", "start", "--secure", "--data-dir", str(tmp_path))
    assert refused.returncode == 2
    assert "use another --data-dir" in refused.stderr


def test_brokers_that_start_together_store_the_same_user(tmp_path: Path) -> None:
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        configs = ConfigView({"zookeeper.connect": zookeeper.connect})

        async def store() -> dict[str, str]:
            await asyncio.gather(
                *(store_user(zookeeper.connect, configs, "admin", {name: name}) for name in "abcdefgh")
            )
            session = ZooKeeperSession(zookeeper.connect)
            await session.start(60_000)
            path = config_entity("users/admin")
            stored, _ = await session.get(path)
            await session.close()
            return decode_config(path, stored)

        assert asyncio.run(store()) == {name: name for name in "abcdefgh"}
